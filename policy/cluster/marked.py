"""Rows of the few pods that something is true of, found once and then followed through deltas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import ANTI_AFFINITY, NOWHERE, Bools, positions

Test = Callable[[Snapshot, Rows], Bools]
"""Is it true of these pods? It reads columns of the pods themselves, and which node they are on."""

_FEW: Final = 8
"""Rows up to which each is looked for by itself."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Marked:
    """The pods of which the test is true."""

    test: Test
    rows: Rows  #: ascending

    @staticmethod
    def of(snapshot: Snapshot, test: Test) -> Rows:
        """test: a function of a module, under which the rows are kept."""

        def build(snapshot: Snapshot) -> Marked:
            every = np.arange(len(snapshot.pods))
            return Marked(test=test, rows=np.flatnonzero(test(snapshot, every)))

        return snapshot.derived(("marked", test), build).rows

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> Marked | None:
        if delta.nodes_changed:
            return None
        now = self.test(after, delta.rows)
        if not self.rows.size and not np.count_nonzero(now):
            return self  # as of what is seldom true of any pod
        there = np.zeros(delta.rows.size, dtype=np.bool_)
        if self.rows.size:
            places = self.rows.searchsorted(delta.rows)
            there = self.rows.take(places, mode="clip") == delta.rows
        left, came = delta.rows[there & ~now], delta.rows[now & ~there]
        if not left.size and not came.size:
            return self
        rows = self.rows[_others(self.rows, left)] if left.size else self.rows
        return Marked(test=self.test, rows=_inserted(rows, rows.searchsorted(came), came))


def _others(array: Rows, values: Rows) -> Bools:
    """`numpy.isin`, inverted; for a few values without the work that it makes of them."""
    if values.size > _FEW:
        return np.isin(array, values, invert=True)
    others = np.ones(array.size, dtype=np.bool_)
    for value in values.tolist():
        others &= array != value
    return others


def _inserted(array: Rows, places: Rows, values: Rows) -> Rows:
    """`numpy.insert`; for one value or none without the work that it makes of it."""
    if not places.size:
        return array
    if places.size > 1:
        return np.insert(array, places, values)
    place = int(places[0])
    return np.concatenate([array[:place], values, array[place:]])


def nominated(snapshot: Snapshot) -> Rows:
    """Pods that wait for a node of the cluster."""
    return Marked.of(snapshot, _nominated)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NominatedByNode:
    """Pods that wait for a node of the cluster, node by node."""

    rows: Rows
    nodes: Rows  #: parallel to `rows`, ascending

    @staticmethod
    def of(snapshot: Snapshot) -> NominatedByNode:
        def build(snapshot: Snapshot) -> NominatedByNode:
            rows = nominated(snapshot)
            nodes = snapshot.nominated[rows].astype(np.int64)
            order = np.argsort(nodes, kind="stable")
            return NominatedByNode(rows=rows[order], nodes=nodes[order])

        return snapshot.derived("nominated-by-node", build)

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> NominatedByNode | None:
        if delta.nodes_changed:
            return None
        known = delta.rows.size - delta.added
        old = [*before.nominated[delta.rows[:known]].tolist(), *[NOWHERE] * delta.added]
        new = after.nominated[delta.rows].tolist()
        moved = [i for i, node in enumerate(new) if node != old[i]]
        if not moved:
            return self
        rows, nodes = self.rows, self.nodes
        left = [i for i in moved if old[i] != NOWHERE]
        if left:
            stays = _others(rows, delta.rows[left])
            rows, nodes = rows[stays], nodes[stays]
        came = [i for i in moved if new[i] != NOWHERE]
        came.sort(key=new.__getitem__)
        at = [new[i] for i in came]
        places = nodes.searchsorted(at, side="right")
        return NominatedByNode(
            rows=_inserted(rows, places, delta.rows[came]),
            nodes=_inserted(nodes, places, np.array(at, dtype=np.int64)),
        )

    def on_one(self, node: int) -> Rows:
        """Those of one node."""
        return self.rows[self.nodes.searchsorted(node) : self.nodes.searchsorted(node, "right")]

    def on(self, nodes: Rows) -> Rows:
        """Those of some nodes (distinct and ascending), node by node."""
        first = self.nodes.searchsorted(nodes)
        counts = self.nodes.searchsorted(nodes, side="right") - first
        return self.rows[positions(first, counts)]


def with_anti_affinity(snapshot: Snapshot) -> Rows:
    """Pods on nodes that keep others away by required anti-affinity."""
    return Marked.of(snapshot, _with_anti_affinity)


def _nominated(snapshot: Snapshot, rows: Rows) -> Bools:
    return np.asarray(snapshot.nominated[rows] >= 0)


def _with_anti_affinity(snapshot: Snapshot, rows: Rows) -> Bools:
    return np.asarray((snapshot.column(ANTI_AFFINITY)[rows] >= 0) & (snapshot.node[rows] >= 0))
