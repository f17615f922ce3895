"""allocate: gives waiting tasks idle room, queue by queue, and promises room that becomes free.

What a gang is given it is given as a statement: a gang that does not reach its minimum gives
everything back. A job that is ready gets one task per turn of its queue.

Source: Volcano `pkg/scheduler/actions/allocate`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from policy.batch.choosing import ChosenNode
from policy.batch.heap import Heap
from policy.batch.model import HOLDING, TaskStatus
from policy.batch.recording import ChoiceRule, NodeChoice, Reason, Rejection
from policy.batch.volcano.actions.base import Action, jobs_by_queue, queues_of, waiting_tasks
from policy.batch.volcano.actions.errors import RoleErrors, remembers
from policy.batch.volcano.framework.model import BatchQueue, Job, Phase, Task, roles_of
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.statement import Statement
from policy.cluster.tables import NOWHERE
from policy.filters.base import UNRESOLVABLE


class Allocate(Action):
    name = "allocate"
    doc = "Gives waiting tasks idle room, gangs as a whole; promises room that becomes free."
    arguments: ClassVar = {"predicateErrorCacheEnable": True}

    def run(self, session: Session) -> None:
        _Allocation(session).run()


class _Allocation:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._remembers = remembers(session, Allocate.name)
        self._tasks: dict[str, Heap[Task]] = {}
        self._alikes: dict[tuple[str, str], bool] = {}
        jobs = self._worth_a_turn()
        self._queues = queues_of(session, jobs)
        self._jobs = jobs_by_queue(session, jobs)

    def _worth_a_turn(self) -> list[Job]:
        session = self._session
        enqueues = "enqueue" in session.rules.actions
        found = []
        for job in session.jobs.values():
            if job.pending:
                if enqueues:
                    continue
                job.phase = Phase.INQUEUE
            if not session.dispatch.valid(job):
                continue
            tasks = waiting_tasks(session, job, best_effort=False)
            if tasks:
                self._tasks[job.uid] = tasks
                found.append(job)
        return found

    def run(self) -> None:
        session = self._session
        while self._queues:
            queue = self._queues.pop()
            limit = session.dispatch.overused(queue)
            if limit is not None:
                session.turn_away(queue, Allocate.name, limit)
                continue
            jobs = self._jobs.get(queue.name)
            if not jobs:
                continue
            job = jobs.pop()
            if self._turn(queue, job) and self._tasks[job.uid]:
                jobs.push(job)
            self._queues.push(queue)

    def _turn(self, queue: BatchQueue, job: Job) -> bool:
        """Places tasks of a job; whether it was sent what it got."""
        session, tasks = self._session, self._tasks[job.uid]
        statement = Statement(session, job)
        errors = RoleErrors(enabled=self._remembers)
        while tasks:
            task = tasks.pop()
            limit = session.dispatch.allocatable(queue, task)
            if limit is not None:
                statement.reject(task, Rejection(nodes={}, limit=limit))
                continue
            if task.role and task.role in job.failed_roles:
                continue
            if not self._place(statement, task, errors):
                job.failed_roles.add(task.role)
                if _may_go_on(job):
                    continue
                break
            if session.dispatch.ready(job):
                break
        if session.dispatch.ready(job):
            statement.commit()
            return True
        if session.dispatch.pipelined(job):
            # What it was given and promised holds its room, and nothing is sent.
            statement.keep()
        else:
            statement.discard()
        return False

    def _place(self, statement: Statement, task: Task, errors: RoleErrors) -> bool:
        """Finds the task a node; False where there is none."""
        session = self._session
        session.watched(task)
        best = self._node_for(task, errors)
        if best is None:
            session.unresolvable[task.index] = session.answers.codes(task) == UNRESOLVABLE
            statement.reject(task, self._rejection(task))
            return False
        if session.nodes.has_idle(task, best.node):
            statement.allocate(task, best)
        elif session.nodes.has_future(task, best.node):
            statement.pipeline(task, best)
        return True

    def _node_for(self, task: Task, errors: RoleErrors) -> ChosenNode | None:
        session = self._session
        nominated = session.nodes.index_of(task.pod.status.nominated_node_name)
        if (
            nominated != NOWHERE
            and session.nodes.has_future(task, nominated)
            and session.answers.passes_at(task, nominated)
        ):
            choice = NodeChoice(rule=ChoiceRule.NOMINATED, nodes=1)
            return ChosenNode(node=nominated, choice=choice)
        if not self._remembers or self._alike(task):
            best = session.answers.best_idle(task)
            if best is not None:
                return best
        passing = session.answers.passing(task) & session.nodes.fits_future(task)
        passing = errors.left(task, passing)
        idle = np.flatnonzero(passing & session.nodes.fits_idle(task))
        # Idle room always comes before room that is being released, whatever the scores.
        nodes = idle if idle.size else np.flatnonzero(passing)
        return session.answers.best(task, nodes)

    def _alike(self, task: Task) -> bool:
        """Do the tasks of the role differ in nothing that nodes look at?

        What a node refused one of them it then refuses the next, remembered or not.
        """
        key = (task.job, task.role)
        found = self._alikes.get(key)
        if found is None:
            others = [t for t in self._session.jobs[task.job].tasks.values() if t.role == task.role]
            asks = {(t.shape, self._session.answers.class_of(t)) for t in others}
            found = self._alikes[key] = not task.role or len(asks) == 1
        return found

    def _rejection(self, task: Task) -> Rejection:
        room = self._session.nodes.fits_future(task)
        full = int((~room).sum())
        counts = self._session.answers.rejected(task, among=room)
        if full:
            counts[Reason.NO_ROOM.value] = full
        return Rejection(nodes=counts)


def _may_go_on(job: Job) -> bool:
    """May the job still come to its minimum, although tasks of some roles found no node?"""
    if job.minimum == len(job.tasks):
        return False
    pending = roles_of(job.in_statuses({TaskStatus.PENDING}))
    if job.minimum < sum(job.roles.values()):
        left = sum(n for role, n in pending.items() if role not in job.failed_roles)
        return job.ready + left >= job.minimum
    allocated = roles_of(job.in_statuses(HOLDING))
    return all(allocated.get(role, 0) >= job.roles.get(role, 0) for role in job.failed_roles)
