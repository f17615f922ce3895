"""priority: more important tasks and jobs first; only less important jobs are preempted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy.batch.model import Job, Task
from policy.batch.plugins.base import Plugin
from policy.batch.views import PluginView
from policy.cluster.tables import Bools


class Priority(Plugin):
    name = "priority"
    doc = "Orders tasks by pod priority and jobs by class; spares jobs of no lower priority."

    def open(self, session: PluginView) -> None:
        self._jobs = session.jobs
        self._priority = np.array([j.priority for j in session.jobs.values()], dtype=np.int64)
        session.register(
            self.name,
            task_order=self.task_order,
            job_order=self.job_order,
            preemptable=self.preemptable,
            preemptable_jobs=self.preemptable_jobs,
        )

    def task_order(self, task: Task) -> int:
        return -task.priority

    def job_order(self, job: Job) -> int:
        return -job.priority

    def preemptable(self, preemptor: Task, tasks: Sequence[Task]) -> list[Task]:
        own = self._jobs[preemptor.job].priority
        return [t for t in tasks if self._jobs[t.job].priority < own]

    def preemptable_jobs(self, preemptor: Task) -> Bools:
        return self._priority < self._jobs[preemptor.job].priority
