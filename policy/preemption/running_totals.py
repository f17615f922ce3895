"""Running totals: who comes back, on all nodes at once, where filters only set limits to loads.

Used wherever every filter of the rule set has a `ceiling` for the preemptor and demands are
non-negative numbers whose sums int64 holds; otherwise pods are put back one by one (`victims`).

Why it is right. Putting a pod back never lowers a load. So on each node the pods up to the first
one that exceeds a limit all stay, and the totals, which only grow along the reprieve order, tell
all of them from those behind in one comparison: no pod is put back one by one. Behind it a smaller
pod may still come back. What is left of the limits only shrinks, so a pod that does not fit into it
now never will; those that do are again the beginning of an order, and again stay up to the first
that exceeds what is left. This repeats until no pod fits any more: as many rounds as the unluckiest
node has pods that fit at the start of one and do not fit at its end, mostly one; the last few pods
are gone through one by one.

The totals say nothing of the preemptor: pods that wait together and may evict the same pods share
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.cluster.tables import Bools, Ints
from policy.preemption.segments import SAFE, starts_of, sums_safely


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunningTotals:
    """Demand of the potential victims of some nodes, added up in the order of the reprieve."""

    nodes: int  #: how many there are
    group: Rows  #: (rows,) ascending, the node of each pod
    leaving: Ints  #: (nodes, width) total of the node's own pods; wraps where it is not `limited`
    limited: bool  #: totals never fall, and int64 holds them
    loads: tuple[_Load, ...]  #: (width,)

    @classmethod
    def of(cls, demand: Ints, counts: Rows, *, kept: bool = False) -> RunningTotals:
        """demand: (rows, width), column by column in memory; counts: (nodes,) pods of each.

        kept: the totals are read again and again; making them may take a little longer.
        """
        rows, width = demand.shape
        first = starts_of(counts)
        ends = first + counts
        totals = np.zeros((width, rows + 1), dtype=np.int64)
        for column in range(width):
            demand[:, column].cumsum(out=totals[column, 1:])
        before = totals[:, first]
        limited = not rows or all(
            int(demand[:, column].min()) >= 0 and sums_safely(demand[:, column])
            for column in range(width)
        )
        loads = (
            _Load(demand=demand[:, i], totals=totals[i, 1:], before=before[i], shift=0)
            for i in range(width)
        )
        return cls(
            nodes=counts.size,
            group=np.arange(counts.size).repeat(counts),
            leaving=(totals[:, ends] - before).T,
            limited=limited,
            loads=tuple(load.narrowed(counts) if kept and limited else load for load in loads),
        )

    def evicted(self, slack: Ints, active: Rows) -> tuple[Rows, Rows]:
        """Positions of the pods that cannot stay, ascending, and the node of each.

        Only where it is `limited`. active: nodes on which the preemptor fits when all of their
        pods are gone; slack: (active, width) how much more load each of them bears then, not
        negative.
        """
        binding: list[tuple[_Load, _Numbers]] = []
        over = np.zeros(self.group.size, dtype=np.bool_)
        for column, load in enumerate(self.loads):
            room = slack[:, column]
            # A load that stays within its limits with every pod back in place stands in no way.
            leaving = self.leaving[:, column]
            if active.size < self.nodes:
                leaving = leaving.take(active)
            if (leaving > room).any():
                limit = load.limit(room, active)
                if active.size < self.nodes:
                    # Where the preemptor does not fit no pod is put back, and none is listed.
                    largest = _INT64_MAX if limit.dtype == np.int64 else _INT32_MAX
                    some, limit = limit, np.full(self.nodes, largest, limit.dtype)
                    limit[active] = some
                over |= load.totals > limit.take(self.group)
                binding.append((load, limit))
        behind = over.nonzero()[0]
        if not behind.size:
            return behind, behind
        group = self.group.take(behind)
        heads = _heads(group)
        next_, nodes = behind.take(heads), group.take(heads)
        wanted, left = [], []
        for load, limit in binding:
            wanted.append(load.demand.take(behind))
            room = np.zeros(self.nodes, dtype=np.int64)
            room[nodes] = limit.take(nodes) - load.totals.take(next_) + load.demand.take(next_)
            left.append(room)
        gone = np.ones(behind.size, dtype=np.bool_)
        gone[_returning(wanted, left, group)] = False
        at = gone.nonzero()[0]
        return behind.take(at), group.take(at)


FEW: Final = 64
"""Pods that are gone through one by one sooner than in another round."""

_Numbers: TypeAlias = NDArray[Any]
"""int32, or int64."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Load:
    """The running totals of one load, in units of two to the power of `shift`."""

    demand: _Numbers  #: (rows,) node by node
    totals: _Numbers  #: (rows,) up to and with each pod, of all nodes or of its own
    before: Ints | None  #: (nodes,) totals of the nodes before; None where each begins anew
    shift: int

    def narrowed(self, counts: Rows) -> _Load:
        """In int32, where that holds them: mostly they are looked up far from each other, and half
        as much memory is read then.

        Amounts of memory are whole mebibytes mostly, which leaves few of their bits.
        """
        assert self.before is not None
        used = int(np.bitwise_or.reduce(self.demand)) if self.demand.size else 0
        shift = max(0, (used & -used).bit_length() - 1)
        totals = (self.totals - self.before.repeat(counts)) >> shift
        if totals.size and int(totals.max()) > _INT32_MAX:
            return self
        demand = (self.demand >> shift).astype(np.int32)
        return _Load(demand=demand, totals=totals.astype(np.int32), before=None, shift=shift)

    def limit(self, room: Ints, active: Rows) -> _Numbers:
        """Up to which total each of some nodes bears the load; room: (active,) not negative."""
        if self.before is None:
            # What is over after the shift is less than any pod wants.
            limit: _Numbers = np.minimum(room >> self.shift, _INT32_MAX).astype(np.int32)
            return limit
        # More room than all pods want together is as good as that.
        return np.asarray(self.before.take(active) + np.minimum(room, SAFE))


def _heads(group: Rows) -> Rows:
    """Positions of the first pod of each node that has any; group: ascending, at least one."""
    new = np.ones(group.size, dtype=np.bool_)
    np.not_equal(group[1:], group[:-1], out=new[1:])
    return new.nonzero()[0]


def _returning(wanted: list[_Numbers], left: list[Ints], group: Rows) -> Rows:
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
        fits = again.nonzero()[0]
        if not fits.size:
            return np.concatenate(back)
        pods, group = pods.take(fits), group.take(fits)
        wanted = [want.take(fits) for want in wanted]
        if fits.size <= FEW:
            return np.concatenate([*back, pods[_one_by_one(wanted, left, group)]])
        heads = _heads(group)
        nodes = group.take(heads)
        again = np.zeros(pods.size, dtype=np.bool_)
        for want, room in zip(wanted, left, strict=True):
            total = want.cumsum()
            limit = room.copy()
            limit[nodes] += total.take(heads) - want.take(heads)
            again |= total > limit.take(group)
        back.append(pods[~again])
        if not again.any():
            return np.concatenate(back)
        for want, room in zip(wanted, left, strict=True):
            room[nodes] -= np.add.reduceat(np.where(again, 0, want), heads)


def _one_by_one(wanted: list[_Numbers], left: list[Ints], group: Rows) -> Bools:
    """Which of a few pods come back, each in its turn; arguments as above, `left` stays."""
    room = {node: [of_load.item(node) for of_load in left] for node in set(group.tolist())}
    back = []
    for node, *wants in zip(group.tolist(), *(want.tolist() for want in wanted), strict=True):
        rest = [there - want for there, want in zip(room[node], wants, strict=True)]
        back.append(min(rest, default=0) >= 0)
        if back[-1]:
            room[node] = rest
    return np.array(back, dtype=np.bool_)
