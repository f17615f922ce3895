"""reclaim: takes room back from other queues for queues that are below what they deserve.

Source: kube-batch `actions/reclaim`. A job asks once per session, for one task. That the other
queue keeps what it deserves is proportion's word alone, which is not heard where an earlier tier
answers.
"""

from __future__ import annotations

import numpy as np

from policy.batch.actions.base import Action
from policy.batch.choosing import by_name
from policy.batch.heap import Heap
from policy.batch.model import BatchQueue, Job, Task, TaskStatus
from policy.batch.resources import Amounts, Resource
from policy.batch.safe import idle_node, roll_back
from policy.batch.victims import VictimSearch
from policy.batch.views import ActionView


class Reclaim(Action):
    name = "reclaim"
    doc = "Evicts tasks of other queues for one task of each job that waits."

    def run(self, session: ActionView) -> None:
        queues: Heap[BatchQueue] = Heap(session.queue_order.key)
        jobs: dict[str, Heap[Job]] = {}
        tasks: dict[str, Heap[Task]] = {}
        seen: set[str] = set()
        for job in session.jobs.values():
            if job.queue not in seen:
                seen.add(job.queue)
                queues.push(session.queue_of(job))
            if job.count(TaskStatus.PENDING):
                jobs.setdefault(job.queue, Heap(session.job_order.key)).push(job)
                of_job = tasks[job.uid] = Heap(session.task_order.key)
                for task in job.having(TaskStatus.PENDING):
                    of_job.push(task)
        while queues:
            queue = queues.pop()
            if session.overused(queue):
                session.recorder.overused[queue.name] = self.name
                continue
            if not jobs.get(queue.name):
                continue
            job = jobs[queue.name].pop()
            if _reclaim(session, queue, tasks[job.uid].pop()):
                queues.push(queue)
            roll_back(session, job)


def _reclaim(session: ActionView, queue: BatchQueue, task: Task) -> bool:
    """Evicts tasks of other queues for one task; whether there was a node for it."""
    passing = session.passing(task)
    idle = idle_node(session, task, passing)
    if idle is not None and session.allocate(task, idle.node, idle.choice):
        return True
    room: Amounts | None = None
    if session.options.count_room:
        room = session.nodes.idle.plus(session.nodes.releasing)
    search = VictimSearch(
        session,
        "reclaimable",
        task,
        jobs=session.job_queue != queue.index,
        passing=passing,
        order=lambda victims: victims,
        room=room,
        alike=("other queues", queue.index),
    )
    session.watched(task, search)
    candidates = search.candidates
    if room is not None:
        covering = np.flatnonzero(passing & room.covering(task.start_request))
        candidates = np.union1d(candidates, covering)
    for passed_over, node in enumerate(map(int, candidates)):
        choice = by_name(node, nodes=int(candidates.size), passed_over=passed_over).choice
        if room is not None and task.start_request.less_equal(search.room_at(node)):
            session.pipeline(task, node, choice=choice)
            return True
        found = search.at(node)
        if not found.victims:
            continue
        freed: Resource = search.room_at(node)
        for victim in found.victims:
            if session.evict(victim, task):
                freed.add(victim.request)
                if task.start_request.less_equal(freed):
                    break
        if task.start_request.less_equal(freed):
            # That the node may refuse is left to the next session.
            session.pipeline(task, node, found.answer, choice=choice)
            return True
    session.recorder.reject(task, search.rejection(lambda nodes: nodes.tolist()))
    return False
