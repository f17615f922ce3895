"""preempt: makes room inside a queue by evicting tasks of other jobs, then inside each job.

Source: kube-batch `actions/preempt`. What a gang takes from other jobs it takes as a whole or not
at all (one statement); what a job takes from itself it takes task by task. Room that is free
already is not looked at, unless the rules count it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial

import numpy as np

from policy.batch.actions.base import Action
from policy.batch.choosing import chosen
from policy.batch.heap import Heap
from policy.batch.model import Job, Task, TaskStatus, in_queues
from policy.batch.recording import ChoiceRule
from policy.batch.resources import Amounts
from policy.batch.safe import idle_node, may_grow, roll_back
from policy.batch.statement import Statement
from policy.batch.victims import VictimSearch
from policy.batch.views import ActionView
from policy.cluster.tables import Bools, Ints


class Preempt(Action):
    name = "preempt"
    doc = "Evicts tasks of the same queue, then of the same job, for tasks that wait."

    def run(self, session: ActionView) -> None:
        _Preemption(session).run()


class _Preemption:
    def __init__(self, session: ActionView) -> None:
        self._session = session
        #: every job that waits for something, in order of uid
        self._waiting = [j for j in session.jobs.values() if j.count(TaskStatus.PENDING)]
        self._jobs: dict[str, Heap[Job]] = {}
        self._tasks: dict[str, Heap[Task]] = {}
        for job in self._waiting:
            self._jobs.setdefault(job.queue, Heap(session.job_order.key)).push(job)
            tasks: Heap[Task] = Heap(session.task_order.key)
            for task in job.having(TaskStatus.PENDING):
                tasks.push(task)
            self._tasks[job.uid] = tasks

    def run(self) -> None:
        for queue in in_queues(self._session.jobs.values()):
            jobs = self._jobs.get(queue)
            while jobs:
                job = jobs.pop()
                if self._between_jobs(job):
                    jobs.push(job)
            # Inside the loop over queues: jobs of later queues may have their tasks tried here
            # before their queue has had its turn.
            for job in self._waiting:
                self._inside_job(job)

    def _between_jobs(self, job: Job) -> bool:
        """One turn of a job; whether it may have another."""
        session, tasks = self._session, self._tasks[job.uid]
        statement = Statement(session, job)
        others = session.job_queue == session.queue_of(job).index
        others[job.index] = False
        alike = ("same queue", job.queue, job.priority)
        assigned = committed = False
        while tasks:
            assigned |= self._try(statement, tasks.pop(), others, alike=alike)
            if session.pipelined(job):
                statement.commit()
                committed = True
                break
        if not committed and not session.pipelined(job):
            statement.discard()
            return False
        return assigned

    def _inside_job(self, job: Job) -> None:
        session, tasks = self._session, self._tasks[job.uid]
        own = np.zeros(len(session.jobs), dtype=np.bool_)
        own[job.index] = True
        while tasks:
            statement = Statement(session, job)
            found = self._try(statement, tasks.pop(), own, alike=("own job",))
            statement.commit()
            if not found:
                break
        roll_back(session, job)

    # --- one task ------------------------------------------------------------------------------

    def _try(
        self, statement: Statement, task: Task, jobs: Bools, *, alike: tuple[Hashable, ...]
    ) -> bool:
        """Looks for a node on which evicting tasks of the given jobs makes room for the task."""
        session = self._session
        passing = session.passing(task)
        room = self._room(task)
        idle = idle_node(session, task, passing)
        if idle is not None and statement.allocate(task, idle.node, idle.choice):
            return True
        search = VictimSearch(
            session,
            "preemptable",
            task,
            jobs=jobs,
            passing=passing,
            order=self._least_important_first,
            room=room,
            alike=alike,
        )

        session.watched(task, search)

        def by_score(nodes: Ints) -> Iterable[int]:
            # Scores are relative to all nodes that pass, not only to those with victims.
            return session.by_score(nodes, session.scores(task, nodes, among=passing))

        candidates = search.candidates
        if room is not None:
            covering = passing & room.covering(task.start_request)
            candidates = np.union1d(candidates, np.flatnonzero(covering))
        if candidates.size:
            scores = session.scores(task, candidates, among=passing)
            for passed_over, node in enumerate(session.by_score(candidates, scores)):
                why = partial(
                    chosen,
                    node,
                    candidates,
                    scores,
                    session.nodes.names,
                    tie=ChoiceRule.LAST_NAME,
                    passed_over=passed_over,
                )
                if room is not None and task.start_request.less_equal(search.room_at(node)):
                    statement.pipeline(task, node, None, why().choice)
                    return True
                found = search.at(node)
                if found.victims:
                    freed = search.room_at(node)
                    for victim in found.victims:
                        statement.evict(victim, task)
                        freed.add(victim.request)
                        if task.start_request.less_equal(freed):
                            break
                    statement.pipeline(task, node, found.answer, why().choice)
                    return True
        statement.reject(task, search.rejection(by_score))
        return False

    def _least_important_first(self, victims: list[Task]) -> Iterable[Task]:
        return sorted(victims, key=self._session.task_order.key, reverse=True)

    # --- what rules may ask for beside ---------------------------------------------------------

    def _room(self, task: Task) -> Amounts | None:
        if not self._session.options.count_room or not may_grow(self._session, task):
            return None
        return self._session.nodes.idle.plus(self._session.nodes.releasing)
