"""The rule set's filters, in order, for one incoming pod: one load, one verdict per node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.cluster.marked import NominatedByNode, nominated
from policy.cluster.tables import PRIORITY, SCHEDULER, Bools, Ints, distinct, taken
from policy.filters.base import (
    SUCCESS,
    UNRESOLVABLE,
    Codes,
    CountsPods,
    Filter,
    FilterInfo,
    Incoming,
    Narrowing,
    Nodes,
    Parameters,
    PlainFilter,
    TopologyFilter,
    TopologyObstacle,
)
from policy.lazy import once

StatusOfNode: TypeAlias = tuple[int, str, tuple[str, ...]]
"""Code, name of the filter that decided ("" where every one passes), reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredFilter:
    """A filter of the rule set with its parameters."""

    info: FilterInfo
    parameters: Parameters


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Judged:
    """Statuses of some nodes: code and index into `statuses` (filter name, reasons) per node."""

    codes: Codes  #: (n,)
    index: NDArray[np.int64]  #: (n,)
    statuses: tuple[StatusOfNode, ...]


_PASSED: Final[StatusOfNode] = (SUCCESS, "", ())
_FEW: Final = 256
"""Nodes up to which nominated pods are looked for on these alone."""
NONE_JUDGED: Final = Judged(
    codes=np.zeros(0, dtype=np.int8), index=np.zeros(0, dtype=np.int64), statuses=(_PASSED,)
)
"""What is found of no nodes."""


class Pipeline:
    """Filters built for one pod, their loads side by side in one matrix."""

    def __init__(
        self,
        incoming: Incoming,
        uses: Sequence[ConfiguredFilter],
        *,
        built: Iterable[tuple[str, Filter]] = (),
    ) -> None:
        """built: name and filter of further ones, made for the pod already."""
        self.incoming = incoming
        self._filters: list[tuple[str, Filter, slice]] = []
        width = 0
        made = ((use.info.name, use.info.build(incoming, use.parameters)) for use in uses)
        for name, one in chain(made, built):
            if one is not None:
                self._filters.append((name, one, slice(width, width + one.width)))
                width += one.width
        self.width = width
        self._loaded = [(built, columns) for _, built, columns in self._filters if built.width]

    @once
    def local(self) -> bool:
        """Is every filter `Filter.local`?"""
        return all(built.local for _, built, _ in self._filters)

    @once
    def plain(self) -> bool:
        """Can the pod be judged on one node in plain numbers (`load_on`, `status`)?"""
        return len(self._in_plain_numbers) == len(self._filters)

    @once
    def _in_plain_numbers(self) -> list[tuple[str, PlainFilter, slice]]:
        return [(n, built, at) for n, built, at in self._filters if isinstance(built, PlainFilter)]

    def load_on(self, node: int) -> list[int]:
        """`base` of one node, in plain numbers."""
        return [n for _, built, _ in self._in_plain_numbers for n in built.load(node)]

    def status(self, load: Sequence[int], node: int) -> StatusOfNode:
        """Status of one node under its load by the first failing filter, in plain numbers."""
        for name, built, columns in self._in_plain_numbers:
            code, reasons = built.status(load[columns], node)
            if code != SUCCESS:
                return code, name, reasons
        return _PASSED

    @property
    def names(self) -> tuple[str, ...]:
        """The filters that have something to say about the pod."""
        return tuple(name for name, _, _ in self._filters)

    @once
    def base(self) -> Ints:
        """Load of every node with all its pods; shape (nodes, width)."""
        if len(self._loaded) == 1:
            return self._loaded[0][0].base()
        # Column by column in memory, as all that is added to it and compared with it.
        load = np.zeros((self.width, len(self.incoming.snapshot.nodes)), dtype=np.int64).T
        for built, columns in self._loaded:
            load[:, columns] = built.base()
        return load

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        """What each pod adds to the load of its node; shape (rows, width)."""
        if len(self._loaded) == 1:
            return self._loaded[0][0].demand(rows, nodes)
        demand = np.empty((self.width, rows.size), dtype=np.int64).T
        for built, columns in self._loaded:
            demand[:, columns] = built.demand(rows, nodes)
        return demand

    def without(self, load: Ints, removed: Ints) -> Ints:
        """The load after pods with this demand in sum were taken away."""
        if len(self._loaded) == 1:
            return self._loaded[0][0].without(load, removed)
        left = np.empty_like(load)
        for built, columns in self._loaded:
            left[:, columns] = built.without(load[:, columns], removed[:, columns])
        return left

    @property
    def parts(self) -> Sequence[tuple[str, Filter, slice]]:
        """Name, filter and columns of the load, of every filter that was built."""
        return self._filters

    @once
    def _nominated_pods(self) -> tuple[Ints, Ints]:
        """`_counting` of all nominated pods."""
        return self._counting(nominated(self.incoming.snapshot))

    def _counting(self, rows: Ints) -> tuple[Ints, Ints]:
        """`_no_less_important`, without those of other schedulers, which each of them ignores."""
        rows, unknown = self._no_less_important(rows)
        scheduler = self.incoming.snapshot.column(SCHEDULER)
        return rows[scheduler[rows] == scheduler[self.incoming.row]], unknown

    def _no_less_important(self, rows: Ints) -> tuple[Ints, Ints]:
        """Nominated pods that count on the nodes that they wait for, the incoming pod not.

        Of pods in flight (the second ones) nothing is known but that there is one, of priority 0.
        """
        incoming = self.incoming
        unknown = rows[:0]
        if incoming.in_flight is not None:
            flying = np.isin(rows, incoming.in_flight.pods)
            if incoming.priority <= 0:
                unknown = rows[flying & (rows != incoming.row)]
            rows = rows[~flying]
        important = incoming.snapshot.column(PRIORITY)[rows] >= incoming.priority
        return rows[important & (rows != incoming.row)], unknown

    def room_kept_for(self, node: int, leaving: Ints, *, by_all: bool) -> Ints:
        """The nominated pods but for which the pod would pass on a node without pods `leaving`.

        by_all: of every scheduler, as of `promised`.
        """
        where = np.array([node], dtype=np.int64)
        counting = self._no_less_important if by_all else self._counting
        rows, _ = counting(NominatedByNode.of(self.incoming.snapshot).on(where))
        added = self._added_to(where, counting)
        if added is None or not added.any():
            return where[:0]
        gone = self.demand(leaving, where.repeat(leaving.size)).sum(axis=0)[None, :]
        passes = self.passes_under(self.without(self.base[where], gone), where).all()
        return rows if passes else where[:0]

    @once
    def _nominated(self) -> Ints | None:
        """Load that nominated pods add to each node, (nodes, width); None where there are none."""
        rows, unknown = self._nominated_pods
        if not rows.size and not unknown.size:
            return None
        nominated = self.incoming.snapshot.nominated
        every = len(self.incoming.snapshot.nodes)
        return self._added(every, rows, nominated[rows], unknown, nominated[unknown])

    def _added(
        self, size: int, rows: Ints, places: NDArray[Any], unknown: Ints, flying: NDArray[Any]
    ) -> Ints:
        """Load that pods add to so many nodes, (size, width), each in its place among them."""
        added = np.zeros((self.width, size), dtype=np.int64).T
        nodes = self.incoming.snapshot.nominated[rows].astype(np.int64)
        np.add.at(added, places, self.demand(rows, nodes))
        for _, built, columns in self._filters if unknown.size else ():
            if isinstance(built, CountsPods):
                np.add.at(added[:, columns.start + built.pod_column], flying, 1)
        return added

    def nominated(self, nodes: Nodes) -> Ints | None:
        """Load that pods nominated to each of the nodes add, where they are not less important.

        Shape (n, width); None where no such pod exists.
        """
        if nodes.size > _FEW:
            return None if self._nominated is None else taken(self._nominated, nodes)
        return self._added_to(nodes, self._counting)

    def promised(self, nodes: Nodes) -> Ints | None:
        """`nominated` with pods of every scheduler."""
        return self._added_to(nodes, self._no_less_important)

    def _added_to(self, nodes: Nodes, counting: Callable[[Ints], tuple[Ints, Ints]]) -> Ints | None:
        """Load that those of the pods nominated to each of the nodes add which count."""
        # Where many wait in a large cluster, few of them do for a few nodes.
        snapshot = self.incoming.snapshot
        ascending = np.array(sorted(set(nodes.tolist())), dtype=np.int64)
        here = NominatedByNode.of(snapshot).on(ascending)
        rows, unknown = counting(here) if here.size else (here, here)
        if not rows.size and not unknown.size:
            return None
        at, flying = (ascending.searchsorted(snapshot.nominated[r]) for r in (rows, unknown))
        added = self._added(ascending.size, rows, at, unknown, flying)
        return taken(added, ascending.searchsorted(nodes))

    def nominated_to(self, node: int) -> list[int]:
        """`nominated` of one node in plain numbers, where `plain`; empty where it adds nothing."""
        incoming, snapshot = self.incoming, self.incoming.snapshot
        if incoming.in_flight is not None:
            added = self.nominated(np.array([node], dtype=np.int64))
            return [] if added is None or not added.any() else added[0].tolist()
        here: list[int] = NominatedByNode.of(snapshot).on_one(node).tolist()
        if here:
            priority, scheduler = snapshot.column(PRIORITY).item, snapshot.column(SCHEDULER).item
            own = scheduler(incoming.row)
            here = [
                row
                for row in here
                if row != incoming.row
                and priority(row) >= incoming.priority
                and scheduler(row) == own
            ]
        if not here:
            return []
        plain = self._in_plain_numbers
        demands = ([n for _, built, _ in plain for n in built.demand_of(row)] for row in here)
        sums = list(map(sum, zip(*demands, strict=True)))
        return sums if any(sums) else []

    def has_nominated(self, nodes: Nodes) -> Bools:
        """Nodes whose load nominated pods add to; shape (n,)."""
        added = self.nominated(nodes)
        return np.zeros(nodes.size, dtype=np.bool_) if added is None else _any(added)

    def with_nominated(self) -> Nodes:
        """One of the nodes whose load nominated pods add to, where there are any."""
        snapshot = self.incoming.snapshot
        waiting = nominated(snapshot)
        if not waiting.size:
            return waiting
        # Mostly the first one that waits counts, and a filter counts pods.
        first = snapshot.nominated[np.concatenate(self._counting(waiting[:1]))]
        if first.size and any(hasattr(built, "pod_column") for built, _ in self._loaded):
            return first.astype(np.int64)
        some = np.unique(snapshot.nominated[np.concatenate(self._nominated_pods)]).astype(np.int64)
        return some[self.has_nominated(some)][:1]

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        """Does the pod pass every filter, with and without the nominated pods? Shape (n,)."""
        passes = self.passes_under(load, nodes)
        added = self.nominated(nodes)
        if added is not None:
            twice = (passes & _any(added)).nonzero()[0]
            if twice.size:
                passes[twice] = self.passes_under(load[twice] + added[twice], nodes[twice])
        return passes

    def passes_beside(self, added: Ints, load: Ints, nodes: Nodes) -> Bools:
        """`passes`; added: what `nominated` says of the nodes, which is something on each."""
        passes = self.passes_under(load + added, nodes)
        # In plain numbers whoever passes under more load passes under less. An affinity may be to
        # nominated pods alone, which may never come.
        return passes if self.plain else passes & self.passes_under(load, nodes)

    def passes_under(self, load: Ints, nodes: Nodes) -> Bools:
        """Does the pod pass every filter under this load, and no other? Shape (n,)."""
        passes = np.ones(nodes.size, dtype=np.bool_)
        for _, built, columns in self._filters:
            passes &= built.passes(load[:, columns], nodes)
        return passes

    def ceiling(self, nodes: Nodes) -> Ints | None:
        """Loads up to which the pod passes, with nominated pods in mind; shape (n, width).

        None where some filter has no such limits.
        """
        found = [built.ceiling(nodes) for _, built, _ in self._filters]
        if len(found) == 1:
            limits = found[0]
        else:
            limits = np.empty((self.width, nodes.size), dtype=np.int64).T
            for (_, _, columns), of_filter in zip(self._filters, found, strict=True):
                if of_filter is None:
                    return None
                limits[:, columns] = of_filter
        added = None if limits is None else self.nominated(nodes)
        return limits if limits is None or added is None else limits - added

    def judge(self, load: Ints, nodes: Nodes) -> Judged:
        """Status of each node: the first failing filter decides, nominated pods counted first."""
        if not nodes.size:
            return NONE_JUDGED
        added = self.nominated(nodes)
        if added is None or not added.any():
            return self._judge(load, nodes)
        found = self._judge(load + added, nodes)
        passed = (found.codes == SUCCESS).nonzero()[0]
        if not passed.size:
            return found
        alone = self._judge(taken(load, passed), nodes.take(passed))
        codes, index = found.codes.copy(), found.index.copy()
        codes[passed], index[passed] = alone.codes, alone.index + len(found.statuses)
        return Judged(codes=codes, index=index, statuses=found.statuses + alone.statuses)

    def _judge(self, load: Ints, nodes: Nodes) -> Judged:
        codes = np.zeros(nodes.size, dtype=np.int8)
        index = np.zeros(nodes.size, dtype=np.int64)
        statuses: dict[StatusOfNode, int] = {_PASSED: 0}
        undecided = np.ones(nodes.size, dtype=np.bool_)
        for name, built, columns in self._filters:
            verdicts = built.judge(load[:, columns], nodes)
            failed = undecided & (verdicts.codes != SUCCESS)
            where = failed.nonzero()[0]
            if not where.size:
                continue
            found_codes = verdicts.codes.take(where)
            codes[where] = found_codes
            texts = len(verdicts.texts)
            pairs = found_codes.astype(np.int64) * texts + verdicts.reasons.take(where)
            found, inverse = distinct(pairs, below=(UNRESOLVABLE + 1) * texts)
            ids = []
            for pair in found.tolist():
                code, reason = divmod(pair, texts)
                status = (code, name, verdicts.texts[reason])
                ids.append(statuses.setdefault(status, len(statuses)))
            index[where] = np.array(ids, dtype=np.int64).take(inverse)
            if where.size == nodes.size:
                break
            undecided &= ~failed
        return Judged(codes=codes, index=index, statuses=tuple(statuses))

    def obstacles(self, name: str, node: int, staying: Bools) -> list[TopologyObstacle]:
        """Why a filter fails a node on which only the pods `staying` are left; shape (pods,).

        Empty for a filter that does not look at other pods' topology.
        """
        return [
            obstacle
            for known, built, _ in self._filters
            if known == name and isinstance(built, TopologyFilter)
            for obstacle in built.obstacles(node, staying)
        ]


def _any(load: Ints) -> Bools:
    """Nodes with any load; shape (n,)."""
    found = np.zeros(load.shape[0], dtype=np.bool_)
    for column in range(load.shape[1]):
        found |= load[:, column] != 0
    return found


def narrowing(incoming: Incoming, uses: Sequence[ConfiguredFilter]) -> Narrowing | None:
    """What the filters say before nodes are looked at; the first that rejects or fails decides."""
    names: Narrowing | None = None
    for use in uses:
        found = use.info.narrow(incoming, use.parameters)
        if found is None:
            continue
        found = replace(found, by=use.info.name)
        if found.error or found.rejected:
            return found
        names = found
    return names
