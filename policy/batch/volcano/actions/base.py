"""What an action is: one pass over the session, in the order in which the rules list it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from policy.batch.heap import Heap
from policy.batch.model import TaskStatus
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.session import Session


class Action(ABC):
    """Base of all actions. An action keeps nothing between sessions."""

    name: ClassVar[str]  #: as rule files write it
    doc: ClassVar[str]  #: one sentence: what it does
    #: argument -> default: what `configurations` of the rules may give
    arguments: ClassVar[Mapping[str, bool | int]] = {}

    @abstractmethod
    def run(self, session: Session) -> None:
        """Changes the session."""


def queues_of(session: Session, jobs: list[Job]) -> Heap[BatchQueue]:
    """The queues of the jobs, each once."""
    heap: Heap[BatchQueue] = Heap(session.dispatch.queue_order.key)
    for name in dict.fromkeys(job.queue for job in jobs):
        heap.push(session.queues[name])
    return heap


def jobs_by_queue(session: Session, jobs: list[Job]) -> dict[str, Heap[Job]]:
    found: dict[str, Heap[Job]] = {}
    for job in jobs:
        found.setdefault(job.queue, Heap(session.dispatch.job_order.key)).push(job)
    return found


def waiting_tasks(session: Session, job: Job, *, best_effort: bool) -> Heap[Task]:
    """The job's tasks that wait and are not gated; with or without those that ask for nothing."""
    heap: Heap[Task] = Heap(session.dispatch.task_order.key)
    for task in job.having(TaskStatus.PENDING):
        if not task.gated and (best_effort or not task.best_effort):
            heap.push(task)
    return heap
