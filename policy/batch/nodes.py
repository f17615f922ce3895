"""What every node of a session has, has promised and holds.

The sums are columns, so that a question about all nodes is one array operation; a change touches
one row. Source: kube-batch `NodeInfo`. A node holds each task under the status with which it was
added: a later change of the task does not alter the node until the task is taken off and put on
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from msgspec import Struct

from policy.batch.model import Task, TaskStatus
from policy.batch.resources import Amounts, Resource
from policy.cluster.tables import NOWHERE, Bools, Ints

PlacementListener = Callable[[int, Task, int], None]
"""Called with node, task, and 1 where the node now holds the task, -1 where it no longer does."""


_EVERY: Final = slice(None)


class Refusal(StrEnum):
    """Why a node did not take a task. Values are stored and never renamed."""

    OTHER_NODE = "names-another-node"  # the task already names another node
    HERE = "already-here"
    NO_ROOM = "no-room"


class Held(Struct, kw_only=True, eq=False, gc=False):
    """A task on a node, under the status with which it was added."""

    task: Task
    status: TaskStatus
    #: part of a promise that was taken from idle room (only where rules count idle room)
    from_idle: Resource | None = None


class CrashKind(StrEnum):
    """Where the original ends its process; here the session goes on. Values are stored."""

    SUBTRACTION = "subtraction"  # more is taken than there is, beyond the tolerance
    NO_GROUP = "no-group"  # a job that only a budget describes is not ready at the end
    NO_END = "no-end"  # dividing among queues with negative weights does not end


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A place of the session at which the original would have ended its process."""

    kind: CrashKind
    subject: str  #: task, job or queue
    of: str = ""  #: which sum
    node: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Nodes:
    """Nodes in name order, aligned with the snapshot's; `present`: those of the session."""

    names: Sequence[str]
    present: Bools
    allocatable: Amounts
    idle: Amounts
    releasing: Amounts
    used: Amounts
    allowed_pods: Ints
    held: list[dict[str, Held]]
    pods: Ints  #: tasks held, per node
    place: Ints  #: per task, index of the node that holds it, else NOWHERE
    running: Bools  #: per task, whether a node holds it as Running
    total: Resource  #: allocatable of all nodes of the session
    #: may a promise take idle room where released room does not cover it?
    promise_idle: bool = False
    watchers: list[PlacementListener] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    #: every change of what a node holds, in order: the index of the node, and that of the task
    changed: list[int] = field(default_factory=list)
    changed_tasks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.index:
            self.index = {n: i for i, n in enumerate(self.names) if self.present[i]}

    def add(self, i: int, task: Task) -> Refusal | None:
        """Puts a task on node i under its current status; None where that worked."""
        name = self.names[i]
        if task.node and task.node != name:
            return Refusal.OTHER_NODE
        if task.key in self.held[i]:
            return Refusal.HERE
        request = task.request
        held = Held(task=task, status=task.status)
        if task.status is TaskStatus.PIPELINED:
            self._promise(i, held)
        else:
            if not self.idle.covers(i, request):
                return Refusal.NO_ROOM
            self.idle.sub(i, request)
            if task.status is TaskStatus.RELEASING:
                self.releasing.add(i, request)
        self.used.add(i, request)
        task.node = name
        self.hold(i, held)
        return None

    def hold(self, i: int, held: Held) -> None:
        """Notes that node i holds the task; its sums are not touched."""
        task = held.task
        self.held[i][task.key] = held
        self.pods[i] += 1
        self.place[task.index] = i
        self.running[task.index] = held.status is TaskStatus.RUNNING
        self.changed.append(i)
        self.changed_tasks.append(task.index)
        for watcher in self.watchers:
            watcher(i, task, 1)

    def hold_all(self, where: Ints, tasks: Sequence[Task]) -> None:
        """As `hold`, before anybody watches. where: (n,) the node of each of the tasks."""
        for i, task in zip(where.tolist(), tasks, strict=True):
            self.held[i][task.key] = Held(task=task, status=task.status)
        indices = np.array([task.index for task in tasks], dtype=np.int64)
        self.pods += np.bincount(where, minlength=self.pods.size)
        self.place[indices] = where
        self.running[indices] = [task.status is TaskStatus.RUNNING for task in tasks]

    def remove(self, i: int, task: Task) -> bool:
        """Takes a task off node i; False where the node does not hold it."""
        held = self.held[i].pop(task.key, None)
        if held is None:
            return False
        request = held.task.request
        if held.status is TaskStatus.RELEASING:
            self._take(self.releasing, i, request, task, "releasing")
            self.idle.add(i, request)
        elif held.status is TaskStatus.PIPELINED:
            self.releasing.add(i, request)
            if held.from_idle is not None:
                self.releasing.sub(i, held.from_idle)
                self.idle.add(i, held.from_idle)
        else:
            self.idle.add(i, request)
        self._take(self.used, i, request, task, "used")
        self.pods[i] -= 1
        self.place[task.index] = NOWHERE
        self.running[task.index] = False
        self.changed.append(i)
        self.changed_tasks.append(task.index)
        for watcher in self.watchers:
            watcher(i, held.task, -1)
        return True

    def update(self, i: int, task: Task) -> Refusal | None:
        """Takes a task off and puts it on again under its current status."""
        self.remove(i, task)
        return self.add(i, task)

    def tasks(self, i: int) -> list[Held]:
        """What node i holds, in order of namespace/name as text."""
        held = self.held[i]
        return [held[key] for key in sorted(held)]

    def room_for(self, need: Resource, some: Ints | slice = _EVERY) -> Bools:
        """Nodes, or some of them, with enough idle or enough released room; not their sum."""
        return self.idle.covering(need, some) | self.releasing.covering(need, some)

    def index_of(self, name: str) -> int:
        return self.index.get(name, NOWHERE)

    def select(self, indices: Iterable[int]) -> list[str]:
        return [self.names[i] for i in indices]

    def _promise(self, i: int, held: Held) -> None:
        request = held.task.request
        if self.promise_idle:
            held.from_idle = _beyond(request, self.releasing.at(i))
            self.idle.sub(i, held.from_idle)
            self.releasing.add(i, held.from_idle)
        self._take(self.releasing, i, request, held.task, "releasing")

    def _take(self, amounts: Amounts, i: int, request: Resource, task: Task, of: str) -> None:
        if not amounts.sub(i, request):
            self.crashes.append(
                Crash(kind=CrashKind.SUBTRACTION, subject=task.key, of=of, node=self.names[i])
            )


def _beyond(request: Resource, released: Resource) -> Resource:
    """What the request needs beyond the released room."""
    scalars = None
    if request.scalars is not None:
        have = released.scalars or {}
        scalars = {n: max(0.0, v - max(0.0, have.get(n, 0.0))) for n, v in request.scalars.items()}
    return Resource(
        max(0.0, request.cpu - max(0.0, released.cpu)),
        max(0.0, request.memory - max(0.0, released.memory)),
        scalars,
    )
