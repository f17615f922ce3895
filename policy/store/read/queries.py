"""Decisions and nominations out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack

import msgspec
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Table,
    and_,
    case,
    false,
    func,
    null,
    or_,
    select,
)
from sqlalchemy import text as sql_text

from policy.decision.model import ExtenderCall, OfferedNode, Outcome, Victim
from policy.store import rows
from policy.store.decision_rows import record_from, victim_from
from policy.store.errors import InvalidValue, NotFound
from policy.store.kept import in_question
from policy.store.model.decisions import (
    DecisionRow,
    LedgerPosition,
    NominationRow,
    Origin,
    ServedCall,
    StoredDecision,
)
from policy.store.outcomes import WHOLE, OutcomeKind, contradicted, outcomes_of
from policy.store.read import by_rule
from policy.store.read.nominated import NOMINATED_NOW
from policy.store.spans import ids_within
from policy.store.state.loading import cluster_id
from policy.store.tables import (
    CLUSTERS,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_OUTCOMES,
    DECISION_TRACES,
    DECISIONS,
    EXTENDER_CALLS,
    LEDGER,
    NOMINATION_ENDS,
    NOMINATIONS,
    PODS,
    RULE_SETS,
    VICTIMS,
)
from policy.typed import prepared

_FEW: Final = 2_000
"""Decisions of which each is looked at sooner than a page of others is found by walking back."""
_IDS: Final = 500
_HYPOTHETICAL: Final = sql_text("decisions.hypothetical")
_WOULD_PREEMPT: Final = sql_text("decisions.victim_count > 0 AND decisions.outcome <> 'preempt'")
_WITHOUT_VICTIMS: Final = frozenset(Outcome) - {Outcome.PREEMPT}
_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{4,64}")
_WHOLE_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{64}")


class DecisionFilter(TypedDict, total=False):
    """Which decisions a list shows; what is left out or None means any."""

    since_ms: int | None  #: by `now_ms`, from this instant on
    until_ms: int | None  #: by `now_ms`, before this instant
    namespace: str | None  #: of the preemptor or of any victim
    #: of the preemptor or of any victim; None for all
    namespaces: frozenset[str] | None
    node: str | None
    rule_set: str | None  #: name, or (the beginning of) a digest
    rule: str | None  #: that it decided: `id`, or `section/id`
    outcome: str | None  #: `not-carried-out` for those that a later state contradicts
    preemptor: str | None
    pod: str | None  #: preemptor, or any victim
    victim: str | None  #: any of the victims
    workload: str | None  #: `namespace/Kind/name` of the owner of any victim
    victim_named: tuple[str, str] | None  #: namespace, and name of any victim or of its owner
    origin: str | None  #: a value of `Origin`
    hypothetical: bool | None  #: those that are not, where it is left out
    simulated: bool | None  #: False for none of kept simulations, unless the cluster is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a decision was told beside the state that it was made on."""

    history: Mapping[str, Mapping[str, int]] | None = None  #: None where it read no figures
    extender_calls: tuple[ExtenderCall, ...] = ()
    offer: tuple[OfferedNode, ...] | None = None  #: None where nothing was offered


def _base() -> Select[Any]:
    return (
        select(
            *DECISIONS.c,
            CLUSTERS.c.name.label("cluster"),
            (~contradicted(DECISIONS.c.id, WHOLE)).label("carried_out"),
            _answer().label("answer"),
            CYCLES.c.at_ms,
            CYCLES.c.actor,
            CYCLES.c.environment,
            CYCLES.c.attempt,
            CYCLES.c.queued_ms,
            CYCLES.c.process_uid,
            CYCLES.c.process_user,
            CYCLES.c.database_user,
            func.coalesce(RULE_SETS.c.name, "").label("rule_set"),
            func.coalesce(RULE_SETS.c.digest, "").label("rule_set_digest"),
        )
        .join(CLUSTERS, CLUSTERS.c.id == DECISIONS.c.cluster_id)
        .join(CYCLES, CYCLES.c.id == DECISIONS.c.id)
        # A rule set may have been removed; the decisions that it made are still there.
        .outerjoin(RULE_SETS, RULE_SETS.c.id == DECISIONS.c.rule_set_id)
    )


def _answer() -> ColumnElement[str]:
    """What the scheduler was answered; looked up where one asked."""
    call = select(EXTENDER_CALLS.c.answer).where(EXTENDER_CALLS.c.decision_id == DECISIONS.c.id)
    asked = DECISIONS.c.origin == Origin.EXTENDER
    return case((asked, func.coalesce(call.scalar_subquery(), "")), else_="")


def is_digest(text: str, *, whole: bool = False) -> bool:
    """Does it look like a digest, or, where it need not be whole, the beginning of one?"""
    return (_WHOLE_DIGEST if whole else _DIGEST).fullmatch(text) is not None


def digest_range(prefix: str) -> tuple[str, str]:
    """The first digest with a prefix, and the first that is beyond them all."""
    full = prefix if prefix.startswith("sha256:") else f"sha256:{prefix}"
    return full, full + "g"


def require_workload(text: str) -> None:
    """Refuse what is no name of a workload. Raises InvalidValue."""
    parts = text.split("/", 2)
    if len(parts) < 3 or not all(parts):
        raise InvalidValue(f"`{text[:400]}` is not namespace/Kind/name")


def rule_set_ids(connection: Connection, wanted: str) -> list[int]:
    """Numbers of the rule sets with that name, or with a digest that begins so."""
    condition = RULE_SETS.c.name == wanted
    if is_digest(wanted):
        low, high = digest_range(wanted)
        condition = or_(condition, (RULE_SETS.c.digest >= low) & (RULE_SETS.c.digest < high))
    return list(connection.execute(select(RULE_SETS.c.id).where(condition)).scalars())


def _filtered(
    connection: Connection, query: Select[Any], cluster: str | None, wanted: DecisionFilter
) -> Select[Any]:
    c, v = DECISIONS.c, VICTIMS.c
    clusters = _clusters(connection, cluster)
    if cluster is not None:
        query = query.where(c.cluster_id == clusters[0])
    if wanted.get("simulated") is False:
        query = query.where(*in_question(connection, cluster, c.cluster_id))
    query = query.where(*_in_time(connection, clusters, wanted))
    shared = _shared(connection, wanted)
    rare = _rare(connection, shared)
    found_by = any(wanted.get(name) is not None for name in _FOUND_BY)
    for given in (wanted.get("namespace"), wanted.get("namespaces")):
        if given is None:
            continue
        names = [given] if isinstance(given, str) else sorted(given)
        # Where another filter leaves few, these are looked at one by one.
        listed, condition = _in_namespaces(
            connection, names, clusters, outcome=wanted.get("outcome"), listing=rare is None
        )
        query = query.where(condition)
        found_by |= listed
    if (victim := wanted.get("victim")) is not None:
        query = query.where(_with_victim(connection, v.pod == victim))
    if (pod := wanted.get("pod")) is not None:
        hit = select(v.decision_id).where(v.pod == pod)
        ids = select(c.id).where(c.preemptor == pod).union_all(hit)
        few = _few(connection, ids)
        query = query.where(c.id.in_(ids if few is None else few))
    if (rule := wanted.get("rule")) is not None:
        counted = wanted.get("hypothetical", False) is False
        listed, conditions = by_rule.decided(connection, clusters, rule, counted=counted)
        query = query.where(*conditions)
        found_by |= listed
    if (workload := wanted.get("workload")) is not None:
        require_workload(workload)
        of, _, owner = workload.partition("/")
        its = and_(v.cluster_id.in_(clusters), v.namespace == of, v.owner == owner)
        query = query.where(_with_victim(connection, its))
    if (named := wanted.get("victim_named")) is not None:
        query = query.where(_with_victim_named(connection, *named, clusters))
    for column, values in shared:
        plain = column is rare if rare is not None else not found_by
        # Kept from its index where another one finds fewer.
        query = query.where(_one_of(column if plain else func.coalesce(column, null()), values))
    outcome = wanted.get("outcome")
    if outcome == OutcomeKind.NOT_CARRIED_OUT:
        x = DECISION_OUTCOMES.c
        query = query.where(c.id.in_(select(x.decision_id).where(x.position == WHOLE)))
    elif outcome is not None:
        query = query.where(~contradicted(c.id, WHOLE))
    if (hypothetical := wanted.get("hypothetical", False)) is not None:
        # Literally as the index of the few that are has it.
        query = query.where(_HYPOTHETICAL if hypothetical else ~c.hypothetical)
    equal = {name: wanted.get(name) for name in ("node", "preemptor")}
    return query.filter_by(**{name: value for name, value in equal.items() if value is not None})


_FOUND_BY: Final = ("node", "preemptor", "pod", "victim", "workload", "victim_named")
"""Filters that mostly leave fewer decisions than an outcome, an origin or a rule set does."""


def _shared(
    connection: Connection, wanted: DecisionFilter
) -> list[tuple[ColumnElement[Any], list[Any]]]:
    """Columns that many decisions agree in, with what each of them has to be."""
    c = DECISIONS.c
    found: list[tuple[ColumnElement[Any], list[Any]]] = []
    outcome, origin = wanted.get("outcome"), wanted.get("origin")
    if outcome is not None and outcome != OutcomeKind.NOT_CARRIED_OUT:
        found.append((c.outcome, [outcome]))
    if origin is not None:
        found.append((c.origin, [origin]))
    if (rule_set := wanted.get("rule_set")) is not None:
        found.append((c.rule_set_id, rule_set_ids(connection, rule_set)))
    return found


def _rare(
    connection: Connection, shared: Sequence[tuple[ColumnElement[Any], list[Any]]]
) -> ColumnElement[Any] | None:
    """The first of the columns in which only few decisions are as they have to be."""
    for column, values in shared:
        if _few(connection, select(DECISIONS.c.id).where(_one_of(column, values))) is not None:
            return column
    return None


def _clusters(connection: Connection, cluster: str | None) -> list[int]:
    """The cluster, or all of them: what an index that begins with the cluster is found by."""
    if cluster is not None:
        return [cluster_id(connection, cluster)]
    return list(connection.execute(select(CLUSTERS.c.id)).scalars())


def _one_of(column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    # With a single value an index gives the rows in the order of the list.
    return column == values[0] if len(values) == 1 else column.in_(values)


def _in_time(
    connection: Connection, clusters: Sequence[int], wanted: DecisionFilter
) -> list[ColumnElement[bool]]:
    """The conditions on the time, and a stretch of ids that all its decisions are in.

    Ids grow as decisions are recorded, so that a walk from the newest id back begins and ends near
    where the time does.
    """
    c = DECISIONS.c
    span = []
    if (since_ms := wanted.get("since_ms")) is not None:
        span.append(c.now_ms >= since_ms)
    if (until_ms := wanted.get("until_ms")) is not None:
        span.append(c.now_ms < until_ms)
    if not span:
        return []
    ids = ids_within(connection, clusters, since_ms=since_ms, until_ms=until_ms)
    if ids is None:
        return [false()]
    return [*span, c.id.between(*ids)]


def _with_victim(connection: Connection, its: ColumnElement[bool]) -> ColumnElement[bool]:
    """Decisions that have such a victim."""
    c, v = DECISIONS.c, VICTIMS.c
    ids = _few(connection, select(v.decision_id).where(its))
    if ids is not None:
        return c.id.in_(ids)
    return select(1).where(v.decision_id == c.id, its).exists()


def _with_victim_named(
    connection: Connection, namespace: str, name: str, clusters: Sequence[int]
) -> ColumnElement[bool]:
    """Decisions with a victim of that name, or whose owner, of whatever kind, has it."""
    c, v = DECISIONS.c, VICTIMS.c
    pod = v.pod == f"{namespace}/{name}"
    owners = [f"{kind}/{name}" for kind in _kinds_of_owners(connection, namespace, clusters)]
    owner = and_(v.namespace == namespace, v.owner.in_(owners))
    # Each by an index of its own.
    owned = select(v.decision_id).where(v.cluster_id.in_(clusters), owner)
    ids = _few(connection, select(v.decision_id).where(pod).union_all(owned))
    if ids is not None:
        return c.id.in_(ids)
    return select(1).where(v.decision_id == c.id, or_(pod, owner)).exists()


def _kinds_of_owners(
    connection: Connection, namespace: str, clusters: Sequence[int]
) -> Sequence[str]:
    """Of victims of a namespace: one look into the index for each kind, however many there are."""
    v = VICTIMS.c
    found: set[str] = set()
    for cluster in clusters:
        first = select(func.min(v.owner)).where(v.cluster_id == cluster, v.namespace == namespace)
        behind = " "  # those without an owner
        while owner := connection.execute(first.where(v.owner >= behind)).scalar_one():
            kind = owner.partition("/")[0]
            found.add(kind)
            behind = f"{kind}0"  # what follows the slash
    return sorted(found)


def _in_namespaces(
    connection: Connection,
    namespaces: Sequence[str],
    clusters: Sequence[int],
    *,
    outcome: str | None,
    listing: bool,
) -> tuple[bool, ColumnElement[bool]]:
    """Decisions whose preemptor or any of whose victims is of the namespaces.

    outcome: that they have beside, which leaves fewer. listing: few are listed, which is said
    first; more are found by walking back.
    """
    c, v = DECISIONS.c, VICTIMS.c
    own = select(c.id).where(c.preemptor_namespace.in_(namespaces))
    theirs = select(1).where(v.decision_id == c.id, v.namespace.in_(namespaces))
    if outcome in _WITHOUT_VICTIMS:
        # Hardly any of these has victims, and the index by namespace has the outcome.
        own = own.where(c.outcome == outcome)
        kept = func.coalesce(c.outcome, null())  # from its index, which finds far more
        others = select(c.id).where(_WOULD_PREEMPT, kept == outcome, theirs.exists())
    else:
        its = and_(v.cluster_id.in_(clusters), v.namespace.in_(namespaces))
        others = select(v.decision_id).where(its)
    ids = _few(connection, own.union_all(others)) if listing else None
    if ids is not None:
        return True, c.id.in_(ids)
    # With an OFFSET Postgres looks up the victims of one decision after the other; without, it may
    # first gather those of the whole record.
    return False, or_(c.preemptor_namespace.in_(namespaces), theirs.offset(0).exists())


def _few(connection: Connection, ids: Select[Any] | CompoundSelect[Any]) -> list[int] | None:
    """The ids where they are few.

    Given as they are, and not as a query, they cannot be taken for more than there are.
    """
    found = list(connection.execute(ids.limit(_FEW + 1)).scalars())
    return found if len(found) <= _FEW else None


def decisions(
    connection: Connection,
    cluster: str | None = None,
    *,
    limit: int | None = None,
    before_id: int | None = None,
    after_id: int | None = None,
    **wanted: Unpack[DecisionFilter],
) -> list[DecisionRow]:
    """Decisions, newest first (with `after_id`: walking forward from there)."""
    c = DECISIONS.c
    page = _filtered(connection, select(c.id), cluster, wanted)
    if before_id is not None:
        page = page.where(c.id < before_id)
    if after_id is not None:
        page = page.where(c.id > after_id)
    order = c.id.desc() if after_id is None else c.id
    if limit is not None:
        page = page.order_by(order).limit(limit)
    # The other tables are joined for the decisions of the page only. Joined to all of them,
    # Postgres may read the cycles of every newer decision before it reaches a page far back.
    query = _base().where(c.id.in_(page)).order_by(order)
    return [DecisionRow.of(row._asdict()) for row in connection.execute(query)]


def decision_ids(
    connection: Connection, cluster: str, **wanted: Unpack[DecisionFilter]
) -> list[int]:
    """Numbers of the cluster's decisions, oldest first."""
    query = _filtered(connection, select(DECISIONS.c.id), cluster, wanted)
    return list(connection.execute(query.order_by(DECISIONS.c.id)).scalars())


def _stretches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Bound parameters stay below every database's limit."""
    return (ids[start : start + _IDS] for start in range(0, len(ids), _IDS))


def decisions_by_id(connection: Connection, ids: Sequence[int]) -> list[DecisionRow]:
    """Decisions by number, oldest first; numbers that are none are left out."""
    found = []
    for some in _stretches(sorted(ids)):
        query = _base().where(DECISIONS.c.id.in_(some)).order_by(DECISIONS.c.id)
        found += [DecisionRow.of(row._asdict()) for row in connection.execute(query)]
    return found


def known_decisions(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Which of these numbers are of a decision, or of what is left of one."""
    found: set[int] = set()
    for some in _stretches(ids):
        for column in (DECISIONS.c.id, CYCLES.c.id):
            found.update(connection.execute(select(column).where(column.in_(some))).scalars())
    return found


def frozen(connection: Connection, ids: Sequence[int]) -> dict[int, Frozen]:
    """What decisions were told beside their state, by number."""
    found = {}
    for some in _stretches(ids):
        query = select(DECISION_TRACES).where(DECISION_TRACES.c.decision_id.in_(some))
        for row in connection.execute(query):
            document = rows.from_json(row.document)
            calls = document.get("extenderCalls", ())
            found[row.decision_id] = Frozen(
                history=document.get("history"),
                extender_calls=tuple(ExtenderCall(**call) for call in calls),
                offer=msgspec.convert(
                    document.get("offer"), prepared(tuple[OfferedNode, ...] | None)
                ),
            )
    return found


def victims_of(connection: Connection, decisions: Sequence[int]) -> dict[int, tuple[Victim, ...]]:
    """The victims of many decisions by number; decisions without any are left out."""
    found: dict[int, list[Victim]] = defaultdict(list)
    for some in _stretches(decisions):
        v = VICTIMS.c
        query = select(VICTIMS).where(v.decision_id.in_(some)).order_by(v.decision_id, v.position)
        for row in connection.execute(query):
            found[row.decision_id].append(victim_from(row._asdict()))
    return {decision: tuple(victims) for decision, victims in found.items()}


def _find(
    connection: Connection, wanted: int | str, namespaces: Collection[str] | None
) -> dict[str, Any]:
    # Those of other namespaces are not found, rather than found and refused: an answer about one
    # would be another than about none, if only by how long it takes.
    among = _base() if namespaces is None else _base().where(_concerns(namespaces))
    if isinstance(wanted, int):
        found = connection.execute(among.where(DECISIONS.c.id == wanted)).first()
        if found is not None:
            return found._asdict()
    elif is_digest(wanted):
        low, high = digest_range(wanted)
        query = among.where(DECISIONS.c.digest >= low, DECISIONS.c.digest < high)
        matches = connection.execute(query.order_by(DECISIONS.c.id.desc()).limit(2)).all()
        if len({row.digest for row in matches}) > 1:
            raise InvalidValue(
                f"`{wanted}` is the beginning of more than one decision digest",
                help="give more of it, or the number of the decision",
            )
        if matches:
            return matches[0]._asdict()
    raise no_decision(wanted)


def no_decision(wanted: int | str) -> NotFound:
    """What is said where there is no decision with that number or digest."""
    return NotFound(
        f"there is no decision `{str(wanted)[:80]}`",
        help="give a number as `policy decisions` lists it, or 4 digits or more of a digest",
    )


def _concerns(namespaces: Collection[str]) -> ColumnElement[bool]:
    """Is the preemptor of a decision, or any of its victims, of the namespaces?"""
    v = VICTIMS.c
    theirs = select(1).where(v.decision_id == DECISIONS.c.id, v.namespace.in_(namespaces)).exists()
    return or_(DECISIONS.c.preemptor_namespace.in_(namespaces), theirs)


def decision_row(
    connection: Connection, number: int, *, namespaces: Collection[str] | None = None
) -> DecisionRow:
    """A decision by number, as lists show it. `namespaces` and errors as of `decision`."""
    return DecisionRow.of(_find(connection, number, namespaces))


def decision(
    connection: Connection, wanted: int | str, *, namespaces: Collection[str] | None = None
) -> StoredDecision:
    """A decision by number or, a text, by the beginning of its digest (the newest of equal ones).

    namespaces: only among those that concern pods of these. Raises NotFound.
    """
    row = _find(connection, wanted, namespaces)
    children: dict[Table, Sequence[dict[str, Any]]] = {}
    for table in DECISION_CHILDREN:
        query = select(table).where(table.c.decision_id == row["id"])
        found = connection.execute(query.order_by(*table.primary_key))
        children[table] = [child._asdict() for child in found]
    return StoredDecision(
        row=DecisionRow.of(row),
        record=record_from(row, children),
        served=next((_served(call) for call in children[EXTENDER_CALLS]), None),
        outcomes=outcomes_of(connection, [row["id"]]).get(row["id"], ()),
        ledger=_position(connection, row["id"]),
    )


def _position(connection: Connection, decision: int) -> LedgerPosition | None:
    c = LEDGER.c
    query = select(c.sequence, c.hash, c.previous).where(c.decision_id == decision)
    found = connection.execute(query).first()
    return None if found is None else LedgerPosition(**found._mapping)


def leaving_already(
    connection: Connection, cluster: str, revision: int, pods: Collection[str]
) -> frozenset[str]:
    """Which of the pods (namespace/name) were being deleted in the state of a revision."""
    p = PODS.c
    found: set[str] = set()
    keys = sorted(pods)
    for start in range(0, len(keys), _IDS):
        query = select(p.key).where(
            p.cluster_id == cluster_id(connection, cluster),
            p.key.in_(keys[start : start + _IDS]),
            p.terminating,
            p.valid_from <= revision,
            or_(p.valid_to.is_(None), p.valid_to > revision),
        )
        found.update(connection.execute(query).scalars())
    return frozenset(found)


def _served(call: Mapping[str, Any]) -> ServedCall:
    values = {str(name): value for name, value in call.items()}
    values["from_request"] = rows.from_json(call["from_request"])
    return msgspec.convert(values, prepared(ServedCall))


def rule_set(connection: Connection, wanted: str) -> str:
    """Canonical text of a rule set by (the beginning of) its digest.

    Raises NotFound, and InvalidValue where several have the beginning.
    """
    if not wanted:  # what `_base` gives for a rule set whose row is gone
        raise NotFound(
            "the rule set is not in the database any more",
            help="`policy audit verify` names what was changed",
        )
    low, high = digest_range(wanted)
    c = RULE_SETS.c
    query = select(c.canonical).where(c.digest >= low, c.digest < high).limit(2)
    found = connection.execute(query).scalars().all()
    if len(found) > 1:
        raise more_than_one_rule_set(wanted)
    if not found:
        raise NotFound(f"there is no rule set with digest `{wanted[:80]}` in this database")
    return str(found[0])


def more_than_one_rule_set(wanted: str) -> InvalidValue:
    """The error for a beginning of a digest that several rule sets have."""
    return InvalidValue(
        f"`{wanted[:80]}` is the beginning of more than one digest of a rule set",
        help="give more of it",
    )


def nominations(
    connection: Connection,
    cluster: str | None = None,
    *,
    pod: str | None = None,
    node: str | None = None,
    standing: bool | None = None,
    namespaces: Collection[str] | None = None,
    before: tuple[int, str] | None = None,
    limit: int | None = None,
) -> list[NominationRow]:
    """Nominations, newest first; `standing`: only those not ended (True) or ended (False).

    Those of one cluster by the revision that made them, those of several by their times.
    namespaces: only of pods of these. before: of one cluster, the revision and pod of the last one
    that was read before.
    """
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    query = nominations_query()
    if pod is not None:
        query = query.where(n.pod == pod)
    if node is not None:
        query = query.where(n.node == node)
    if standing is not None:
        query = query.where(e.cause.is_(None) if standing else e.cause.is_not(None))
    if namespaces is not None:
        # In the order of code points `0` is what follows the slash.
        own = [and_(n.pod >= f"{name}/", n.pod < f"{name}0") for name in sorted(namespaces)]
        query = query.where(or_(false(), *own))
    if before is not None:
        revision, last = before
        later = and_(n.made_revision == revision, n.pod > last)
        query = query.where(or_(n.made_revision < revision, later))
    if limit is not None:
        query = query.limit(limit)
    found = []
    for number in _clusters(connection, cluster):  # each in the order of an index
        here = query.where(n.cluster_id == number)
        if standing:
            # One that stands is of a pod that has it still: few, where many were made.
            having = select(PODS.c.key).where(PODS.c.cluster_id == number, NOMINATED_NOW)
            here = here.where(n.pod.in_(having))
        found += [NominationRow(**row._mapping) for row in connection.execute(here)]
    if cluster is None:
        found.sort(key=lambda row: row.made_ms, reverse=True)
    return found[:limit]


def nominations_query() -> Select[Any]:
    """All nominations with how they ended, newest first; columns as the fields of NominationRow."""
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    same = (e.cluster_id == n.cluster_id) & (e.made_revision == n.made_revision) & (e.pod == n.pod)
    return (
        select(
            CLUSTERS.c.name.label("cluster"),
            n.pod,
            n.uid,
            n.priority,
            n.node,
            n.made_revision,
            n.made_decision,
            n.made_ms,
            e.cause.label("ended_by"),
            e.ended_revision,
            e.ended_decision,
            e.ended_ms,
            case(
                (contradicted(n.made_decision, WHOLE), OutcomeKind.NOT_CARRIED_OUT.value), else_=""
            ).label("outcome"),
        )
        .select_from(NOMINATIONS)
        .join(CLUSTERS, CLUSTERS.c.id == n.cluster_id)
        .outerjoin(NOMINATION_ENDS, same)
        .order_by(n.cluster_id, n.made_revision.desc(), n.pod)
    )
