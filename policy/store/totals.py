"""Totals of the record: kept by whoever writes it, and computed again from the rows.

What a transaction changes is summed up in memory and added with one statement per table. Decisions,
of which there are many, are counted from the rows that are about to be written; what else changes
totals (sessions, observations, outcomes, prunings) reads its rows by the same queries that compute
all totals again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Table, text

from policy.store import bulk, spans
from policy.store.bulk import Row
from policy.store.spans import Spans
from policy.store.tables import (
    CLUSTERS,
    DECISION_FILTERS,
    DECISION_RULES,
    DECISION_SPANS,
    DECISION_TOTALS,
    DECISIONS,
    EVICTED_WORKLOADS,
    EVICTION_TOTALS,
    FILTER_TOTALS,
    HOUR_TOTALS,
    PAIR_TOTALS,
    PREEMPTOR_TOTALS,
    PRIORITY_TOTALS,
    RULE_TOTALS,
    TOTALS,
    VICTIMS,
)
from policy.store.tables.base import column_names
from policy.store.tables.totals import ALL_DAYS, UNKNOWN_PRIORITY

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_IDS: Final = 500
_MANY: Final = 50_000
"""Keys that are written before more are summed up."""


class Owner(StrEnum):
    """What rows that count belong to; the value is the column of the views that names it."""

    DECISION = "decision_id"
    SESSION = "session_id"
    OBSERVATION = "observation_id"


# --- the same out of the rows --------------------------------------------------------------------

_PREEMPTED: Final = """
    (d.outcome = 'preempt' AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
     AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                     WHERE x.decision_id = d.id AND x.position = -1))
"""


def _of_decisions(of: Table) -> str:
    return {
        EVICTION_TOTALS: f"""
            SELECT v.cluster_id, v.now_ms / {_DAY_MS}, v.namespace, v.owner,
                   v.preemptor_namespace, d.preemptor_priority, v.priority, d.origin,
                   count(*), sum(v.run_seconds), sum(CASE WHEN v.pdb_violating THEN 1 ELSE 0 END)
            FROM victims v
            JOIN decisions d ON d.id = v.decision_id
            WHERE v.evicted AND NOT EXISTS (
                SELECT 1 FROM decision_outcomes x
                WHERE x.decision_id = v.decision_id AND x.position = v.position
            )
        """,
        DECISION_TOTALS: f"""
            SELECT d.cluster_id, d.now_ms / {_DAY_MS}, d.rule_set_id, d.preemptor_namespace,
                   d.outcome, d.decided_by, d.origin, {_PREEMPTED},
                   count(*), sum(d.victim_count), sum(d.pdb_violations)
            FROM decisions d
            WHERE NOT d.hypothetical
        """,
        RULE_TOTALS: f"""
            SELECT f.cluster_id, d.now_ms / {_DAY_MS}, f.rule_set_id, f.section, f.rule,
                   f.verdict, d.origin, count(*)
            FROM decision_rules f
            JOIN decisions d ON d.id = f.decision_id
            WHERE NOT d.hypothetical
        """,
        FILTER_TOTALS: f"""
            SELECT d.cluster_id, d.now_ms / {_DAY_MS}, d.preemptor_namespace, f.filter, f.phase,
                   d.origin, count(DISTINCT d.id), sum(f.node_count)
            FROM decision_filters f
            JOIN decisions d ON d.id = f.decision_id
            WHERE d.node IS NULL AND f.code <> 0 AND NOT d.hypothetical
        """,
        PREEMPTOR_TOTALS: f"""
            SELECT d.cluster_id, d.preemptor, d.preemptor_priority, d.outcome, d.origin,
                   {_PREEMPTED}, count(*), sum(d.victim_count), sum(d.pdb_violations)
            FROM decisions d
            WHERE NOT d.hypothetical
        """,
        HOUR_TOTALS: f"""
            SELECT d.cluster_id, d.now_ms / {_HOUR_MS}, d.origin,
                   count(*), sum(d.victim_count), sum(d.pdb_violations)
            FROM decisions d
            WHERE NOT d.hypothetical AND {_PREEMPTED}
        """,
    }[of]


def _of_others(of: Table, owner: Owner) -> str | None:
    """Of sessions or observations; None where they have no part in a table."""
    day, hour = f"v.now_ms / {_DAY_MS}", f"v.now_ms / {_HOUR_MS}"
    preemptor = f"coalesce(v.preemptor_priority, {UNKNOWN_PRIORITY})"
    if of is EVICTION_TOTALS:
        return f"""
            SELECT c.id, {day}, v.victim_namespace, v.victim_owner, v.preemptor_namespace,
                   {preemptor}, coalesce(v.victim_priority, {UNKNOWN_PRIORITY}), v.origin,
                   count(*), sum(v.run_seconds), 0
            FROM v_victims v
            JOIN clusters c ON c.name = v.cluster
            WHERE v.evicted AND v.{owner} IS NOT NULL
        """
    if of is PREEMPTOR_TOTALS:
        return f"""
            SELECT c.id, v.preemptor, {preemptor}, 'preempt', v.origin, c.id IS NOT NULL,
                   count(*), sum(v.victim_count), 0
            FROM v_preemptions v
            JOIN clusters c ON c.name = v.cluster
            WHERE v.{owner} IS NOT NULL AND v.confidence <> 'possible'
        """
    if of is HOUR_TOTALS:
        return f"""
            SELECT c.id, {hour}, v.origin, count(*), sum(v.victim_count), 0
            FROM v_preemptions v
            JOIN clusters c ON c.name = v.cluster
            WHERE v.{owner} IS NOT NULL AND v.confidence <> 'possible'
        """
    return None


def _queries(of: Table, ids: Sequence[int] | None = None) -> Iterator[tuple[Owner, str]]:
    """What counts in a table, by owner; ids: of the owners, None for all of them."""
    for owner in Owner:
        query = _of_decisions(of) if owner is Owner.DECISION else _of_others(of, owner)
        if query is None:
            continue
        if ids is not None:
            column = f"v.{owner}"
            if owner is Owner.DECISION:
                column = "v.decision_id" if of is EVICTION_TOTALS else "d.id"
            query += f" AND {column} IN ({', '.join(map(str, ids))})"
        numbers = ", ".join(str(n + 1) for n in range(len(_names(of).keys)))
        yield owner, f"{query} GROUP BY {numbers}"


_WORKLOAD: Final = "workload_id"
"""Column of a table of totals in place of the names of a workload, by which everything is counted
here: only what is kept has numbers."""
_WORKLOAD_NAMES: Final = ("namespace", "owner")
_OF_NAMES: Final = bulk.Numbered(
    column=_WORKLOAD, table=EVICTED_WORKLOADS, names=("cluster_id", *_WORKLOAD_NAMES)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    kept: tuple[str, ...]  #: columns of the primary key
    keys: tuple[str, ...]  #: the same, with names for a number
    sums: tuple[str, ...]

    @property
    def every(self) -> tuple[str, ...]:
        return (*self.keys, *self.sums)

    @property
    def numbered(self) -> bulk.Numbered | None:
        return _OF_NAMES if _WORKLOAD in self.kept else None


@cache
def _names(of: Table) -> _Names:
    kept = tuple(of.primary_key.columns.keys())
    keys: list[str] = []
    for name in kept:
        keys += _WORKLOAD_NAMES if name == _WORKLOAD else (name,)
    sums = tuple(c.name for c in of.columns if c.name not in kept)
    return _Names(kept=kept, keys=tuple(keys), sums=sums)


_EVER: Final = {PAIR_TOTALS: EVICTION_TOTALS, PRIORITY_TOTALS: EVICTION_TOTALS}
"""Tables over all days together of what another table has by the day; others have rows of their own
for that, with the day `ALL_DAYS`."""
_COUNTED: Final = tuple(of for of in TOTALS if of not in _EVER)
"""Those that are counted: what is over all days follows from what is by the day."""


def _has_all_days(of: Table) -> bool:
    return "day" in _names(of).keys and of not in _EVER.values()


def _computed(of: Table) -> str:
    """A WITH clause whose `counted` has all rows of a table, some of them in several pieces."""
    counted = _EVER.get(of, of)
    pieces = " UNION ALL ".join(f"SELECT * FROM ({query}) q" for _, query in _queries(counted))
    columns = _names(of).every
    found = (
        f"WITH daily ({', '.join(_names(counted).every)}) AS ({pieces}),"
        f" counted AS (SELECT {', '.join(columns)} FROM daily"
    )
    if _has_all_days(of):
        others = ", ".join(str(ALL_DAYS) if name == "day" else name for name in columns)
        found += f" UNION ALL SELECT {others} FROM daily"
    return f"{found})"


def rebuild(connection: Connection) -> None:
    """Compute all totals again from the rows."""
    if connection.dialect.name == "postgresql":
        # Who is writing now waits, and adds to what was computed without it.
        # In the order in which they are written.
        tables = ", ".join(of.name for of in (DECISION_SPANS, EVICTED_WORKLOADS, *TOTALS))
        connection.execute(text(f"LOCK TABLE {tables} IN EXCLUSIVE MODE"))
    spans.rebuild(connection)
    connection.execute(text(_ADD_WORKLOADS))
    for of in TOTALS:
        names = _names(of)
        keys = ", ".join(names.keys)
        sums = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in names.sums)
        found = f"SELECT {keys}, {sums} FROM counted GROUP BY {keys}"
        kept = (*names.kept, *names.sums)
        connection.execute(text(f"DELETE FROM {of.name}"))
        if names.numbered is not None:
            columns = ", ".join("w.id" if name == _WORKLOAD else f"f.{name}" for name in kept)
            found = f"SELECT {columns} FROM ({found}) f LEFT JOIN evicted_workloads w ON {_SAME}"
        # Postgres leaves them where they are put: the rows of a day are read together.
        order = ", ".join(str(n + 1) for n in range(len(names.kept)))
        counted = _computed(of) if of in _COUNTED else _of_daily(of)
        connection.execute(
            text(f"INSERT INTO {of.name} ({', '.join(kept)}) {counted} {found} ORDER BY {order}")
        )
    connection.execute(text(_DROP_WORKLOADS))


_SAME: Final = " AND ".join(f"w.{name} = f.{name}" for name in _OF_NAMES.names)
_ADD_WORKLOADS: Final = f"""
    INSERT INTO evicted_workloads (cluster_id, namespace, owner)
    SELECT f.cluster_id, f.namespace, f.owner
    FROM (
        SELECT v.cluster_id, v.namespace, v.owner FROM victims v WHERE v.evicted
        UNION
        SELECT c.id, v.victim_namespace, v.victim_owner
        FROM v_victims v
        JOIN clusters c ON c.name = v.cluster
        WHERE v.evicted AND v.decision_id IS NULL
    ) f
    WHERE NOT EXISTS (SELECT 1 FROM evicted_workloads w WHERE {_SAME})
    ORDER BY f.cluster_id, f.namespace, f.owner
"""
"""Those of all rows that may count; who has a number keeps it."""
_DROP_WORKLOADS: Final = """
    DELETE FROM evicted_workloads
    WHERE NOT EXISTS (SELECT 1 FROM eviction_totals t WHERE t.workload_id = evicted_workloads.id)
"""


def _kept(of: Table) -> str:
    """The rows of a table, as they are counted: with names."""
    names = _names(of)
    if names.numbered is None:
        return of.name
    columns = ", ".join(f"{'w' if name in _WORKLOAD_NAMES else 't'}.{name}" for name in names.every)
    join = f"w.id = t.{_WORKLOAD} AND w.cluster_id = t.cluster_id"
    return f"(SELECT {columns} FROM {of.name} t LEFT JOIN evicted_workloads w ON {join})"


def _of_daily(of: Table) -> str:
    """The same clause as of `_computed`, out of the table by the day, which was computed before."""
    columns = ", ".join(_names(of).every)
    return f"WITH counted AS (SELECT {columns} FROM {_kept(_EVER[of])} k)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongTotal:
    """A row of a table of totals that is not what its rows add up to."""

    table: str
    cluster: str  #: "" for none that there is
    key: str  #: `day 20000, namespace shop, ...`


def wrong(connection: Connection) -> Iterator[WrongTotal]:
    """Totals that are not what the rows of the record add up to."""
    clusters = {row.id: row.name for row in connection.execute(CLUSTERS.select())}
    for of in TOTALS:
        names = _names(of)
        keys = ", ".join(names.keys)
        kept = ", ".join((*names.keys, *(f"-{name}" for name in names.sums)))
        differs = " OR ".join(f"sum({name}) <> 0" for name in names.sums)
        query = (
            f"{_computed(of)} SELECT {keys} FROM"
            f" (SELECT * FROM counted UNION ALL SELECT {kept} FROM {_kept(of)} k) b"
            f" GROUP BY {keys} HAVING {differs} ORDER BY {keys}"
        )
        for cluster, *others in connection.execute(text(query)):
            key = ", ".join(f"{n} {v}" for n, v in zip(names.keys[1:], others, strict=True))
            yield WrongTotal(table=of.name, cluster=clusters.get(cluster, ""), key=key)
    for cluster, thousand in spans.wrong(connection):
        of_cluster = clusters.get(cluster, "")
        yield WrongTotal(table=DECISION_SPANS.name, cluster=of_cluster, key=f"thousand {thousand}")


# --- what a transaction changes ------------------------------------------------------------------


def _reader(of: Table, *columns: str) -> Any:
    """What reads the columns out of a whole row."""
    names = column_names(of)
    return itemgetter(*(names.index(column) for column in columns))


_DECISION: Final = _reader(
    DECISIONS,
    *("id", "cluster_id", "now_ms", "hypothetical"),
    *("rule_set_id", "preemptor", "preemptor_namespace", "preemptor_priority"),
    *("outcome", "decided_by", "origin", "revision", "node", "victim_count", "pdb_violations"),
)
_VICTIM: Final = _reader(
    VICTIMS, "evicted", "namespace", "owner", "priority", "run_seconds", "pdb_violating"
)
_RULE: Final = _reader(DECISION_RULES, "section", "rule", "verdict")
_FILTER: Final = _reader(DECISION_FILTERS, "filter", "phase", "code", "node_count")


class Totals:
    """What one transaction adds to the totals."""

    def __init__(self) -> None:
        self._sums: dict[Table, dict[Row, list[int]]] = {of: {} for of in TOTALS}
        self._spans = Spans()

    def decision(self, rows: Iterable[tuple[Table, Sequence[Row]]]) -> None:
        """Count a decision that is about to be written; rows: all of its rows, by table."""
        by_table = dict(rows)
        (row,) = by_table[DECISIONS]
        decision_id, cluster, now_ms, hypothetical, *key = _DECISION(row)
        rule_set, preemptor, namespace, priority, outcome, decided_by, origin, *rest = key
        revision, node, victims, broken = rest
        self._spans.decision(cluster, decision_id, now_ms)
        if hypothetical:
            return
        day = now_ms // _DAY_MS
        preempted = outcome == "preempt" and (origin != "extender" or revision is not None)
        sums = (1, victims, broken)
        self._add(
            DECISION_TOTALS,
            (cluster, day, rule_set, namespace, outcome, decided_by, origin, preempted),
            sums,
        )
        self._add(
            PREEMPTOR_TOTALS, (cluster, preemptor, priority, outcome, origin, preempted), sums
        )
        if preempted:
            self._add(HOUR_TOTALS, (cluster, now_ms // _HOUR_MS, origin), sums)
        for one in by_table[DECISION_RULES]:
            self._add(RULE_TOTALS, (cluster, day, rule_set, *_RULE(one), origin), (1,))
        if node is None:
            nodes: dict[tuple[str, str], int] = {}
            for one in by_table[DECISION_FILTERS]:
                name, phase, code, count = _FILTER(one)
                if code:
                    nodes[name, phase] = nodes.get((name, phase), 0) + count
            for (name, phase), count in nodes.items():
                key = (cluster, day, namespace, name, phase, origin)
                self._add(FILTER_TOTALS, key, (1, count))
        for one in by_table[VICTIMS]:
            evicted, of, owner, its_priority, run_seconds, violating = _VICTIM(one)
            if evicted:
                whose = (cluster, day, of, owner, namespace, priority, its_priority, origin)
                self._add(EVICTION_TOTALS, whose, (1, run_seconds, int(violating)))

    def take(
        self, connection: Connection, owner: Owner, ids: Sequence[int], *, sign: int = 1
    ) -> None:
        """Count what is in the database of some owners; sign: -1 to take it away."""
        for start in range(0, len(ids), _IDS):
            for of in _COUNTED:
                for whose, query in _queries(of, ids[start : start + _IDS]):
                    if whose is owner:
                        self._take(connection, of, query, sign)
            if sum(map(len, self._sums.values())) > _MANY:
                self.write(connection)

    def _take(self, connection: Connection, of: Table, query: str, sign: int) -> None:
        names = _names(of)
        count = len(names.keys)
        for row in connection.execute(text(query)):
            self._add(of, tuple(row[:count]), tuple(sign * int(value) for value in row[count:]))

    def _add(self, of: Table, key: Row, sums: tuple[int, ...]) -> None:
        _add_to(self._sums[of], key, sums)

    def write(self, connection: Connection) -> None:
        """Add everything to the tables. Raises SQLAlchemy's errors."""
        pending = bulk.PendingRows()
        self.add_to(pending)
        pending.write(connection)

    def add_to(self, pending: bulk.PendingRows) -> None:
        """Have everything written with these."""
        self._spans.add_to(pending)
        for of, counted in _EVER.items():
            _add_ever(of, self._sums[of], counted, self._sums[counted])
        for of, sums in self._sums.items():
            if not sums:
                continue
            names = _names(of)
            if _has_all_days(of):
                _add_all_days(sums)
            changed = [(*key, *values) for key, values in sums.items() if any(values)]
            if changed:
                pending.add_to_rows(of, names.kept, names.sums, changed, numbered=names.numbered)
                count = len(names.keys)
                gone = [row[:count] for row in changed if row[count] < 0]
                if gone:
                    keys = " AND ".join(
                        _IS_WORKLOAD if name == _WORKLOAD else f"{name} = ?" for name in names.kept
                    )
                    statement = f"DELETE FROM {of.name} WHERE {keys} AND {names.sums[0]} = 0"
                    pending.execute_last(statement, gone)
            sums.clear()


_IS_WORKLOAD: Final = (
    f"{_WORKLOAD} IN (SELECT w.id FROM evicted_workloads w WHERE w.namespace = ? AND w.owner = ?)"
)
"""Of any cluster: the row's own is a key of its own."""


def _add_to(sums: dict[Row, list[int]], key: Row, values: Sequence[int]) -> None:
    known = sums.get(key)
    if known is None:
        sums[key] = list(values)
    else:
        for place, value in enumerate(values):
            known[place] += value


def _add_all_days(sums: dict[Row, list[int]]) -> None:
    """The sums of all days together, of those of each day: once, before they are written."""
    for (cluster, _, *others), values in list(sums.items()):
        _add_to(sums, (cluster, ALL_DAYS, *others), values)


def _add_ever(
    of: Table, sums: dict[Row, list[int]], counted: Table, daily: dict[Row, list[int]]
) -> None:
    """The sums of a table over all days, of those of another by the day: likewise."""
    key, values = _picks(of, counted)
    for row, known in daily.items():
        _add_to(sums, key(row), values(known))


@cache
def _picks(of: Table, counted: Table) -> tuple[Any, Any]:
    """What picks the key of one table out of another's, and its sums out of the other's."""
    names, others = _names(of), _names(counted)
    return (
        itemgetter(*map(others.keys.index, names.keys)),
        itemgetter(*map(others.sums.index, names.sums)),
    )
