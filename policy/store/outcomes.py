"""What became of decisions that a later state of the cluster contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, select

from policy.store.tables import CLUSTERS, DECISION_OUTCOMES

WHOLE: Final = -1
"""Position of the row about a decision as a whole; others have that of their victim."""


class OutcomeKind(StrEnum):
    """What became of it. Values are stored and never renamed."""

    NOT_CARRIED_OUT = "not-carried-out"


class OutcomeReason(StrEnum):
    """What the state of the cluster showed. Values are stored and never renamed."""

    VICTIM_STILL_RUNS = "victim-still-runs"  # it is there and is not being deleted
    VICTIM_STILL_THERE = "victim-still-there"  # nothing showed its deletion in its grace period
    PREEMPTOR_ELSEWHERE = "preemptor-elsewhere"  # it was placed on another node
    PREEMPTOR_GONE = "preemptor-gone"  # it was removed, or has finished
    NO_VICTIM_LEFT = "no-victim-left"  # every pod that was to leave is still there


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """A victim that was not evicted, or a decision none of whose victims was."""

    decision_id: int
    position: int  #: among the victims of the decision; -1 for the decision as a whole
    pod: str  #: the victim; of a decision as a whole the preemptor
    outcome: str
    reason: str
    revision: int  #: the state that showed it
    at_ms: int


def contradicted(
    decision: ColumnElement[int], position: ColumnElement[int] | int, *, until: int | None = None
) -> ColumnElement[bool]:
    """Was the eviction (or, at position -1, the decision) not carried out?

    until: what later revisions showed is left out.
    """
    x = DECISION_OUTCOMES.c
    query = select(1).where(x.decision_id == decision, x.position == position)
    return (query if until is None else query.where(x.revision <= until)).exists()


def outcomes_at(connection: Connection, cluster: str, revision: int) -> list[OutcomeRow]:
    """What the state of a revision showed, by decision."""
    x = DECISION_OUTCOMES.c
    query = (
        select(*(x[name] for name in OutcomeRow.__dataclass_fields__))
        .join(CLUSTERS, CLUSTERS.c.id == x.cluster_id)
        .where(CLUSTERS.c.name == cluster, x.revision == revision)
        .order_by(x.decision_id, x.position)
    )
    return [OutcomeRow(**row) for row in connection.execute(query).mappings()]


def outcomes_of(
    connection: Connection, decisions: Sequence[int]
) -> dict[int, tuple[OutcomeRow, ...]]:
    """What became of decisions, by number; those that nothing contradicts are left out."""
    x = DECISION_OUTCOMES.c
    names = list(OutcomeRow.__dataclass_fields__)
    found: dict[int, list[OutcomeRow]] = {}
    ids = sorted(decisions)
    for start in range(0, len(ids), _IDS):
        query = select(DECISION_OUTCOMES).where(x.decision_id.in_(ids[start : start + _IDS]))
        for row in connection.execute(query.order_by(x.decision_id, x.position)).mappings():
            values: dict[str, Any] = {name: row[name] for name in names}
            found.setdefault(row["decision_id"], []).append(OutcomeRow(**values))
    return {number: tuple(of_one) for number, of_one in found.items()}


_IDS: Final = 500
