"""A few nodes, each gone through in plain numbers: the reprieve step by step, dry runs, verdicts.

A call on columns takes about a microsecond however few numbers it is given, and a dry run makes two
hundred of them; going through the thirty pods of one node one by one takes less. So what concerns
one node, or a few, is found here.

When it is used. For the steps of the reprieve on the chosen node, which every decision tells
(`attempts`), and for the nodes on which something happened since a class was asked for last
(`classes`). A pod with a filter that has no plain form (`Pipeline.plain`), rules of
`victims.forbid`, groups that leave as one and loads of which int64 does not hold every sum take the
columns (`victims`).

Why it is right. It does what `victims` says of the k-th pod of a node, with one node and no other:
all potential victims leave; who would fail a filter in the order of the reprieve does not come
back. Loads are the same numbers, and far enough from the end of int64 that sums do not wrap there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Final

import numpy as np

from policy.cluster.snapshot import Rows
from policy.filters.base import SUCCESS
from policy.filters.pipeline import Pipeline, StatusOfNode
from policy.preemption.importance import Importance
from policy.preemption.segments import SAFE
from policy.preemption.victims import Attempt, DryRun, steps
from policy.rules.ruleset import NodesWithoutVictims, ReprieveGroup

if TYPE_CHECKING:
    from policy.preemption.context import DecisionContext

NO_LOAD: Final = np.zeros((0, 0), dtype=np.int64)
"""Of a dry run that tells nothing of loads."""

FEW: Final = 4
"""Nodes up to which each is gone through by itself."""


def goes_through(context: DecisionContext) -> bool:
    """Does the pod take this path?"""
    return (
        context.pipeline.plain and not context.rules.victims.forbid and context.whole_groups is None
    )


class NodeLoad:
    """What a node bears, in plain numbers, and what the filters say of it."""

    def __init__(self, pipeline: Pipeline, node: int) -> None:
        self._pipeline, self._node = pipeline, node
        self.load = pipeline.load_on(node)
        #: what the pods add that are nominated to the node and count there
        self._added: list[int] = pipeline.nominated_to(node)

    @property
    def safe(self) -> bool:
        """Are loads and their sums numbers that int64 holds?"""
        return all(0 <= n < SAFE for n in (*self.load, *self._added))

    def status(self) -> StatusOfNode:
        """`Pipeline.judge` of the node: nominated pods are counted first."""
        status = self._pipeline.status
        if self._added:
            both = [a + b for a, b in zip(self.load, self._added, strict=True)]
            found = status(both, self._node)
            if found[0] != SUCCESS:
                return found
        return status(self.load, self._node)


@dataclass(slots=True, eq=False, kw_only=True)
class OneNode:
    """A node with its potential victims taken away, in the order of the reprieve."""

    left: NodeLoad  #: what is on the node
    rows: list[int]  #: pods
    places: Sequence[int]  #: parallel to `rows`: from the most important pod down
    violating: list[bool]
    demand: list[list[int]]

    @staticmethod
    def of(context: DecisionContext, node: int) -> OneNode | None:
        """None where some sum is larger than int64 holds."""
        pipeline, order = context.pipeline, context.order
        here = order.rows[order.offsets[node] : order.offsets[node + 1]]
        here = here[context.allowed.pods[here]]
        rows: list[int] = here.tolist()
        violating: list[bool] = context.violating[here].tolist()
        demand: list[list[int]] = pipeline.demand(here, np.full(len(rows), node)).tolist()
        loads = list(zip(*demand, strict=True))
        leaving = [sum(of_load) for of_load in loads]
        left = NodeLoad(pipeline, node)
        if not left.safe or min(map(min, loads), default=0) < 0:
            return None
        if max(leaving, default=0) >= SAFE:
            return None
        if rows:
            left.load = [a - b for a, b in zip(left.load, leaving, strict=True)]
        places = _reprieve_order(violating, context.rules.victims.reprieve)
        if not isinstance(places, range):
            rows = [rows[i] for i in places]
            violating = [violating[i] for i in places]
            demand = [demand[i] for i in places]
        return OneNode(left=left, rows=rows, places=places, violating=violating, demand=demand)

    def evicted(self) -> list[int]:
        """Positions of the pods that cannot come back; only where the preemptor fits now."""
        left = self.left
        gone = []
        for i, demand in enumerate(self.demand):
            before = left.load
            left.load = list(map(add, before, demand))
            if left.status()[0] != SUCCESS:
                left.load = before
                gone.append(i)
        return gone

    def listed_again(self, evicted: list[int], importance: Importance) -> list[int]:
        """The positions of victims by importance, where the reprieve went by another order."""
        by_importance = [self.places[i] for i in evicted]
        if sorted(by_importance) == by_importance:
            return evicted
        rows = np.array([self.rows[i] for i in evicted], dtype=np.int64)
        return [evicted[i] for i in importance.listed(rows, np.zeros_like(rows)).tolist()]

    def attempts(self, victims: Collection[int]) -> list[Attempt]:
        """`victims.attempts`; victims: rows."""
        left = self.left
        met: list[StatusOfNode | None] = []
        for row, demand in zip(self.rows, self.demand, strict=True):
            before = left.load
            left.load = list(map(add, before, demand))
            if row in victims:
                met.append(left.status())
                left.load = before
            else:
                met.append(None)
        return steps(self.rows, self.violating, met)


def judge(pipeline: Pipeline, nodes: Rows) -> list[StatusOfNode] | None:
    """`Pipeline.judge` of a few nodes as they are; None where that takes the columns."""
    if nodes.size > FEW or not pipeline.plain:
        return None
    found = [NodeLoad(pipeline, node) for node in nodes.tolist()]
    return [node.status() for node in found] if all(node.safe for node in found) else None


def dry_run(context: DecisionContext, nodes: Rows) -> tuple[DryRun, list[StatusOfNode]] | None:
    """`victims.dry_run` of a few nodes (ascending), and why each of `DryRun.failed` failed.

    Without potential victims and loads, which this takes the place of. None where it takes the
    columns.
    """
    if nodes.size > FEW or not goes_through(context):
        return None
    rules = context.rules.victims
    nodes_of: dict[str, list[int]] = {name: [] for name in _OUTCOMES}
    victims, offsets, needed, broken = [], [0], [], []
    violating: list[bool] = []
    statuses: list[StatusOfNode] = []
    for node in nodes.tolist():
        here = OneNode.of(context, node)
        if here is None:
            return None
        if not here.rows and rules.nodes_without_victims is not NodesWithoutVictims.TRIED:
            nodes_of["without_victims"].append(node)
            continue
        status = here.left.status()
        if status[0] != SUCCESS:
            nodes_of["failed"].append(node)
            statuses.append(status)
            continue
        evicted = here.evicted()
        if not evicted and rules.nodes_without_victims is NodesWithoutVictims.SKIPPED:
            nodes_of["needless"].append(node)
        elif rules.max_victims is not None and len(evicted) > rules.max_victims:
            nodes_of["over_limit"].append(node)
            needed.append(len(evicted))
        else:
            if rules.sorted_again:
                evicted = here.listed_again(evicted, context.importance)
            nodes_of["nodes"].append(node)
            victims += [here.rows[i] for i in evicted]
            offsets.append(len(victims))
            violates = [here.violating[i] for i in evicted]
            broken.append(sum(violates))
            violating += violates
    result = DryRun(
        potentials=(),
        nodes=_column(nodes_of["nodes"]),
        victims=_column(victims),
        offsets=_column(offsets),
        violating=np.array(violating, dtype=np.bool_),
        pdb_violations=_column(broken),
        failed=_column(nodes_of["failed"]),
        failed_load=NO_LOAD,
        without_victims=_column(nodes_of["without_victims"]),
        over_limit=_column(nodes_of["over_limit"]),
        needed=_column(needed),
        needless=_column(nodes_of["needless"]),
    )
    return result, statuses


_OUTCOMES: Final = ("nodes", "failed", "without_victims", "over_limit", "needless")
"""What a dry run finds a node to be: the fields of `DryRun`."""


def _column(numbers: list[int]) -> Rows:
    return np.array(numbers, dtype=np.int64)


def _reprieve_order(violating: Sequence[bool], parts: tuple[ReprieveGroup, ...]) -> Sequence[int]:
    """Positions of potential victims in the order in which they are put back."""
    every = range(len(violating))
    if parts == (ReprieveGroup.ALL,) or not any(violating):
        return every
    ahead = parts[0] is not ReprieveGroup.OTHERS
    # The sort is stable: both parts keep their order.
    return sorted(every, key=lambda i: violating[i] is not ahead)
