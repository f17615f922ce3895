"""sla: jobs that waited too long enter their queue, and count as served, whatever else is said.

The time is the argument `sla-waiting-time`, or the group's annotation.

Source: Volcano `pkg/scheduler/plugins/sla`.
"""

from __future__ import annotations

from typing import ClassVar

from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import Job
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.spans import milliseconds
from policy.batch.volcano.plugins.base import Arguments, Plugin

_ARGUMENT = "sla-waiting-time"
_KEYS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")


class Sla(Plugin):
    name = "sla"
    doc = "Orders jobs by the end of their waiting time; lets them pass when it is over."
    arguments: ClassVar = {_ARGUMENT: str}

    def __init__(self, arguments: Arguments) -> None:
        self._default = milliseconds(arguments.get(_ARGUMENT, ""))

    def open(self, session: Session) -> None:
        self._now = session.snapshot.now_ms
        session.register(
            self.name,
            job_order=self.job_order,
            job_enqueueable=self.permit_late,
            job_pipelined=self.permit_late,
        )

    def _end(self, job: Job) -> int | None:
        """When the job's waiting time is over, in milliseconds; None without one."""
        assert job.group is not None
        annotations = job.group.metadata.annotations or {}
        own = next((annotations[key] for key in _KEYS if key in annotations), "")
        waits = milliseconds(own)
        waits = self._default if waits is None else waits
        return None if waits is None else job.created_ms + waits

    def job_order(self, job: Job) -> tuple[bool, int]:
        end = self._end(job)
        return end is None, end or 0

    def permit_late(self, job: Job) -> Vote:
        end = self._end(job)
        return Vote.PERMIT if end is not None and self._now > end else Vote.ABSTAIN
