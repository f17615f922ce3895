"""drf: dominant resource fairness between jobs.

A job's share is the greatest part of any resource of the cluster that its tasks ask for. Jobs with
smaller shares come first, and a task may evict another's where it does not end above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from policy.batch.model import HOLDING, Job, Task
from policy.batch.nodes import Crash, CrashKind
from policy.batch.plugins.base import Plugin
from policy.batch.resources import Resource, dominant_share
from policy.batch.views import PluginView
from policy.cluster.tables import Bools

DELTA: Final = 0.000001
"""Shares that differ by no more are equal, where victims are chosen."""


class Drf(Plugin):
    name = "drf"
    doc = "Orders jobs by dominant share; evicts only from jobs that keep no smaller share."

    def open(self, session: PluginView) -> None:
        self._session = session
        self._total = session.nodes.total
        self._allocated = session.requests_of(HOLDING)
        self._shares = {uid: self._share(of_job) for uid, of_job in self._allocated.items()}
        self._by_index = np.array(list(self._shares.values()))
        #: per resource that is shared out, what each job has; shape (jobs,)
        self._columns = {
            name: np.array([of_job.get(name) for of_job in self._allocated.values()])
            for name in self._total.names()
        }
        session.figures.total = self._total
        session.figures.drf = self.shares
        session.figures.drf_at_open = dict(self._shares)
        session.register(
            self.name,
            job_order=self.job_order,
            preemptable=self.preemptable,
            preemptable_jobs=self.preemptable_jobs,
            preemptable_tasks=self.preemptable_tasks,
        )
        session.on_events(allocate=self._allocate, deallocate=self._deallocate)

    def shares(self) -> Mapping[str, float]:
        return dict(self._shares)

    def job_order(self, job: Job) -> float:
        return self._shares[job.uid]

    def preemptable(self, preemptor: Task, tasks: Sequence[Task]) -> list[Task]:
        own = self._claimed(preemptor)
        left: dict[str, Resource] = {}
        victims = []
        for task in tasks:
            rest = left.get(task.job)
            if rest is None:
                rest = left[task.job] = self._allocated[task.job].copy()
            # What earlier tasks of the list ask for is gone, whether or not they are victims.
            if not rest.sub(task.request):
                self._crash(task.job)
            theirs = self._share(rest)
            if own < theirs or abs(own - theirs) <= DELTA:
                victims.append(task)
        return victims

    def preemptable_jobs(self, preemptor: Task) -> Bools:
        # A job's share without one of its tasks is never above its share with all of them.
        return self._claimed(preemptor) <= self._by_index + 2 * DELTA

    def preemptable_tasks(self, preemptor: Task) -> Bools:
        # Other tasks of the list may go first, and then the job keeps less still.
        session, enough = self._session, self._claimed(preemptor) - 2 * DELTA
        found = np.full(len(session.tasks), enough <= 0)
        for name, of_jobs in self._columns.items():
            whole = self._total.get(name)
            # Tasks without a job read some job's share; they are never looked at.
            rest = of_jobs[session.task_job] - session.task_amount(name)
            found |= (rest >= enough * whole) if whole else (rest > 0)
        return found

    def _claimed(self, preemptor: Task) -> float:
        """The share of the preemptor's job once it has been placed."""
        return self._share(self._allocated[preemptor.job].copy().add(preemptor.request))

    def _share(self, of_job: Resource) -> float:
        return dominant_share(of_job, self._total)

    def _allocate(self, task: Task) -> None:
        self._allocated[task.job].add(task.request)
        self._refresh(task.job)

    def _deallocate(self, task: Task) -> None:
        if not self._allocated[task.job].sub(task.request):
            self._crash(task.job)
        self._refresh(task.job)

    def _refresh(self, job: str) -> None:
        found = self._shares[job] = self._share(self._allocated[job])
        index = self._session.jobs[job].index
        self._by_index[index] = found
        for name, column in self._columns.items():
            column[index] = self._allocated[job].get(name)

    def _crash(self, job: str) -> None:
        self._session.nodes.crashes.append(Crash(kind=CrashKind.SUBTRACTION, subject=job, of="drf"))
