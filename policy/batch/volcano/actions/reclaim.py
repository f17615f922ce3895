"""reclaim: takes room back from other queues for queues that may have more.

Source: Volcano `pkg/scheduler/actions/reclaim`.
"""

from __future__ import annotations

import numpy as np

from policy.batch.choosing import by_name
from policy.batch.recording import Rejection
from policy.batch.volcano.actions.base import Action, jobs_by_queue, queues_of, waiting_tasks
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.statement import Statement
from policy.batch.volcano.framework.victims import VictimSearch


class Reclaim(Action):
    name = "reclaim"
    doc = "Evicts tasks of other, reclaimable queues for jobs that starve."

    def run(self, session: Session) -> None:
        active = [
            job for job in session.jobs.values() if not job.pending and session.dispatch.valid(job)
        ]
        queues = queues_of(session, active)
        jobs = jobs_by_queue(session, [job for job in active if session.dispatch.starving(job)])
        while queues:
            queue = queues.pop()
            limit = session.dispatch.overused(queue)
            if limit is not None:
                session.turn_away(queue, self.name, limit)
                continue
            of_queue = jobs.get(queue.name)
            while of_queue:
                _reclaim_for_job(session, queue, of_queue.pop())


def _reclaim_for_job(session: Session, queue: BatchQueue, job: Job) -> None:
    statement = Statement(session, job)
    tasks = waiting_tasks(session, job, best_effort=True)
    while tasks and session.dispatch.starving(job):
        task = tasks.pop()
        if task.pod.spec.preemption_policy == "Never":
            continue
        limit = session.dispatch.preemptive(queue, [task])
        if limit is not None:
            statement.reject(task, Rejection(nodes={}, limit=limit))
            continue
        _reclaim_for_task(session, statement, queue, task)
    if session.dispatch.pipelined(job):
        statement.commit()
    else:
        statement.discard()


def _reclaim_for_task(
    session: Session, statement: Statement, queue: BatchQueue, task: Task
) -> None:
    open_queues = np.array([q.reclaimable for q in session.queues.values()], dtype=np.bool_)
    open_queues[queue.index] = False
    search = VictimSearch(
        session,
        "reclaimable",
        task,
        jobs=open_queues[session.job_queue],
        passing=session.answers.curable(task),
        bound_too=False,
        someone=True,
    )
    session.watched(task, search)
    for passed_over, node in enumerate(search.candidates.tolist()):
        found = search.at(node)
        if not found.enough:
            continue
        mark = statement.mark()
        victims = search.in_order(found)
        fits = session.nodes.has_future(task, node)
        while victims and not fits:
            statement.evict(victims.pop(), task)
            fits = session.nodes.has_future(task, node)
        nodes = int(search.candidates.size)
        chosen = by_name(node, nodes=nodes, passed_over=passed_over)
        if fits and statement.pipeline(task, chosen, found.answer):
            return
        statement.back_to(mark)
    statement.reject(task, search.rejection(iter(search.candidates.tolist())))
