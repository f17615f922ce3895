"""overcommit: groups enter their queues while the cluster, counted a little larger, has room."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from policy.batch.limits import Limit, LimitKind
from policy.batch.model import HOLDING
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import Job, Phase
from policy.batch.volcano.framework.resources import Amount
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.plugins.inqueue import less_gated

_FACTOR = 1.2


class Overcommit(Plugin):
    name = "overcommit"
    doc = "Lets groups in while what they ask for fits the idle cluster, counted 1.2 times."
    arguments: ClassVar = {"overcommit-factor": float}

    def __init__(self, arguments: Arguments) -> None:
        factor = arguments.number("overcommit-factor", default=_FACTOR)
        self._factor = _FACTOR if factor < 1 else factor

    def open(self, session: Session) -> None:
        used = np.asarray(session.nodes.used).sum(axis=1)
        self._idle = resources.times(session.nodes.total, self._factor)
        for name, value in zip(session.nodes.resources, used.tolist(), strict=True):
            self._idle[name] = self._idle.get(name, 0.0) - value
        self._inqueue = resources.nothing()
        for job in session.jobs.values():
            self._reserve_at_open(job)
        session.register(
            self.name, job_enqueueable=self.job_enqueueable, job_enqueued=self.job_enqueued
        )

    def _reserve_at_open(self, job: Job) -> None:
        if job.least is None:
            return
        if job.phase == Phase.INQUEUE:
            resources.add(self._inqueue, less_gated(job))
        elif job.phase == Phase.RUNNING and job.count(*HOLDING) >= job.minimum:
            resources.add(self._inqueue, resources.exceeded(less_gated(job), job.allocated))

    def job_enqueueable(self, job: Job) -> Vote | Limit:
        if job.least is None:
            return Vote.PERMIT
        wanted: Amount = resources.plus(self._inqueue, job.least)
        exceeded = tuple(resources.beyond(wanted, self._idle, job.least))
        if not exceeded:
            return Vote.PERMIT
        return Limit(
            plugin=self.name,
            rule=LimitKind.OVERCOMMIT,
            subject="",
            exceeded=exceeded,
            asked=job.least,
            used=dict(self._inqueue),
            allowed=dict(self._idle),
        )

    def job_enqueued(self, job: Job) -> None:
        if job.least is not None:
            resources.add(self._inqueue, less_gated(job))
