"""Hierarchical dominant resource fairness: queues as leaves and inner nodes of a weighted tree.

The tree is written into annotations of the queues: `volcano.sh/hierarchy` names the path from the
root, `volcano.sh/hierarchy-weights` the weight at every step. Jobs are the leaves.

Source: Volcano `pkg/scheduler/plugins/drf/hdrf.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key

from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.resources import EPSILON, Amount, nothing
from policy.batch.volcano.framework.session import Session

HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"


@dataclass(slots=True, eq=False)
class _Node:
    """A queue on the way to jobs, or a job."""

    weight: float = 1.0
    children: dict[str, _Node] = field(default_factory=dict)
    job: str = ""  #: uid where the node is a job
    request: Amount = field(default_factory=nothing)
    allocated: Amount = field(default_factory=nothing)
    share: float = 0.0
    saturated: bool = False


class HierarchicalShares:
    """Shares of the tree's nodes, worked out anew after every change."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._total = session.nodes.total
        self._names = tuple(resources.names(self._total))
        self._cluster = nothing()
        self._root = _Node()
        self._leaves: dict[str, _Node] = {}
        for job in session.jobs.values():
            self._add(job)
            resources.add(self._cluster, job.allocated)
        self._dirty = True

    def register(self, plugin: str) -> None:
        self._session.register(
            plugin, queue_order=cmp_to_key(self._compare), reclaimable=self._reclaimable
        )
        self._session.on_events(
            allocate=lambda task: self._change(task, 1),
            deallocate=lambda task: self._change(task, -1),
        )

    # --- the tree ------------------------------------------------------------------------------

    def _add(self, job: Job) -> None:
        node = self._root
        for name, weight in _path(self._session.queues[job.queue]):
            node = node.children.setdefault(name, _Node(weight=weight))
        leaf = _Node(job=job.uid, request=job.asked, allocated=dict(job.allocated))
        node.children[f"job {job.uid}"] = leaf
        self._leaves[job.uid] = leaf

    def _change(self, task: Task, sign: int) -> None:
        of_leaf = self._leaves[task.job].allocated
        change = resources.add if sign > 0 else resources.subtract
        change(of_leaf, task.request)
        change(self._cluster, task.request)
        self._dirty = True

    def _refreshed(self) -> _Node:
        if self._dirty:
            demanding = {
                n for n in self._names if self._cluster.get(n, 0.0) < self._total.get(n, 0.0)
            }
            self._refresh(self._root, demanding)
            self._dirty = False
        return self._root

    def _refresh(self, node: _Node, demanding: set[str]) -> None:
        if node.job:
            node.share = self._share(node.allocated)
            node.saturated = _leaf_saturated(node, demanding)
            return
        for child in node.children.values():
            self._refresh(child, demanding)
        open_children = [
            c for c in node.children.values() if not c.saturated and not _holds_nothing(c)
        ]
        smallest = min([1.0, *(c.share for c in open_children)])
        node.allocated = nothing()
        for child in node.children.values():
            scale = 1.0
            if not child.saturated and child.share > 0:
                scale = smallest / child.share
            resources.add(node.allocated, resources.times(child.allocated, scale))
        node.share = self._share(node.allocated)
        node.saturated = all(child.saturated for child in node.children.values())

    def _share(self, allocated: Amount) -> float:
        return resources.dominant_share(allocated, self._total, self._names)

    # --- deciding ------------------------------------------------------------------------------

    def _compare(self, left: BatchQueue, right: BatchQueue) -> int:
        return self._compare_on(self._refreshed(), left, right)

    def _compare_on(self, root: _Node, left: BatchQueue, right: BatchQueue) -> int:
        one: _Node | None = root
        other: _Node | None = root
        for (name, _), (other_name, _) in zip(_path(left), _path(right), strict=False):
            one = one.children.get(name) if one else None
            other = other.children.get(other_name) if other else None
            if one is None or other is None:
                return 0
            if one.saturated != other.saturated:
                return 1 if one.saturated else -1
            mine, theirs = one.share / one.weight, other.share / other.weight
            if mine != theirs:
                return -1 if mine < theirs else 1
        return 0

    def _reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task]:
        queues, jobs = self._session.queues, self._session.jobs
        own = queues[jobs[reclaimer.job].queue]
        victims = []
        self._change(reclaimer, 1)
        for task in tasks:
            self._change(task, -1)
            if self._compare(own, queues[jobs[task.job].queue]) < 0:
                victims.append(task)
            self._change(task, 1)
        self._change(reclaimer, -1)
        return victims


def _path(queue: BatchQueue) -> Iterator[tuple[str, float]]:
    """Names and weights from below the root to the queue."""
    annotations = queue.queue.metadata.annotations or {}
    names = annotations.get(HIERARCHY, "").split("/")
    weights = annotations.get(WEIGHTS, "").split("/")
    for i, name in enumerate(names):
        if i:
            yield name, _weight(weights[i] if i < len(weights) else "")


def _weight(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 1.0
    return found if found >= 1 else 1.0


def _leaf_saturated(leaf: _Node, demanding: set[str]) -> bool:
    for name, asked in leaf.request.items():
        held = leaf.allocated.get(name, 0.0)
        if asked and held and held >= asked:
            return True
        if asked and name not in demanding:
            return True
    return False


def _holds_nothing(node: _Node) -> bool:
    return all(value < EPSILON for value in node.allocated.values())
