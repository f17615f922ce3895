"""Tasks, jobs and queues as Volcano knows them.

Source: Volcano `pkg/scheduler/api` (job_info.go, queue_info.go, pod_info.go). Statuses are those
of kube-batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from policy.batch.model import HOLDING, READY, VALID, PodTask, TaskGroup, TaskStatus
from policy.batch.volcano.framework.resources import Amount, add, exceeded, nothing, subtract, total
from policy.cluster.objects import Queue

OPEN: Final = "Open"
ROOT: Final = "root"

SCHEDULED: Final = frozenset(
    {TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.FAILED, TaskStatus.SUCCEEDED}
)
"""Statuses of tasks that have been placed, whatever became of them."""


class Phase(StrEnum):
    """Phases of a pod group."""

    PENDING = "Pending"  # waits to be let into its queue
    INQUEUE = "Inqueue"  # may be placed
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


class Task(PodTask, kw_only=True, eq=False, gc=False):
    """One pod in a session of Volcano."""

    request: Amount  #: charged, and must fit; shared between tasks, never changed
    best_effort: bool  #: asks for nothing
    role: str  #: task of the Volcano job that the pod is a replica of
    preemptable: bool
    gated: bool
    revocable: bool  #: may use nodes of a revocable zone


@dataclass(slots=True, kw_only=True, eq=False)
class Job(TaskGroup[Task]):
    """A pod group and its tasks; `uid` is namespace/name of the group."""

    roles: dict[str, int] = field(default_factory=dict)  #: role -> so many tasks of it
    least: Amount | None = None  #: minResources; None where the group names none
    phase: str = ""
    preemptable: bool = False
    idlers: int = 0  #: tasks that wait and ask for nothing
    allocated: Amount = field(default_factory=nothing)  #: of tasks in allocated statuses
    #: roles of which a task found no node in this session, and tasks of which that is known
    failed_roles: set[str] = field(default_factory=set)

    def _count(self, task: Task, status: TaskStatus, by: int) -> None:
        if status in READY:
            self.ready += by
            if status in HOLDING:
                (add if by > 0 else subtract)(self.allocated, task.request)
        elif status is TaskStatus.PIPELINED:
            self.waiting += by
        elif status is TaskStatus.PENDING and task.best_effort:
            self.idlers += by

    @property
    def asked(self) -> Amount:
        """What all its tasks ask for."""
        return total(task.request for task in self.tasks.values())

    @property
    def pending(self) -> bool:
        """Does the group still wait to be let into its queue?"""
        return self.phase in {"", Phase.PENDING}

    @property
    def is_ready(self) -> bool:
        return self.ready + self.idlers >= self.minimum

    @property
    def is_pipelined(self) -> bool:
        """Would the job be ready once everything it is promised is free?"""
        return self.ready + self.waiting + self.idlers >= self.minimum

    @property
    def is_starving(self) -> bool:
        return self.ready + self.waiting < self.minimum

    @property
    def elastic(self) -> Amount:
        """What its tasks hold beyond the group's minimum."""
        return exceeded(self.allocated, self.least or {})

    # --- minimums of roles -----------------------------------------------------------------------

    @property
    def roles_count(self) -> bool:
        """Minimums of roles are looked at unless they add up to more than the job's own."""
        return bool(self.roles) and self.minimum >= sum(self.roles.values())

    def roles_valid(self) -> bool:
        return self._roles_reach(self.in_statuses(VALID))

    def roles_ready(self) -> bool:
        return self._roles_reach(self._ready_tasks())

    def roles_pipelined(self) -> bool:
        waiting = self.in_statuses({TaskStatus.PIPELINED})
        return self._roles_reach([*self._ready_tasks(), *waiting])

    def _ready_tasks(self) -> list[Task]:
        idle = [t for t in self.in_statuses({TaskStatus.PENDING}) if t.best_effort]
        return [*self.in_statuses(READY), *idle]

    def _roles_reach(self, tasks: Iterable[Task]) -> bool:
        if not self.roles_count:
            return True
        counts = roles_of(tasks)
        return all(counts.get(role, 0) >= least for role, least in self.roles.items())


def roles_of(tasks: Iterable[Task]) -> dict[str, int]:
    """Number of tasks by role."""
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.role] = counts.get(task.role, 0) + 1
    return counts


@dataclass(slots=True, kw_only=True, eq=False)
class BatchQueue:
    """A queue with what its owner set."""

    name: str
    index: int
    weight: int
    priority: int
    capability: Amount | None  #: None where it names nothing
    deserved: Amount
    guarantee: Amount
    reclaimable: bool
    state: str
    parent: str
    created_ms: int
    queue: Queue

    @property
    def open(self) -> bool:
        return self.state == OPEN
