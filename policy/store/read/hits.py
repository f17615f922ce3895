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
from policy.store.outcomes import OutcomeRow, outcomes_of, outcomes_of_sessions
from policy.store.read.queries import decisions_by_id
from policy.store.record.environments import activations
from policy.store.state.loading import cluster_id
from policy.store.tables import DECISION_RULES

_COLUMNS: Final = (
    *("decision_id", "session_id", "observation_id", "cluster", "now_ms", "victim"),
    *("victim_namespace", "victim_owner", "victim_priority", "node", "preemptor"),
    *("preemptor_priority", "filter", "pdb_violating", "evicted", "origin", "confidence"),
    "outcome",
)
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
    victim_priority: int
    node: str
    preemptor: str
    preemptor_priority: int
    filter: str  #: that failed with the victim back in place
    pdb_violating: bool | None
    origin: str
    simulated: bool  #: in the cluster of a kept simulation
    confidence: str
    decision: DecisionRow | None
    allowed_by: tuple[str, ...]  #: rules of `victims.eligible` that allowed pods in the decision
    outcome: str  #: `not-carried-out`, or ""
    #: what showed that it was not
    contradicted_by: tuple[OutcomeRow, ...]
    activation: ActivationRow | None  #: that made its rule set the active one of its environment


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
    simulated = frozenset(kept_simulations(connection).values())
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
    query = query.order_by(c.now_ms.desc(), c.decision_id.desc(), c.victim)
    if limit is not None:
        query = query.limit(limit)
    found = [row._asdict() for row in connection.execute(query)]
    numbers = _named(found, "decision_id")
    decided = {row.id: row for row in decisions_by_id(connection, numbers)}
    rules = _allowing(connection, numbers)
    of_decisions = outcomes_of(connection, numbers)
    of_sessions = outcomes_of_sessions(connection, _named(found, "session_id"))
    active = _Activations(connection)
    return [
        _hit(
            row,
            decided.get(row["decision_id"]),
            rules,
            of_decisions.get(row["decision_id"]) or of_sessions.get(row["session_id"], ()),
            active,
            simulated=row["cluster"] in simulated,
        )
        for row in found
    ]


def _named(found: Sequence[Mapping[str, Any]], column: str) -> list[int]:
    """The decisions, or the sessions, that the rows name."""
    return sorted({row[column] for row in found if row[column] is not None})


def _hit(
    row: Mapping[str, Any],
    decision: DecisionRow | None,
    rules: Mapping[int, tuple[str, ...]],
    outcomes: Sequence[OutcomeRow],
    active: _Activations,
    *,
    simulated: bool,
) -> Hit:
    values = {k: v for k, v in row.items() if k in Hit.__dataclass_fields__}
    broken = row["pdb_violating"]
    return Hit(
        **{**values, "pdb_violating": None if broken is None else bool(broken)},
        simulated=simulated,
        decision=decision,
        contradicted_by=tuple(one for one in outcomes if one.pod == row["victim"]),
        allowed_by=rules.get(row["decision_id"], ()),
        activation=None if decision is None else active.of(decision),
    )


def _allowing(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The rules that allowed victims, by decision."""
    c = DECISION_RULES.c
    found: dict[int, tuple[str, ...]] = {}
    for start in range(0, len(numbers), 500):
        query = (
            select(c.decision_id, c.rule)
            .where(c.decision_id.in_(numbers[start : start + 500]))
            .where(c.section == "victims.eligible", c.verdict == "allow")
            .order_by(c.decision_id, c.position)
        )
        for number, rule in connection.execute(query):
            found[number] = (*found.get(number, ()), rule)
    return found


class _Activations:
    """Which activation a decision was made under."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, list[ActivationRow]] = {}

    def of(self, decision: DecisionRow) -> ActivationRow | None:
        """The newest one of its rule set in its environment that was there when it was recorded."""
        name = decision.environment
        if not name:
            return None
        if name not in self._known:
            self._known[name] = activations(self._connection, name)  # the newest first
        return next(
            (
                row
                for row in self._known[name]
                if row.rule_set_digest == decision.rule_set_digest and row.at_ms <= decision.at_ms
            ),
            None,
        )
