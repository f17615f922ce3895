"""gang: a job starts with its minimum of tasks or not at all, and keeps it.

Victims are counted as they are accepted, so together they never take a job below its minimum.
"""

from __future__ import annotations

from policy.batch.model import VALID, TaskStatus
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import SCHEDULED, Job, Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin


class Gang(Plugin):
    name = "gang"
    doc = "Sends a job's tasks when its minimum is ready; spares tasks that a job needs for it."

    def open(self, session: Session) -> None:
        self._session = session
        session.register(
            self.name,
            job_valid=self.job_valid,
            job_order=lambda job: job.is_ready,
            job_ready=lambda job: job.is_ready and job.roles_ready(),
            job_pipelined=self.job_pipelined,
            job_starving=lambda job: job.is_starving,
            preemptable=self.evictable,
            reclaimable=self.evictable,
        )

    def close(self, session: Session) -> None:
        for job in session.jobs.values():
            if job.tasks and not job.is_ready and not _only_leaves(job):
                session.unready.append(job.uid)

    def job_valid(self, job: Job) -> bool:
        return job.roles_valid() and job.count(*VALID) >= job.minimum

    def job_pipelined(self, job: Job) -> Vote:
        return Vote.PERMIT if job.is_pipelined and job.roles_pipelined() else Vote.REJECT

    def evictable(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        ready: dict[str, int] = {}
        victims = []
        for task in tasks:
            job = self._session.jobs[task.job]
            left = ready.setdefault(job.uid, job.ready)
            if left > job.minimum:
                ready[job.uid] = left - 1
                victims.append(task)
        return victims


def _only_leaves(job: Job) -> bool:
    """Was the job complete, and is it just that its tasks are going?"""
    leaving = sum(bool(t.node) for t in job.in_statuses({TaskStatus.RELEASING}))
    waits = job.count(TaskStatus.PENDING, TaskStatus.PIPELINED)
    return bool(leaving) and not waits and job.count(*SCHEDULED) + leaving >= job.minimum
