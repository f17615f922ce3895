"""Decisions and nominations out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, func, or_, select

from policy.store.decision_rows import record_from
from policy.store.errors import NotFound, StoreError
from policy.store.model import (
    DecisionRow,
    NominationRow,
    StoredDecision,
)
from policy.store.state.loading import cluster_id
from policy.store.tables import (
    CLUSTERS,
    CYCLES,
    DECISION_CHILDREN,
    DECISIONS,
    NOMINATION_ENDS,
    NOMINATIONS,
    RULE_SETS,
    VICTIMS,
)

_FEW: Final = 10_000
_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions a list shows; None means any."""

    cluster: str | None = None
    since_ms: int | None = None  #: by `now_ms`, from this instant on
    until_ms: int | None = None  #: by `now_ms`, before this instant
    namespace: str | None = None  #: of the preemptor or of any victim
    node: str | None = None
    rule_set: str | None = None  #: name, or (the beginning of) a digest
    outcome: str | None = None
    preemptor: str | None = None
    hypothetical: bool | None = False


def _base() -> Select[Any]:
    return (
        select(
            *DECISIONS.c,
            CLUSTERS.c.name.label("cluster"),
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
        # A rule set that somebody removed lacks; the decisions that it made are still there.
        .outerjoin(RULE_SETS, RULE_SETS.c.id == DECISIONS.c.rule_set_id)
    )


def digest_range(prefix: str) -> tuple[str, str]:
    """The first digest with a prefix, and the first that is beyond them all."""
    full = prefix if prefix.startswith("sha256:") else f"sha256:{prefix}"
    return full, full + "g"


def rule_set_ids(connection: Connection, wanted: str) -> list[int]:
    """Numbers of the rule sets with that name, or with a digest that begins so."""
    condition = RULE_SETS.c.name == wanted
    if _DIGEST.fullmatch(wanted):
        low, high = digest_range(wanted)
        condition = or_(condition, (RULE_SETS.c.digest >= low) & (RULE_SETS.c.digest < high))
    return list(connection.execute(select(RULE_SETS.c.id).where(condition)).scalars())


def _filtered(connection: Connection, query: Select[Any], wanted: DecisionFilter) -> Select[Any]:
    c = DECISIONS.c
    if wanted.cluster is not None:
        query = query.where(c.cluster_id == cluster_id(connection, wanted.cluster))
    if wanted.since_ms is not None:
        query = query.where(c.now_ms >= wanted.since_ms)
    if wanted.until_ms is not None:
        query = query.where(c.now_ms < wanted.until_ms)
    if wanted.namespace is not None:
        query = query.where(_in_namespace(connection, wanted.namespace, wanted.cluster))
    if wanted.node is not None:
        query = query.where(c.node == wanted.node)
    if wanted.rule_set is not None:
        query = query.where(c.rule_set_id.in_(rule_set_ids(connection, wanted.rule_set)))
    if wanted.outcome is not None:
        query = query.where(c.outcome == wanted.outcome)
    if wanted.preemptor is not None:
        query = query.where(c.preemptor == wanted.preemptor)
    if wanted.hypothetical is not None:
        query = query.where(c.hypothetical == wanted.hypothetical)
    return query


def _in_namespace(
    connection: Connection, namespace: str, cluster: str | None
) -> ColumnElement[bool]:
    """Decisions whose preemptor or any of whose victims is of the namespace."""
    c = DECISIONS.c
    own = select(c.id).where(c.preemptor_namespace == namespace)
    hit = select(VICTIMS.c.decision_id).where(VICTIMS.c.namespace == namespace)
    if cluster is not None:
        number = cluster_id(connection, cluster)
        own = own.where(c.cluster_id == number)
        hit = hit.where(VICTIMS.c.cluster_id == number)
    found = select(func.count()).select_from(own.union_all(hit).limit(_FEW + 1).subquery())
    if connection.execute(found).scalar_one() <= _FEW:
        return c.id.in_(own.union_all(hit))
    # A long list is longer to sort than a page of decisions is to find by walking back.
    return or_(c.preemptor_namespace == namespace, c.id.in_(hit))


def decisions(
    connection: Connection,
    wanted: DecisionFilter,
    *,
    limit: int | None,
    before_id: int | None,
    after_id: int | None,
) -> list[DecisionRow]:
    """Newest first; with `after_id` the oldest after it first, to walk forward."""
    query = _filtered(connection, _base(), wanted)
    if before_id is not None:
        query = query.where(DECISIONS.c.id < before_id)
    if after_id is not None:
        query = query.where(DECISIONS.c.id > after_id).order_by(DECISIONS.c.id)
    else:
        query = query.order_by(DECISIONS.c.id.desc())
    if limit is not None:
        query = query.limit(limit)
    return [DecisionRow.of(row._asdict()) for row in connection.execute(query)]


def decision_ids(connection: Connection, wanted: DecisionFilter) -> list[int]:
    """Numbers of decisions, oldest first."""
    query = _filtered(connection, select(DECISIONS.c.id), wanted).order_by(DECISIONS.c.id)
    return list(connection.execute(query).scalars())


def decisions_by_id(connection: Connection, ids: Sequence[int]) -> list[DecisionRow]:
    """Decisions by number, oldest first; numbers that are none are left out."""
    query = _base().where(DECISIONS.c.id.in_(ids)).order_by(DECISIONS.c.id)
    return [DecisionRow.of(row._asdict()) for row in connection.execute(query)]


def _find(connection: Connection, wanted: int | str) -> dict[str, Any]:
    text = str(wanted).strip()
    if re.fullmatch(r"[0-9]{1,18}", text):
        found = connection.execute(_base().where(DECISIONS.c.id == int(text))).first()
        if found is not None:
            return found._asdict()
    if _DIGEST.fullmatch(text):
        low, high = digest_range(text)
        query = _base().where(DECISIONS.c.digest >= low, DECISIONS.c.digest < high)
        matches = connection.execute(query.order_by(DECISIONS.c.id.desc()).limit(2)).all()
        if len({row.digest for row in matches}) > 1:
            raise StoreError(
                f"`{text}` is the beginning of more than one decision digest",
                help="give more of it, or the number of the decision",
            )
        if matches:
            return matches[0]._asdict()
    raise NotFound(
        f"there is no decision `{text[:80]}`",
        help="give a number or the beginning of a digest, as `policy decisions` lists them",
    )


def decision(connection: Connection, wanted: int | str) -> StoredDecision:
    """A decision by number or by the beginning of its digest (the newest of equal ones)."""
    row = _find(connection, wanted)
    children: dict[Table, Sequence[dict[str, Any]]] = {}
    for table in DECISION_CHILDREN:
        query = select(table).where(table.c.decision_id == row["id"])
        found = connection.execute(query.order_by(*table.primary_key))
        children[table] = [child._asdict() for child in found]
    return StoredDecision(row=DecisionRow.of(row), record=record_from(row, children))


def rule_set_text(connection: Connection, wanted: str) -> tuple[str, str, str]:
    """Digest, name and canonical text of a rule set by (the beginning of) its digest."""
    if not wanted:  # what `_base` gives for a rule set whose row is gone
        raise NotFound(
            "the rule set is not in the database any more",
            help="`policy audit verify` names what was changed",
        )
    low, high = digest_range(wanted)
    c = RULE_SETS.c
    found = connection.execute(
        select(c.digest, c.name, c.canonical).where(c.digest >= low, c.digest < high).limit(2)
    ).all()
    if len(found) != 1:
        many = "more than one rule set" if found else "no rule set"
        raise NotFound(f"there is {many} with digest `{wanted[:80]}` in this database")
    digest, name, canonical = found[0]
    return str(digest), str(name), str(canonical)


def nominations(
    connection: Connection,
    *,
    cluster: str | None,
    pod: str | None,
    node: str | None,
    standing: bool | None,
    limit: int | None,
) -> list[NominationRow]:
    """Newest first; `standing`: only those that have not ended (True) or have (False)."""
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    query = nominations_query()
    if cluster is not None:
        query = query.where(n.cluster_id == cluster_id(connection, cluster))
    if pod is not None:
        query = query.where(n.pod == pod)
    if node is not None:
        query = query.where(n.node == node)
    if standing is not None:
        query = query.where(e.cause.is_(None) if standing else e.cause.is_not(None))
    if limit is not None:
        query = query.limit(limit)
    return [NominationRow(**row._mapping) for row in connection.execute(query)]


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
        )
        .select_from(NOMINATIONS)
        .join(CLUSTERS, CLUSTERS.c.id == n.cluster_id)
        .outerjoin(NOMINATION_ENDS, same)
        .order_by(n.cluster_id, n.made_revision.desc(), n.pod)
    )
