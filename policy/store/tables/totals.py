"""Totals that the writer keeps: counts and sums of the record, by day and by what people ask for.

Every row follows from other rows (`policy.store.totals`), so no ledger entry covers one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, PrimaryKeyConstraint, Table, UniqueConstraint

from policy.store.tables.base import boolean, identity, int64, millis, table, text

ALL_DAYS: Final = -1
"""`day` of the rows over all days together, in tables that have such rows."""

UNKNOWN_PRIORITY: Final = -(2**63)
"""In place of a priority that is unknown: part of a key may not be null."""


def _totals(
    name: str,
    *columns: Column[int] | Column[str] | Column[bool],
    keys: int,
    also: tuple[Index, ...] = (),
) -> Table:
    """keys: how many of the columns, with the cluster, name a row; the others are summed up."""
    every = (int64("cluster_id", ForeignKey("clusters.id")), *columns)
    key = PrimaryKeyConstraint(*(column.name for column in every[: keys + 1]))
    return table(name, *every, key, *also, clustered=True)


EVICTED_WORKLOADS: Final = table(
    "evicted_workloads",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("namespace"),
    text("owner"),
    UniqueConstraint("namespace", "owner", "cluster_id"),
)
"""The workloads that pods left of. By a number their evictions are summed up in half of the time
that it takes by names, and each row of them is a third as long."""

EVICTION_TOTALS: Final = _totals(
    "eviction_totals",
    int64("day"),
    int64("workload_id"),
    text("preemptor_namespace"),
    int64("preemptor_priority"),
    int64("priority"),
    text("origin"),
    int64("evictions"),
    int64("run_seconds"),
    int64("pdb_violations"),
    keys=6,
    # The days on which a workload was hit.
    also=(Index(None, "workload_id", "preemptor_namespace", "day"),),
)
"""Pods that left for others, by the day: by decisions, batch sessions and real schedulers.

Over all days together they are in the two tables that follow, which name less: each is a fraction
of what these rows would be, and is read whole.
"""

PAIR_TOTALS: Final = _totals(
    "pair_totals",
    int64("workload_id"),
    text("preemptor_namespace"),
    int64("evictions"),
    int64("run_seconds"),
    int64("pdb_violations"),
    keys=2,
)
"""Pods that left, over all days: whose, and for the pods of which namespace."""

PRIORITY_TOTALS: Final = _totals(
    "priority_totals",
    text("namespace"),
    int64("preemptor_priority"),
    int64("priority"),
    int64("evictions"),
    int64("run_seconds"),
    keys=3,
)
"""Pods that left, over all days: of which namespace, and for whose priority."""

DECISION_TOTALS: Final = _totals(
    "decision_totals",
    int64("day"),
    int64("rule_set_id"),
    text("preemptor_namespace"),
    text("outcome"),
    text("decided_by"),
    text("origin"),
    boolean("preempted"),
    int64("decisions"),
    int64("victims"),
    int64("pdb_violations"),
    keys=7,
)
"""Decisions; `preempted` are those that the views of preemptions show."""

RULE_TOTALS: Final = _totals(
    "rule_totals",
    int64("day"),
    int64("rule_set_id"),
    text("section"),
    text("rule"),
    text("verdict"),
    text("origin"),
    int64("decisions"),
    keys=6,
)
"""How often rules decided."""

FILTER_TOTALS: Final = _totals(
    "filter_totals",
    int64("day"),
    text("preemptor_namespace"),
    text("filter"),
    text("phase"),
    text("origin"),
    int64("decisions"),
    int64("nodes"),
    keys=5,
)
"""What filters kept pods from, in decisions that found no node."""

PREEMPTOR_TOTALS: Final = _totals(
    "preemptor_totals",
    text("preemptor"),
    int64("preemptor_priority"),
    text("outcome"),
    text("origin"),
    boolean("preempted"),
    int64("decisions"),
    int64("victims"),
    int64("pdb_violations"),
    keys=5,
)
"""Pods that were decided for, over all days; with preemptions by sessions and real schedulers."""

HOUR_TOTALS: Final = _totals(
    "hour_totals",
    int64("hour"),
    text("origin"),
    int64("preemptions"),
    int64("victims"),
    int64("pdb_violations"),
    keys=2,
)
"""Preemptions by the hour: of decisions, sessions and real schedulers."""

DECISION_SPANS: Final = _totals(
    "decision_spans",
    int64("thousand"),
    millis("earliest_ms"),
    millis("latest_ms"),
    keys=1,
)
"""Between which times the decisions of a thousand ids were made (`policy.store.spans`)."""

TOTALS: Final[tuple[Table, ...]] = (
    EVICTION_TOTALS,
    PAIR_TOTALS,
    PRIORITY_TOTALS,
    DECISION_TOTALS,
    RULE_TOTALS,
    FILTER_TOTALS,
    PREEMPTOR_TOTALS,
    HOUR_TOTALS,
)
