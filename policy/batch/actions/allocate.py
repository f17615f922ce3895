"""allocate: gives waiting tasks idle room, queue by queue, and promises room that becomes free.

Source: kube-batch `actions/allocate`. A job that is ready gets one task per turn of its queue; one
that is not goes on until it is, or until a task finds no node.
"""

from __future__ import annotations

from policy.batch.actions.base import Action
from policy.batch.heap import Heap
from policy.batch.model import BatchQueue, Job, Task, TaskStatus
from policy.batch.recording import Reason, Rejection
from policy.batch.safe import roll_back
from policy.batch.views import ActionView


class Allocate(Action):
    name = "allocate"
    doc = "Gives waiting tasks idle room; promises them room that is being released."

    def run(self, session: ActionView) -> None:
        queues: Heap[BatchQueue] = Heap(session.queue_order.key)
        jobs: dict[str, Heap[Job]] = {}
        for job in session.jobs.values():
            # One entry per job: a queue is visited as often as it has jobs.
            queues.push(session.queue_of(job))
            jobs.setdefault(job.queue, Heap(session.job_order.key)).push(job)
        waiting: dict[str, Heap[Task]] = {}
        while queues:
            queue = queues.pop()
            if session.overused(queue):
                session.recorder.overused[queue.name] = self.name
                continue
            if not jobs[queue.name]:
                continue
            job = jobs[queue.name].pop()
            tasks = waiting.get(job.uid)
            if tasks is None:
                tasks = waiting[job.uid] = _waiting(session, job)
            if _turn(session, job, tasks):
                jobs[queue.name].push(job)
            else:
                roll_back(session, job)
            queues.push(queue)


def _waiting(session: ActionView, job: Job) -> Heap[Task]:
    tasks: Heap[Task] = Heap(session.task_order.key)
    for task in job.having(TaskStatus.PENDING):
        if not task.best_effort:
            tasks.push(task)
    return tasks


def _turn(session: ActionView, job: Job, tasks: Heap[Task]) -> bool:
    """Places tasks of a job; whether the job has a further turn."""
    while tasks:
        if not _place(session, tasks.pop()):
            return False
        if session.ready(job) and tasks:
            return True
    return False


def _place(session: ActionView, task: Task) -> bool:
    """Finds the task a node; False where there is none."""
    session.watched(task)
    best = session.best_with_room(task)
    if best is None:
        session.recorder.reject(task, _rejection(session, task))
        return False
    if session.nodes.idle.covers(best.node, task.start_request):
        session.allocate(task, best.node, best.choice)
    else:
        session.pipeline(task, best.node, choice=best.choice)
    return True


def _rejection(session: ActionView, task: Task) -> Rejection:
    room = session.nodes.room_for(task.start_request)
    full = int((session.nodes.present & ~room).sum())
    counts = session.rejected(task, among=room)
    if full:
        counts[Reason.NO_ROOM.value] = full
    return Rejection(nodes=counts)
