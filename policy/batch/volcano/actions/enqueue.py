"""enqueue: lets pod groups into their queues, as far as the queues and the cluster have room.

A group that is not let in is not looked at by any other action. One that asks for nothing
(`minResources`) is always let in.

Source: Volcano `pkg/scheduler/actions/enqueue`.
"""

from __future__ import annotations

from policy.batch.volcano.actions.base import Action, jobs_by_queue, queues_of
from policy.batch.volcano.framework.model import Phase
from policy.batch.volcano.framework.session import Session


class Enqueue(Action):
    name = "enqueue"
    doc = "Lets pod groups into their queues while their minimum resources fit."

    def run(self, session: Session) -> None:
        every = list(session.jobs.values())
        queues = queues_of(session, every)
        jobs = jobs_by_queue(session, [job for job in every if job.pending])
        while queues:
            queue = queues.pop()
            if not jobs.get(queue.name):
                continue
            job = jobs[queue.name].pop()
            limit = None if job.least is None else session.dispatch.not_enqueueable(job)
            session.recorder.entry(job.uid, limit)
            if limit is None:
                session.dispatch.enqueued(job)
                job.phase = Phase.INQUEUE
            queues.push(queue)
