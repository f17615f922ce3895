"""Running totals: who comes back, on all nodes at once, where filters only set limits to loads.

Used wherever every filter of the rule set has a `ceiling` for the preemptor and demands are
non-negative numbers whose sums int64 holds; otherwise pods are put back one by one (`victims`).

Why it is right. Putting a pod back never lowers a load. So on each node the pods up to the first
one that exceeds a limit all stay, and the totals, which only grow along the reprieve order, find
that one by binary search: no pod is put back one by one. Behind it a smaller pod may still come
back. What is left of the limits only shrinks, so a pod that does not fit into it now never will;
those that do are again the beginning of an order, and again stay up to the first that exceeds what
is left. This repeats until no pod fits any more: as many rounds as the unluckiest node has pods
that fit at the start of one and do not fit at its end, mostly one.

The totals say nothing of the preemptor: pods that wait together and may evict the same pods share
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.cluster.snapshot import Rows
from policy.cluster.tables import Ints
from policy.preemption.segments import SAFE, starts_of, sums_safely


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunningTotals:
    """Demand of the potential victims of some nodes, added up in the order of the reprieve."""

    demand: Ints  #: (rows, width) node by node
    counts: Rows  #: (nodes,)
    first: Rows  #: (nodes,) position of each node's first pod
    before: Ints  #: (nodes, width) total of all pods of the nodes before
    leaving: Ints  #: (nodes, width) total of the node's own pods; wraps where it is not `limited`
    totals: Ints  #: (rows, width) total up to and with each pod, over all nodes
    limited: bool  #: totals never fall, and int64 holds them

    @classmethod
    def of(cls, demand: Ints, counts: Rows) -> RunningTotals:
        """demand: (rows, width), column by column in memory; counts: (nodes,) pods of each."""
        rows, width = demand.shape
        first = starts_of(counts)
        ends = first + counts
        totals = np.zeros((width, rows + 1), dtype=np.int64)
        for column in range(width):
            np.cumsum(demand[:, column], out=totals[column, 1:])
        before = totals[:, first]
        return cls(
            demand=demand,
            counts=counts,
            first=first,
            before=before.T,
            leaving=(totals[:, ends] - before).T,
            totals=totals[:, 1:].T,
            limited=not rows
            or all(
                int(demand[:, column].min()) >= 0 and sums_safely(demand[:, column])
                for column in range(width)
            ),
        )

    def evicted(self, slack: Ints, active: Rows) -> Rows:
        """Positions of the pods that cannot stay, ascending; only where it is `limited`.

        active: nodes on which the preemptor fits when all of their pods are gone; slack: (active,
        width) how much more load each of them bears then, not negative.
        """
        counts, first = self.counts.take(active), self.first.take(active)
        binding = []
        for column in range(slack.shape[1]):
            room = slack[:, column]
            # A load that stays within its limits with every pod back in place stands in no way.
            if (self.leaving[:, column].take(active) > room).any():
                total = self.totals[:, column]
                # More room than all pods want together is as good as that.
                limit = self.before[:, column].take(active) + np.minimum(room, SAFE)
                binding.append((self.demand[:, column], total, limit))
        stay = _staying(first, counts, [(total, limit) for _, total, limit in binding])
        rest = counts - stay
        some = np.flatnonzero(rest)
        rest, next_ = rest.take(some), (first + stay).take(some)
        behind = np.arange(int(rest.sum())) + np.repeat(next_ - starts_of(rest), rest)
        group = np.repeat(np.arange(some.size), rest)
        wanted, left = [], []
        for demand, total, limit in binding:
            wanted.append(demand.take(behind))
            left.append(limit.take(some) - total.take(next_) + demand.take(next_))
        return np.delete(behind, _returning(wanted, left, group))


def _staying(first: Rows, counts: Rows, limits: list[tuple[Ints, Ints]]) -> Rows:
    """How many of its pods each node bears, from the first one on; shape (nodes,).

    first, counts: (nodes,) where the pods of each begin, and how many there are; limits: per load
    the totals (all pods,) and up to which total each node bears it (nodes,).
    """
    stay = np.zeros(counts.size, dtype=np.int64)
    if not counts.size:
        return stay
    # Bit by bit from the highest, for all nodes at once.
    for bit in reversed(range(int(counts.max()).bit_length())):
        more = stay + (1 << bit)
        there = more <= counts
        last = first + np.minimum(more, counts) - 1
        for total, limit in limits:
            # A node without pods reads another's total: it is not `there`.
            there &= total.take(last, mode="clip") <= limit
        stay += there.astype(np.int64) << bit
    return stay


def _returning(wanted: list[Ints], left: list[Ints], group: Rows) -> Rows:
    """Positions of the pods that come back into what is left of each node's limits.

    wanted: per load the demand of the pods in reprieve order, node by node; left: per load what
    each node has left (it is used up); group: (pods,) ascending, the node of each.
    """
    back = [np.zeros(0, dtype=np.int64)]
    pods = np.arange(group.size)
    again = np.ones(pods.size, dtype=np.bool_)
    while True:
        for want, room in zip(wanted, left, strict=True):
            again &= want <= room.take(group)
        fits = np.flatnonzero(again)
        if not fits.size:
            return np.concatenate(back)
        pods, group = pods.take(fits), group.take(fits)
        wanted = [want.take(fits) for want in wanted]
        heads = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        lengths = np.diff(np.append(heads, pods.size))
        nodes = group.take(heads)
        again = np.zeros(pods.size, dtype=np.bool_)
        for want, room in zip(wanted, left, strict=True):
            total = np.cumsum(want)
            limit = total.take(heads) - want.take(heads) + room.take(nodes)
            again |= total > np.repeat(limit, lengths)
        back.append(pods[~again])
        if not again.any():
            return np.concatenate(back)
        for want, room in zip(wanted, left, strict=True):
            room[nodes] -= np.add.reduceat(np.where(again, 0, want), heads)
