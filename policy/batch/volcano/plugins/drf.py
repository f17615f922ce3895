"""drf: dominant resource fairness between jobs.

A job's share is the greatest part of any resource of the cluster that its tasks hold. Jobs with
smaller shares come first, and a task may evict another's where it does not end above it.

Source: Volcano `pkg/scheduler/plugins/drf`. With `enableHierarchy` queues are ordered by the tree
that their annotations describe (`hdrf.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.batch.plugins.drf import DELTA
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.resources import Amount
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins import accounts
from policy.batch.volcano.plugins.base import Plugin
from policy.batch.volcano.plugins.hdrf import HierarchicalShares


class Drf(Plugin):
    name = "drf"
    doc = "Orders jobs by dominant share; evicts only from jobs that keep no smaller share."

    def open(self, session: Session) -> None:
        self._session = session
        self._total = session.nodes.total
        self._names = tuple(resources.names(self._total))
        self._allocated = {uid: dict(job.allocated) for uid, job in session.jobs.items()}
        self._shares = {uid: self._share(of_job) for uid, of_job in self._allocated.items()}
        session.figures.total = accounts.total_figure(session)
        session.figures.drf = self.shares
        session.figures.drf_at_open = dict(self._shares)
        session.register(
            self.name,
            job_order=lambda job: self._shares[job.uid],
            preemptable=self.preemptable,
        )
        session.on_events(allocate=self._allocate, deallocate=self._deallocate)
        if self.hierarchical(session):
            HierarchicalShares(session).register(self.name)

    def shares(self) -> Mapping[str, float]:
        return dict(self._shares)

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        own = self._share(resources.plus(self._allocated[preemptor.job], preemptor.request))
        left: dict[str, Amount] = {}
        victims = []
        for task in tasks:
            rest = left.setdefault(task.job, dict(self._allocated[task.job]))
            # What earlier tasks of the list hold is gone, whether or not they are victims.
            theirs = self._share(resources.subtract(rest, task.request))
            if own < theirs or abs(own - theirs) <= DELTA:
                victims.append(task)
        return victims

    def _share(self, of_job: Amount) -> float:
        return resources.dominant_share(of_job, self._total, self._names)

    def _allocate(self, task: Task) -> None:
        of_job = resources.add(self._allocated[task.job], task.request)
        self._shares[task.job] = self._share(of_job)

    def _deallocate(self, task: Task) -> None:
        of_job = resources.subtract(self._allocated[task.job], task.request)
        self._shares[task.job] = self._share(of_job)
