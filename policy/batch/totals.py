"""Running totals per node of the tasks that may go, kept from one search for victims to the next.

A search asks, for every node, how many tasks of certain jobs run there and what they ask for in
sum. Two searches that follow each other ask about nearly the same tasks: other jobs than their own,
of a priority below theirs; and between them a few tasks came or went. So a total knows which tasks
it counts, compares what it is asked for with what it has, and adds or subtracts the difference.

This is right because sums of whole numbers are exact in any order (all amounts are whole, and no
node has so much that a float could not count it; where one has, everything is summed anew), and
because whether a task counts follows from three columns that are all compared: which jobs, which
tasks, and where tasks run, of which `Nodes.changed_tasks` names every change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import numpy as np

from policy.batch.nodes import Nodes
from policy.batch.resources import Floats
from policy.cluster.tables import NOWHERE, Bools, Ints

KEPT: Final = 64
"""Totals kept at a time; the one that was used longest ago goes first."""

_EXACT: Final = 2.0**52
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)
_FEW: Final = 64
"""So many jobs are looked up one by one; of more, all tasks are looked through."""


class RunningTasks:
    """What all totals of a session share: which task belongs to which job, and runs where."""

    def __init__(
        self, nodes: Nodes, task_job: Ints, *, jobs: int, amount: Callable[[str], Floats]
    ) -> None:
        """task_job: (tasks,) index of the job, NOWHERE without one. amount: (tasks,) requests."""
        self.nodes = nodes
        self.task_job = task_job
        self.jobs = jobs
        self.amount = amount
        self.exact = all(
            float(column.max(initial=0.0)) < _EXACT
            for column in (
                nodes.allocatable.cpu,
                nodes.allocatable.memory,
                *nodes.allocatable.scalars.values(),
            )
        )
        self._by_job = np.argsort(task_job, kind="stable")
        self._start = np.searchsorted(task_job[self._by_job], np.arange(jobs + 1))
        self.every: Bools = np.ones(task_job.size, dtype=np.bool_)
        self._kept: dict[Hashable, Totals] = {}

    def totals(self, name: Hashable, jobs: Bools, tasks: Bools | None) -> Totals:
        """Totals of the running tasks of the jobs, of these only the given tasks.

        name: totals that are asked for nearly the same should have the same name; only speed
        depends on it. They hold until totals of this name are asked for again. jobs: (jobs,).
        tasks: (tasks,), None for all; the array must not change afterwards.
        """
        found = self._kept.pop(name, None)
        if found is None:
            found = Totals(self)
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
        found.become(jobs, self.every if tasks is None else tasks)
        self._kept[name] = found  # the last in order is the one that was used last
        return found

    def of_jobs(self, jobs: Ints) -> Ints:
        """The tasks of the jobs with these indices."""
        if jobs.size > _FEW:
            among = np.zeros(self.jobs + 1, dtype=np.bool_)  # tasks without a job read the last
            among[jobs] = True
            return np.flatnonzero(among[self.task_job])
        spans = [self._by_job[self._start[j] : self._start[j + 1]] for j in jobs.tolist()]
        return np.concatenate(spans) if spans else _NONE


class Totals:
    """Number and requests, per node, of some running tasks."""

    def __init__(self, running: RunningTasks) -> None:
        size, tasks = len(running.nodes.names), running.task_job.size
        self._running = running
        self._jobs: Bools = np.zeros(running.jobs, dtype=np.bool_)
        self._tasks = running.every
        self._position = len(running.nodes.changed_tasks)
        #: (tasks,) the node on which the task is counted, NOWHERE where it is not
        self._where = np.full(tasks, NOWHERE, dtype=np.int32)
        #: (nodes,) and (jobs,) number of tasks that are counted
        self.per_node: Ints = np.zeros(size, dtype=np.int64)
        self.per_job: Ints = np.zeros(running.jobs, dtype=np.int64)
        self._amounts: dict[str, Floats] = {}

    def amount(self, name: str) -> Floats:
        """Sums of the requests of one resource; shape (nodes,)."""
        found = self._amounts.get(name)
        if found is None:
            found = self._amounts[name] = self._summed(name)
        return found

    def counted(self, tasks: Ints) -> int:
        """How many of the tasks are counted."""
        return int((self._where[tasks] != NOWHERE).sum())

    # --- becoming ------------------------------------------------------------------------------

    def become(self, jobs: Bools, tasks: Bools) -> None:
        """Counts the running tasks of the jobs, of these only the given tasks; and no others."""
        running = self._running
        other_jobs = np.flatnonzero(jobs != self._jobs)
        other_tasks = _NONE
        if tasks is not self._tasks:
            other_tasks = np.flatnonzero(tasks != self._tasks)
            self._tasks = tasks
        changed = running.nodes.changed_tasks[self._position :]
        if not (other_jobs.size or other_tasks.size or changed):
            return
        self._position += len(changed)
        self._jobs[other_jobs] = jobs[other_jobs]
        touched = np.zeros(tasks.size, dtype=np.bool_)
        for some in (running.of_jobs(other_jobs), other_tasks, changed):
            touched[some] = True
        self._count(np.flatnonzero(touched))

    def _count(self, tasks: Ints) -> None:
        """Takes the tasks from where they were counted, and counts them where they are now."""
        nodes, of = self._running.nodes, self._running.task_job[tasks]
        counts = nodes.running[tasks] & self._tasks[tasks] & (of != NOWHERE)
        counts[counts] = self._jobs[of[counts]]
        new = np.where(counts, nodes.place[tasks], NOWHERE)
        moves = np.flatnonzero(new != self._where[tasks])
        tasks, new = tasks[moves], new[moves]
        old = self._where[tasks].astype(np.int64)
        self._where[tasks] = new
        for sign, where in ((-1, old), (1, new)):
            here = np.flatnonzero(where != NOWHERE)
            np.add.at(self.per_node, where[here], sign)
            np.add.at(self.per_job, self._running.task_job[tasks[here]], sign)
            if self._running.exact:
                for name, sums in self._amounts.items():
                    np.add.at(sums, where[here], sign * self._running.amount(name)[tasks[here]])
        if not self._running.exact:
            self._amounts.clear()

    def _summed(self, name: str) -> Floats:
        tasks = np.flatnonzero(self._where != NOWHERE)
        found: Floats = np.zeros(self.per_node.size)
        found += np.bincount(self._where[tasks], self._running.amount(name)[tasks], found.size)
        return found
