"""gang: a job starts with its minimum of tasks or not at all, and keeps it.

Each victim is judged alone: several victims of one job may be accepted together although the job
then falls below its minimum. That is what the original does; the rules' option `keepGangs`
prevents it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy.batch.model import Job, Task
from policy.batch.nodes import Crash, CrashKind
from policy.batch.plugins.base import Plugin
from policy.batch.views import PluginView
from policy.cluster.tables import Bools


class Gang(Plugin):
    name = "gang"
    doc = "Sends a job's tasks when its minimum is ready; spares tasks that a job needs for it."

    def open(self, session: PluginView) -> None:
        self._session = session
        self._minimum = np.array([j.minimum for j in session.jobs.values()], dtype=np.int64)
        self._single = self._minimum == 1
        session.register(
            self.name,
            job_order=self.job_order,
            job_ready=lambda job: job.is_ready,
            job_pipelined=lambda job: job.is_pipelined,
            preemptable=self.evictable,
            preemptable_jobs=self.evictable_jobs,
            reclaimable=self.evictable,
            reclaimable_jobs=self.evictable_jobs,
        )

    def close(self, session: PluginView) -> None:
        for job in session.jobs.values():
            if job.is_ready:
                continue
            session.unready.append(job.uid)
            if not job.has_group:
                session.nodes.crashes.append(Crash(kind=CrashKind.NO_GROUP, subject=job.uid))

    def job_order(self, job: Job) -> bool:
        return job.is_ready

    def evictable(self, claimant: Task, tasks: Sequence[Task]) -> list[Task]:
        jobs = self._session.jobs
        return [t for t in tasks if _spares_one(jobs[t.job])]

    def evictable_jobs(self, claimant: Task) -> Bools:
        return np.asarray((self._minimum < self._session.job_ready) | self._single)


def _spares_one(job: Job) -> bool:
    return job.minimum <= job.ready - 1 or job.minimum == 1
