"""What pods take up on nodes, and pods in order within their nodes: kept up to date by deltas."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster.requests import CURRENT, RequestRules
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import NOWHERE, Ints, positions, widen

_FEW: Final = 8
"""Pods up to which each is counted by itself: that takes less than a call on columns."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Occupancy:
    """Sums over the pods that occupy each node."""

    rules: RequestRules
    requested: Ints  #: (nodes, resources)
    pods: Ints  #: (nodes,) number of pods

    @staticmethod
    def of(snapshot: Snapshot, rules: RequestRules = CURRENT) -> Occupancy:
        def build(snapshot: Snapshot) -> Occupancy:
            requests = snapshot.requests(rules)
            here = np.flatnonzero(snapshot.node >= 0)
            node = snapshot.node[here]
            requested = np.zeros((len(snapshot.nodes), requests.shape[1]), dtype=np.int64)
            np.add.at(requested, node, requests[here])
            return Occupancy(
                rules=rules,
                requested=requested,
                pods=np.bincount(node, minlength=len(snapshot.nodes)).astype(np.int64),
            )

        found = snapshot.derived(("occupancy", rules), build)
        width = len(snapshot.pools.resources)
        if found.requested.shape[1] == width:
            return found
        return Occupancy(rules=rules, requested=widen(found.requested, width), pods=found.pods)

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> Occupancy | None:
        if delta.nodes_changed and after.nodes.names != before.nodes.names:
            return None
        if not delta.rows.size:
            return self
        width = len(after.pools.resources)
        old, new = (widen(s.requests(self.rules), width) for s in (before, after))
        if width == self.requested.shape[1] and np.array_equal(delta.old_node, delta.new_node):
            # A matrix in which nothing changed is the same array.
            there = delta.rows[delta.new_node >= 0]
            if old is new or np.array_equal(old[there], new[there]):
                return self
        requested, pods = widen(self.requested, width).copy(), self.pods.copy()
        if delta.rows.size <= _FEW:
            moves = zip(
                delta.rows.tolist(), delta.old_node.tolist(), delta.new_node.tolist(), strict=True
            )
            for row, left, came in moves:
                if left >= 0:
                    requested[left] -= old[row]
                    pods[left] -= 1
                if came >= 0:
                    requested[came] += new[row]
                    pods[came] += 1
        else:
            leave, come = delta.old_node >= 0, delta.new_node >= 0
            np.subtract.at(requested, delta.old_node[leave], old[delta.rows[leave]])
            np.add.at(requested, delta.new_node[come], new[delta.rows[come]])
            np.subtract.at(pods, delta.old_node[leave], 1)
            np.add.at(pods, delta.new_node[come], 1)
        return Occupancy(rules=self.rules, requested=requested, pods=pods)


SortKeys = Callable[[Snapshot, Rows], Sequence[NDArray[Any]]]
"""Sort keys of the given rows, most significant first; the last one makes the order total."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PodsByNode:
    """Pods grouped by the node they occupy, in a given order within each node.

    Node i holds `rows[offsets[i]:offsets[i + 1]]`.
    """

    keys: SortKeys
    rows: Rows  #: (pods on nodes,)
    offsets: Rows  #: (nodes + 1,)
    #: equal keys of one pod in two snapshots mean equal places; not so where keys are ranks among
    #: values that come and go
    comparable: bool = True
    #: the columns (a row per pod) and objects that the keys are made of, beside `rank`; None where
    #: that is not known
    reads: Callable[[Snapshot], Sequence[object]] | None = None

    @staticmethod
    def of(
        snapshot: Snapshot,
        name: Hashable,
        keys: SortKeys,
        *,
        comparable: bool = True,
        reads: Callable[[Snapshot], Sequence[object]] | None = None,
    ) -> PodsByNode:
        """The order kept under `name`: equal names must mean equal keys."""
        return snapshot.derived(
            ("order", name),
            lambda s: replace(
                PodsByNode.build(s, keys), keys=keys, comparable=comparable, reads=reads
            ),
        )

    @staticmethod
    def build(snapshot: Snapshot, keys: SortKeys) -> PodsByNode:
        """The order computed from nothing, not kept.

        It does not hold its keys: what is remembered of it outlives the snapshot that they read.
        """
        here = np.flatnonzero(snapshot.node >= 0)
        node = snapshot.node[here]
        order = np.lexsort((*reversed(tuple(keys(snapshot, here))), node))
        counts = np.bincount(node, minlength=len(snapshot.nodes)).astype(np.int64)
        return PodsByNode(keys=_not_kept, rows=here[order], offsets=_offsets(counts))

    def on(self, nodes: Rows) -> tuple[Rows, Rows]:
        """Pods on the nodes, node by node, and for each the position of its node in `nodes`.

        nodes: distinct and ascending.
        """
        starts = self.offsets[nodes]
        lengths = self.offsets[nodes + 1] - starts
        group = np.repeat(np.arange(nodes.size), lengths)
        if nodes.size == self.offsets.size - 1:
            return self.rows, group
        return self.rows[positions(starts, lengths)], group

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> PodsByNode | None:
        if delta.nodes_changed and after.nodes.names != before.nodes.names:
            return None
        # A pod that waited before and waits now has no place in the order.
        placed = (delta.old_node >= 0) | (delta.new_node >= 0)
        if not np.count_nonzero(placed):
            return self
        if self.comparable and np.array_equal(delta.old_node, delta.new_node):
            # What is new here waits, and leaves the others' places as they are.
            there = delta.rows[placed]
            if self.reads is not None and all(
                map(partial(_same_in, there), self.reads(before), self.reads(after))
            ):
                return self
            same = zip(self.keys(before, there), self.keys(after, there), strict=True)
            if all(np.array_equal(a, b) for a, b in same):
                return self
        moved = set(delta.rows.tolist())
        offsets = self.offsets.copy()
        pieces: list[Rows] = []
        position = 0
        # Only the nodes on which something moved: the others' pods are copied as they stand.
        for node in sorted({*delta.old_node.tolist(), *delta.new_node.tolist()} - {NOWHERE}):
            start, end = int(self.offsets[node]), int(self.offsets[node + 1])
            stayed = [row for row in self.rows[start:end].tolist() if row not in moved]
            came = delta.rows[delta.new_node == node]
            here = np.concatenate([np.array(stayed, dtype=np.int64), came])
            if came.size and here.size > 1:
                here = here[np.lexsort(tuple(reversed(tuple(self.keys(after, here)))))]
            offsets[node + 1 :] += here.size - (end - start)
            pieces += [self.rows[position:start], here]
            position = end
        pieces.append(self.rows[position:])
        return replace(self, rows=np.concatenate(pieces), offsets=offsets)


def _same_in(rows: Rows, before: object, after: object) -> bool:
    """Has a column, or what a key is made of beside columns, the same values in these rows?"""
    if before is after:  # as of a column in which nothing changed
        return True
    if not isinstance(before, np.ndarray) or not isinstance(after, np.ndarray):
        return False
    return np.array_equal(before[rows], after[rows])


def _not_kept(_snapshot: Snapshot, _rows: Rows) -> Sequence[NDArray[Any]]:
    raise AssertionError("an order that is not kept is not brought up to date")


def _offsets(counts: Ints) -> Rows:
    offsets = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def snapshot_order(snapshot: Snapshot) -> PodsByNode:
    """Pods of each node in snapshot order."""
    return PodsByNode.of(snapshot, "snapshot", lambda s, rows: (s.rank[rows],), reads=lambda _: ())
