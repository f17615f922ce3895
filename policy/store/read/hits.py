"""Evictions from the victim's side: who was evicted, for whom, by which rule, and who answers.

Decisions, batch sessions and observed preemptions alike, by way of the view `v_victims`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, column, or_, select
from sqlalchemy import table as lightweight_table

from policy.store.kept import kept_simulations
from policy.store.model.decisions import DecisionRow
from policy.store.model.environments import ActivationRow
from policy.store.model.sessions import SessionRow
from policy.store.outcomes import OutcomeRow, outcomes_of, outcomes_of_sessions
from policy.store.read.queries import decisions_by_id
from policy.store.record.environments import activations
from policy.store.record.groups import documents_of
from policy.store.record.sessions import sessions
from policy.store.state.loading import cluster_id
from policy.store.state.versions import chunks
from policy.store.tables import DECISION_RULES

_COLUMNS: Final = (
    *("decision_id", "session_id", "observation_id", "cluster", "now_ms", "victim"),
    *("victim_namespace", "victim_owner", "victim_priority", "node", "preemptor"),
    *("preemptor_priority", "filter", "pdb_violating", "evicted", "origin", "confidence"),
    "outcome",
)
_IDS: Final = 500
_VIEW: Final = lightweight_table("v_victims", *(column(name) for name in _COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSubject:
    """Whose evictions are looked for: exactly one of the fields says it."""

    pod: tuple[str, str] | None = None  #: namespace ("" for any) and name
    owner: tuple[str, str] | None = None  #: namespace ("" for any) and `Kind/name` or name
    beginning: tuple[str, str] | None = None  #: namespace ("" for any) and beginning of the name


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One eviction, with what decided it."""

    decision_id: int | None  #: None in a batch session, and where a real scheduler was observed
    session_id: int | None
    observation_id: int | None
    cluster: str
    now_ms: int
    victim: str
    victim_owner: str
    victim_priority: int | None  #: None where the pod was not seen before
    node: str
    preemptor: str
    preemptor_priority: int | None
    filter: str  #: that failed with the victim back in place
    pdb_violating: bool | None
    origin: str
    simulated: bool  #: in the cluster of a kept simulation
    confidence: str
    decision: DecisionRow | None
    session: SessionRow | None  #: the batch session, or the cycle of a pod group
    allowed_by: tuple[str, ...]  #: rules of the decision, or the cycle, that allowed pods
    outcome: str  #: `not-carried-out`, or ""
    #: what showed that it was not
    contradicted_by: tuple[OutcomeRow, ...]
    activation: ActivationRow | None  #: that made its rule set the active one of its environment

    @property
    def made(self) -> DecisionRow | SessionRow | None:
        """What decided it, where that was this program."""
        return self.decision or self.session


def hits(
    connection: Connection,
    cluster: str | None,
    wanted: EvictionSubject,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    limit: int | None = None,
) -> list[Hit]:
    """Evictions of the pod or workload, the newest first; also those that were not carried out.

    Those of kept simulations only where their cluster is named. Raises NotFound.
    """
    c = _VIEW.c
    query = select(_VIEW).where(or_(c.evicted, c.outcome != ""))
    simulated = kept_simulations(connection)
    if cluster is not None:
        cluster_id(connection, cluster)  # an unknown cluster is an error
        query = query.where(c.cluster == cluster)
    elif simulated:
        query = query.where(c.cluster.not_in(sorted(simulated)))
    namespace, name = wanted.pod or wanted.owner or wanted.beginning or ("", "")
    if namespace:
        query = query.where(c.victim_namespace == namespace)
    own = c.victim.endswith(f"/{name}", autoescape=True)
    if wanted.pod:
        query = query.where(c.victim == f"{namespace}/{name}" if namespace else own)
    elif wanted.owner and "/" in name:
        query = query.where(c.victim_owner == name)
    elif wanted.owner:
        query = query.where(c.victim_owner.endswith(f"/{name}", autoescape=True))
    else:
        query = query.where(
            or_(
                c.victim.contains(f"/{name}-", autoescape=True),
                c.victim_owner.contains(f"/{name}-", autoescape=True),
            )
        )
    if since_ms is not None:
        query = query.where(c.now_ms >= since_ms)
    if until_ms is not None:
        query = query.where(c.now_ms < until_ms)
    # Of one instant decisions come first; left to themselves, databases put a null at either end.
    numbers = (c.decision_id, c.session_id, c.observation_id)
    query = query.order_by(
        c.now_ms.desc(), *(number.desc().nulls_last() for number in numbers), c.victim
    )
    if limit is not None:
        query = query.limit(limit)
    found = [row._asdict() for row in connection.execute(query)]
    decided = _decisions(connection, _named(found, "decision_id"))
    held = _sessions(connection, _named(found, "session_id"))
    active = _Activations(connection)
    return [
        _hit(
            row,
            decided.get(row["decision_id"]) or held.get(row["session_id"]),
            active,
            simulated=row["cluster"] in simulated,
        )
        for row in found
    ]


def _named(found: Sequence[Mapping[str, Any]], column: str) -> list[int]:
    """The decisions, or the sessions, that the rows name."""
    return sorted({row[column] for row in found if row[column] is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A decision, a batch session, or the cycle of a pod group."""

    row: DecisionRow | SessionRow
    allowed_by: tuple[str, ...]
    outcomes: Sequence[OutcomeRow]
    #: of a cycle, by pod, what the view has of the victims of decisions only
    victims: Mapping[str, Mapping[str, Any]]


def _decisions(connection: Connection, numbers: Sequence[int]) -> dict[int, _Made]:
    rules, outcomes = _allowing(connection, numbers), outcomes_of(connection, numbers)
    return {
        row.id: _Made(
            row=row,
            allowed_by=rules.get(row.id, ()),
            outcomes=outcomes.get(row.id, ()),
            victims={},
        )
        for row in decisions_by_id(connection, numbers)
    }


def _sessions(connection: Connection, numbers: Sequence[int]) -> dict[int, _Made]:
    """Batch sessions, which record no rules, and cycles, whose document has them."""
    outcomes = outcomes_of_sessions(connection, numbers)
    found = {}
    for some in chunks(numbers, _IDS):
        cycles = documents_of(connection, some)
        for row in sessions(connection, ids=some, hypothetical=None):
            document = cycles.get(row.id, {"rules": (), "victims": ()})
            found[row.id] = _Made(
                row=row,
                allowed_by=tuple(
                    fired["rule"]
                    for fired in document["rules"]
                    if fired["section"] == "groups.victims.eligible" and fired["verdict"] == "allow"
                ),
                outcomes=outcomes.get(row.id, ()),
                victims={
                    victim["pod"]: {name: victim[name] for name in ("filter", "pdb_violating")}
                    for victim in document["victims"]
                },
            )
    return found


def _hit(
    row: Mapping[str, Any], made: _Made | None, active: _Activations, *, simulated: bool
) -> Hit:
    """made: None where a real scheduler was observed."""
    known = {**row, **(made.victims.get(row["victim"], {}) if made else {})}
    values = {k: v for k, v in known.items() if k in Hit.__dataclass_fields__}
    broken = known["pdb_violating"]
    return Hit(
        **{**values, "pdb_violating": None if broken is None else bool(broken)},
        simulated=simulated,
        decision=made.row if made and isinstance(made.row, DecisionRow) else None,
        session=made.row if made and isinstance(made.row, SessionRow) else None,
        contradicted_by=tuple(
            one for one in (made.outcomes if made else ()) if one.pod == row["victim"]
        ),
        allowed_by=made.allowed_by if made else (),
        activation=active.of(made.row) if made else None,
    )


def _allowing(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The rules that allowed victims, by decision."""
    c = DECISION_RULES.c
    found: dict[int, tuple[str, ...]] = {}
    for some in chunks(numbers, _IDS):
        query = (
            select(c.decision_id, c.rule)
            .where(c.decision_id.in_(some))
            .where(c.section == "victims.eligible", c.verdict == "allow")
            .order_by(c.decision_id, c.position)
        )
        for number, rule in connection.execute(query):
            found[number] = (*found.get(number, ()), rule)
    return found


class _Activations:
    """Which activation a decision, or a session, was made under."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, list[ActivationRow]] = {}

    def of(self, made: DecisionRow | SessionRow) -> ActivationRow | None:
        """The newest one of its rule set in its environment that was there when it was recorded."""
        name = made.environment
        if not name:
            return None
        if name not in self._known:
            self._known[name] = activations(self._connection, name)  # the newest first
        return next(
            (
                row
                for row in self._known[name]
                if row.rule_set_digest == made.rule_set_digest and row.at_ms <= made.at_ms
            ),
            None,
        )
