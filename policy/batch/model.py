"""Tasks, jobs and queues of one session.

Source: kube-batch `pkg/scheduler/api`. One task stands for one pod. A session changes a task's
status and node; everything else about it is fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec import Struct

from policy.batch.resources import Resource
from policy.cluster.objects import Pod, PodDisruptionBudget, PodGroup, Queue


class TaskStatus(StrEnum):
    """Where a task stands. Values are stored and never renamed."""

    PENDING = "pending"  # waits for a node
    ALLOCATED = "allocated"  # has a node in this session; not sent, its gang is not ready
    PIPELINED = "pipelined"  # is promised resources that are being released
    BINDING = "binding"  # sent to its node in this session
    BOUND = "bound"  # has a node, has not started
    RUNNING = "running"
    RELEASING = "releasing"  # is being evicted
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


HOLDING: Final = frozenset(
    {TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED}
)
"""Statuses whose tasks count as allocated in shares."""

READY: Final = HOLDING | {TaskStatus.SUCCEEDED}
"""Statuses that count towards a gang's minimum."""

VALID: Final = READY | {TaskStatus.PIPELINED, TaskStatus.PENDING}
"""Statuses of tasks that run or may come to run."""

OVER: Final = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED})
"""Statuses of tasks that occupy no node."""


def status_of(pod: Pod) -> TaskStatus:
    """The status that a pod has before the session starts."""
    leaving = bool(pod.metadata.deletion_timestamp)
    match pod.status.phase:
        case "Running":
            return TaskStatus.RELEASING if leaving else TaskStatus.RUNNING
        case "Pending":
            if leaving:
                return TaskStatus.RELEASING
            return TaskStatus.BOUND if pod.spec.node_name else TaskStatus.PENDING
        case "Succeeded":
            return TaskStatus.SUCCEEDED
        case "Failed":
            return TaskStatus.FAILED
        case _:
            return TaskStatus.UNKNOWN


# Not known to the garbage collector, which would walk over all of them again and again: a task
# refers to nothing that refers to it.
class PodTask(Struct, kw_only=True, eq=False, gc=False):
    """One pod in a session, as far as all semantics keep the same of it."""

    index: int  #: place among the session's tasks, in order of namespace and name
    shape: int  #: index among the session's shapes: of the same shape is who asks for the same
    row: int  #: row of the pod in the snapshot
    key: str  #: namespace/name
    uid: str
    job: str  #: uid of its job; "" where it belongs to none
    priority: int
    created_ms: int
    pod: Pod
    status: TaskStatus
    node: str


_T = TypeVar("_T", bound=PodTask)


@dataclass(slots=True, kw_only=True, eq=False)
class TaskGroup(Generic[_T]):
    """Tasks that belong together, and what all semantics keep the same of them."""

    uid: str
    index: int = -1  #: place among the session's jobs, in order of uid
    namespace: str = ""
    queue: str = ""
    priority: int = 0
    minimum: int = 0  #: so many tasks must be ready, or none is sent
    created_ms: int = 0
    group: PodGroup | None = None
    tasks: dict[str, _T] = field(default_factory=dict)  #: by uid
    _by_status: dict[TaskStatus, dict[str, _T]] = field(default_factory=dict)
    ready: int = 0
    waiting: int = 0  #: promised room

    def add(self, task: _T) -> None:
        self.tasks[task.uid] = task
        self._by_status.setdefault(task.status, {})[task.uid] = task
        self._count(task, task.status, 1)

    def move(self, task: _T, status: TaskStatus) -> None:
        """Gives a task of the job another status."""
        del self._by_status[task.status][task.uid]
        self._count(task, task.status, -1)
        task.status = status
        self._by_status.setdefault(status, {})[task.uid] = task
        self._count(task, status, 1)

    def _count(self, task: _T, status: TaskStatus, by: int) -> None:
        if status in READY:
            self.ready += by
        elif status is TaskStatus.PIPELINED:
            self.waiting += by

    def count(self, *statuses: TaskStatus) -> int:
        return sum(len(self._by_status.get(s, ())) for s in statuses)

    def having(self, status: TaskStatus) -> list[_T]:
        """Tasks of a status, in order of uid."""
        found = self._by_status.get(status)
        return sorted(found.values(), key=lambda t: t.uid) if found else []

    def in_statuses(self, statuses: Iterable[TaskStatus]) -> Iterator[_T]:
        for status in statuses:
            yield from self._by_status.get(status, {}).values()


class Task(PodTask, kw_only=True, eq=False, gc=False):
    """One pod in a session of kube-batch; `node` stays set when the placing is discarded."""

    request: Resource  #: accounted for; shared between tasks, never changed
    start_request: Resource  #: must fit: raised to what the init containers need

    @property
    def best_effort(self) -> bool:
        """Asks for nothing, as far as sums can tell."""
        return self.request.is_empty


@dataclass(slots=True, kw_only=True, eq=False)
class Job(TaskGroup[Task]):
    """Tasks that belong together: a pod group, the pods of one controller, or a lone pod."""

    name: str = ""
    shadow: bool = False  #: made up for pods without a group; never written back
    #: priority class that a shadow group takes over from its first pod
    priority_class: str = ""
    budget: PodDisruptionBudget | None = None

    @property
    def described(self) -> bool:
        """Does anything but pods say that the job exists?"""
        return self.has_group or self.budget is not None

    @property
    def has_group(self) -> bool:
        return self.group is not None or self.shadow

    @property
    def is_ready(self) -> bool:
        return self.ready >= self.minimum

    @property
    def is_pipelined(self) -> bool:
        """Would the job be ready once all promised resources are released?"""
        return self.ready + self.waiting >= self.minimum


@dataclass(slots=True, kw_only=True, eq=False)
class BatchQueue:
    """A queue: a name, a weight, an age."""

    name: str
    index: int
    weight: int
    created_ms: int
    queue: Queue


def in_queues(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Jobs by queue, both in key order."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.queue, []).append(job)
    return dict(sorted(found.items()))
