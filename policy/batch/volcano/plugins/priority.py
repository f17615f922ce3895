"""priority: more important tasks and jobs first; only the less important are preempted.

Between jobs the class of the group counts, inside a job the priority of the pod.
"""

from __future__ import annotations

from policy.batch.volcano.framework.model import Job, Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin


class Priority(Plugin):
    name = "priority"
    doc = "Orders tasks by pod priority and jobs by class; spares what is no less important."

    def open(self, session: Session) -> None:
        self._jobs = session.jobs
        session.register(
            self.name,
            task_order=lambda task: -task.priority,
            job_order=lambda job: -job.priority,
            preemptable=self.preemptable,
            job_starving=self.job_starving,
        )

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        own = self._jobs[preemptor.job].priority
        return [
            task
            for task in tasks
            if (
                task.priority < preemptor.priority
                if task.job == preemptor.job
                else self._jobs[task.job].priority < own
            )
        ]

    def job_starving(self, job: Job) -> bool:
        return job.ready + job.waiting < len(job.tasks)
