"""backfill: places tasks that ask for nothing on the best node that may take them.

Source: Volcano `pkg/scheduler/actions/backfill`.
"""

from __future__ import annotations

import numpy as np

from policy.batch.heap import Heap
from policy.batch.model import TaskStatus
from policy.batch.recording import Operation, Rejection
from policy.batch.volcano.actions.base import Action, jobs_by_queue, queues_of
from policy.batch.volcano.framework.model import Job, Task
from policy.batch.volcano.framework.session import Session


class Backfill(Action):
    name = "backfill"
    doc = "Places tasks without requests, whatever their queue may hold."

    def run(self, session: Session) -> None:
        for task in _in_order(session):
            _place(session, task)


def _in_order(session: Session) -> list[Task]:
    """The tasks by queue, job and task, as the orders are before the first is placed."""
    tasks: dict[str, Heap[Task]] = {}
    jobs: list[Job] = []
    for job in session.jobs.values():
        if job.pending or not session.dispatch.valid(job):
            continue
        heap: Heap[Task] = Heap(session.dispatch.task_order.key)
        for task in job.having(TaskStatus.PENDING):
            if task.best_effort and not task.gated:
                heap.push(task)
        for task in job.having(TaskStatus.PIPELINED):
            if task.best_effort:
                session.withdraw(task)
                heap.push(task)
        if heap:
            tasks[job.uid] = heap
            jobs.append(job)
    queues, by_queue = queues_of(session, jobs), jobs_by_queue(session, jobs)
    found = []
    while queues:
        of_queue = by_queue[queues.pop().name]
        while of_queue:
            of_job = tasks[of_queue.pop().uid]
            while of_job:
                found.append(of_job.pop())
    return found


def _place(session: Session, task: Task) -> None:
    session.watched(task)
    best = session.answers.best(task, np.flatnonzero(session.answers.passing(task)))
    if best is None:
        session.recorder.reject(task, Rejection(nodes=session.answers.rejected(task)))
        return
    refusal = session.put(task, best.node, TaskStatus.ALLOCATED)
    session.recorder.operation(
        Operation.ALLOCATE,
        task,
        session.nodes.names[best.node],
        refusal=refusal,
        choice=best.choice,
    )
    job = session.jobs[task.job]
    if refusal is None and session.dispatch.ready(job):
        for placed in job.having(TaskStatus.ALLOCATED):
            session.bind(placed)
