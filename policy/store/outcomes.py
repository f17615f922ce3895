"""What became of decisions and sessions that a later state of the cluster contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, select

from policy.store.tables import CLUSTERS, DECISION_OUTCOMES, SESSION_OUTCOMES

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
    """A victim that was not evicted, or a decision none of whose victims was.

    It names a decision or a session.
    """

    decision_id: int | None = None
    session_id: int | None = None
    #: among the victims of the decision (-1: the decision as a whole), or the steps of the session
    position: int
    pod: str  #: the victim; of a decision as a whole the preemptor
    outcome: str
    reason: str
    revision: int  #: the state that showed it
    at_ms: int


def contradicted(
    decision: ColumnElement[int],
    position: ColumnElement[int] | int,
    *,
    until: ColumnElement[int] | None = None,
) -> ColumnElement[bool]:
    """Was the eviction (or, at position -1, the decision) not carried out?

    until: a revision; what later ones showed is left out.
    """
    x = DECISION_OUTCOMES.c
    query = select(1).where(x.decision_id == decision, x.position == position)
    return (query if until is None else query.where(x.revision <= until)).exists()


def step_contradicted(
    session: ColumnElement[int],
    position: ColumnElement[int],
    *,
    until: ColumnElement[int] | None = None,
) -> ColumnElement[bool]:
    """Was the eviction of a session's step not carried out? until: as in `contradicted`."""
    x = SESSION_OUTCOMES.c
    query = select(1).where(x.session_id == session, x.position == position)
    return (query if until is None else query.where(x.revision <= until)).exists()


def outcomes_at(connection: Connection, cluster: str, revision: int) -> list[OutcomeRow]:
    """What the state of a revision showed, by decision, then by session."""
    found: list[OutcomeRow] = []
    for table, owner in _OWNERS:
        x = table.c
        query = (
            select(table)
            .join(CLUSTERS, CLUSTERS.c.id == x.cluster_id)
            .where(CLUSTERS.c.name == cluster, x.revision == revision)
            .order_by(x[owner], x.position)
        )
        found += [_row(row) for row in connection.execute(query).mappings()]
    return found


def outcomes_of(
    connection: Connection, decisions: Sequence[int]
) -> dict[int, tuple[OutcomeRow, ...]]:
    """What became of decisions, by number; those that nothing contradicts are left out."""
    return _by_owner(connection, DECISION_OUTCOMES, "decision_id", decisions)


def outcomes_of_sessions(
    connection: Connection, sessions: Sequence[int]
) -> dict[int, tuple[OutcomeRow, ...]]:
    """What became of evictions of sessions, by number; others are left out."""
    return _by_owner(connection, SESSION_OUTCOMES, "session_id", sessions)


def _by_owner(
    connection: Connection, table: Table, owner: str, numbers: Sequence[int]
) -> dict[int, tuple[OutcomeRow, ...]]:
    x = table.c
    found: dict[int, list[OutcomeRow]] = {}
    ids = sorted(numbers)
    for start in range(0, len(ids), _IDS):
        query = select(table).where(x[owner].in_(ids[start : start + _IDS]))
        for row in connection.execute(query.order_by(x[owner], x.position)).mappings():
            found.setdefault(row[owner], []).append(_row(row))
    return {number: tuple(of_one) for number, of_one in found.items()}


def _row(row: RowMapping) -> OutcomeRow:
    values: dict[str, Any] = {n: row[n] for n in OutcomeRow.__dataclass_fields__ if n in row}
    return OutcomeRow(**values)


_OWNERS: Final = ((DECISION_OUTCOMES, "decision_id"), (SESSION_OUTCOMES, "session_id"))


_IDS: Final = 500
