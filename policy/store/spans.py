"""Between which times decisions were made, a thousand ids to a row: kept by whoever records them.

Ids grow as decisions are recorded, but not the times that decisions are made for. By these rows a
stretch of time becomes a stretch of ids that leaves none of its decisions out, without a look at
any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, func, select, text

from policy.store.bulk import PendingRows, Row, execute_many
from policy.store.tables import DECISION_SPANS

_IDS: Final = 1000
"""Of a row."""
_KEYS: Final = ("cluster_id", "thousand")
_ENDS: Final = ("earliest_ms", "latest_ms")
_OF_DECISIONS: Final = f"""
    SELECT cluster_id, id / {_IDS}, min(now_ms), max(now_ms) FROM decisions
"""


class Spans:
    """What one transaction adds."""

    def __init__(self) -> None:
        self._ends: dict[Row, tuple[int, int]] = {}

    def decision(self, cluster_id: int, decision_id: int, now_ms: int) -> None:
        """A decision that is about to be written."""
        key = (cluster_id, decision_id // _IDS)
        earliest, latest = self._ends.get(key, (now_ms, now_ms))
        self._ends[key] = (min(earliest, now_ms), max(latest, now_ms))

    def add_to(self, pending: PendingRows) -> None:
        """Have everything written with these."""
        if self._ends:
            rows = [(*key, *ends) for key, ends in self._ends.items()]
            pending.widen_rows(DECISION_SPANS, _KEYS, _ENDS, rows)
            self._ends.clear()


def ids_within(
    connection: Connection, clusters: Sequence[int], *, since_ms: int | None, until_ms: int | None
) -> tuple[int, int] | None:
    """First and last id that decisions of the time may have; None where there are none.

    since_ms: the first instant; until_ms: the first that is no longer meant.
    """
    c = DECISION_SPANS.c
    query = select(func.min(c.thousand), func.max(c.thousand)).where(c.cluster_id.in_(clusters))
    if since_ms is not None:
        query = query.where(c.latest_ms >= since_ms)
    if until_ms is not None:
        query = query.where(c.earliest_ms < until_ms)
    first, last = connection.execute(query).one()
    return None if first is None else (first * _IDS, last * _IDS + _IDS - 1)


def renew(connection: Connection, cluster_id: int, gone: Iterable[int]) -> None:
    """Decisions of a cluster were taken out: what is left of the thousands that they were in."""
    thousands = sorted({decision_id // _IDS for decision_id in gone})
    rows = [(cluster_id, one, one * _IDS, one * _IDS + _IDS) for one in thousands]
    execute_many(
        connection,
        "DELETE FROM decision_spans WHERE cluster_id = ? AND thousand = ?",
        [row[:2] for row in rows],
    )
    execute_many(
        connection,
        f"INSERT INTO decision_spans {_OF_DECISIONS}"
        " WHERE cluster_id = ? AND id >= ? AND id < ? GROUP BY 1, 2",
        [(cluster_id, low, high) for _, _, low, high in rows],
    )


def rebuild(connection: Connection) -> None:
    """Compute all rows again from the decisions."""
    connection.execute(text("DELETE FROM decision_spans"))
    connection.execute(text(f"INSERT INTO decision_spans {_OF_DECISIONS} GROUP BY 1, 2"))


def wrong(connection: Connection) -> Iterator[tuple[int, int]]:
    """Cluster and thousand of the rows that are not what the decisions say."""
    kept = "SELECT cluster_id, thousand, earliest_ms, latest_ms FROM decision_spans"
    found = f"{_OF_DECISIONS} GROUP BY 1, 2"
    differs = f"""
        SELECT cluster_id, thousand FROM (
            SELECT * FROM ({kept} EXCEPT {found}) a
            UNION ALL SELECT * FROM ({found} EXCEPT {kept}) b
        ) q GROUP BY cluster_id, thousand ORDER BY cluster_id, thousand
    """
    yield from map(tuple, connection.execute(text(differs)))
