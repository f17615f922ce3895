"""Rows of the few pods that something is true of, found once and then followed through deltas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import ANTI_AFFINITY, Bools

Test = Callable[[Snapshot, Rows], Bools]
"""Is it true of these pods? It reads columns of the pods themselves, and which node they are on."""


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
        places = np.searchsorted(self.rows, delta.rows)
        there = np.zeros(delta.rows.size, dtype=np.bool_)
        if self.rows.size:
            there = self.rows.take(places, mode="clip") == delta.rows
        if not (now != there).any():
            return self
        if not (there & ~now).any():  # mostly pods only come
            new = now & ~there
            return replace(self, rows=np.insert(self.rows, places[new], delta.rows[new]))
        came = delta.rows[now]
        stayed = self.rows[np.isin(self.rows, delta.rows, invert=True)]
        return replace(self, rows=np.union1d(stayed, came))


def nominated(snapshot: Snapshot) -> Rows:
    """Pods that wait for a node of the cluster."""
    return Marked.of(snapshot, _nominated)


def with_anti_affinity(snapshot: Snapshot) -> Rows:
    """Pods on nodes that keep others away by required anti-affinity."""
    return Marked.of(snapshot, _with_anti_affinity)


def _nominated(snapshot: Snapshot, rows: Rows) -> Bools:
    return np.asarray(snapshot.nominated[rows] >= 0)


def _with_anti_affinity(snapshot: Snapshot, rows: Rows) -> Bools:
    return np.asarray((snapshot.column(ANTI_AFFINITY)[rows] >= 0) & (snapshot.node[rows] >= 0))
