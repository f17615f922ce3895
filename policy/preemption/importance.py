"""Who is kept first: the importance order of pods on each node, as the rule set says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster import times
from policy.cluster.occupancy import NodeOrder
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import START
from policy.preemption.columns import Lazy
from policy.rules.expressions import Columns
from policy.rules.ruleset import ImportanceKey

#: What these read never changes while a pod stays as it is, so an order by them can be kept.
_LASTING: Final = frozenset(
    {
        "victim.name",
        "victim.namespace",
        "victim.key",
        "victim.uid",
        "victim.priority",
        "victim.preemptionPolicy",
        "victim.priorityClassName",
        "victim.labels",
        "victim.annotations",
        "victim.owner",
        "victim.schedulerName",
        "victim.phase",
        "victim.qosClass",
        "victim.cpuMilli",
        "victim.memoryBytes",
        "victim.requests",
        "victim.started",
        "victim.terminating",
        "victim.terminatingByPreemption",
    }
)
_LAST: Final = np.iinfo(np.int64).max


class _Keys:
    """Sort keys of one importance list."""

    def __init__(self, keys: Sequence[ImportanceKey], variables: Lazy | None) -> None:
        self._keys = keys
        self._variables = variables

    def __call__(self, snapshot: Snapshot, rows: Rows) -> list[NDArray[Any]]:
        arrays = []
        for key in self._keys:
            values = self._values(snapshot, key, rows)
            # Bitwise not reverses the order without overflow at the smallest integer.
            arrays.append(~values if key.descending else values)
        arrays.append(snapshot.rank[rows])
        return arrays

    def _values(self, snapshot: Snapshot, key: ImportanceKey, rows: Rows) -> NDArray[np.int64]:
        source = key.expression.source.strip()
        if source == "victim.key":
            return snapshot.rank[rows]
        if source == "victim.startTime":
            start = snapshot.column(START)[rows]
            return np.where(start == times.MISSING, _LAST, start)
        variables = self._variables
        if variables is None:
            from policy.preemption.victims import pod_variables

            variables = pod_variables(snapshot)
        columns = Columns(len(snapshot.pods), variables).take(rows)
        found = key.expression.evaluate(columns)
        return np.broadcast_to(found.order_keys(), (rows.size,))


def importance_order(
    snapshot: Snapshot,
    keys: tuple[ImportanceKey, ...],
    variables: Lazy,
    *,
    tie_order: Mapping[str, int] | None,
) -> NodeOrder:
    """Pods of each node from the most important down; snapshot order ends every order.

    tie_order: place of some pods among pods that are equal but for their key, instead of
    snapshot order (used to look for witnesses of ties).
    """
    if tie_order is not None:
        return _with_ties(snapshot, keys, variables, tie_order)
    lasting = all(
        key.expression.source.strip() == "victim.startTime"
        or (set(key.expression.variables) <= _LASTING and not key.expression.history_needs)
        for key in keys
    )
    # A pod without start time counts as started now: behind every other, unless one of them
    # starts in the future.
    start = snapshot.column(START)
    if lasting and (not start.size or int(start.max()) <= snapshot.now_ms):
        return NodeOrder.of(snapshot, ("importance", keys), _Keys(keys, None))
    return _fresh(snapshot, keys, variables)


def _fresh(snapshot: Snapshot, keys: tuple[ImportanceKey, ...], variables: Lazy) -> NodeOrder:
    def sort_keys(of: Snapshot, rows: Rows) -> list[NDArray[Any]]:
        columns = Columns(len(of.pods), variables).take(rows)
        arrays = []
        for key in keys:
            values = np.broadcast_to(key.expression.evaluate(columns).order_keys(), (rows.size,))
            arrays.append(~values if key.descending else values)
        return [*arrays, of.rank[rows]]

    return NodeOrder.build(snapshot, sort_keys)


def _with_ties(
    snapshot: Snapshot,
    keys: tuple[ImportanceKey, ...],
    variables: Lazy,
    tie_order: Mapping[str, int],
) -> NodeOrder:
    place = snapshot.rank.copy()
    for key, rank in tie_order.items():
        row = snapshot.row(key)
        if row is not None:
            place[row] = rank
    plain = _Keys([k for k in keys if k.expression.source.strip() != "victim.key"], variables)

    def sort_keys(of: Snapshot, rows: Rows) -> list[NDArray[Any]]:
        arrays = plain(of, rows)
        return [*arrays[:-1], place[rows], arrays[-1]]

    return NodeOrder.build(snapshot, sort_keys)
