"""preempt: makes room inside a queue by evicting tasks of other jobs, then inside each job.

What a job takes from others it takes as a statement: as much as the job needs, or nothing. Room
that is free counts, so a task that fits costs no pod; it is promised the room, and placed by the
next session.

Source: Volcano `pkg/scheduler/actions/preempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import numpy as np

from policy.batch.choosing import ChosenNode, chosen
from policy.batch.heap import Heap
from policy.batch.plugins.base import go_boolean
from policy.batch.recording import ChoiceRule
from policy.batch.volcano.actions.base import Action, jobs_by_queue, queues_of, waiting_tasks
from policy.batch.volcano.actions.errors import RoleErrors, remembers
from policy.batch.volcano.actions.topology import TopologySearch
from policy.batch.volcano.framework.model import Job, Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.statement import Statement
from policy.batch.volcano.framework.victims import VictimSearch
from policy.cluster.tables import NOWHERE, Bools

TOPOLOGY_AWARE = "enableTopologyAwarePreemption"


class Preempt(Action):
    name = "preempt"
    doc = "Evicts tasks of the same queue, then of the same job, for jobs that starve."
    arguments: ClassVar = {
        TOPOLOGY_AWARE: False,
        "predicateErrorCacheEnable": True,
        "topologyAwarePreemptWorkerNum": 16,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 1,
        "maxCandidateNodesAbsolute": 100,
    }

    def run(self, session: Session) -> None:
        _Preemption(session).run()


class _Preemption:
    def __init__(self, session: Session) -> None:
        self._session = session
        given = session.arguments_of(Preempt.name)
        self._topology = None
        if go_boolean(given.get(TOPOLOGY_AWARE, "")):
            self._topology = TopologySearch(session, given)
        self._errors = RoleErrors(enabled=remembers(session, Preempt.name))
        self._starving = [
            job
            for job in session.jobs.values()
            if not job.pending and session.dispatch.valid(job) and session.dispatch.starving(job)
        ]

    def run(self) -> None:
        session = self._session
        jobs = jobs_by_queue(session, self._starving)
        tasks = {job.uid: waiting_tasks(session, job, best_effort=True) for job in self._starving}
        active = [
            job for job in session.jobs.values() if not job.pending and session.dispatch.valid(job)
        ]
        queues = queues_of(session, active)
        while queues:
            queue = queues.pop()
            of_queue = jobs.get(queue.name)
            while of_queue:
                job = of_queue.pop()
                self._between_jobs(job, tasks[job.uid])
            for job in self._starving:
                if job.queue == queue.name:
                    self._inside_job(job)

    def _between_jobs(self, job: Job, tasks: Heap[Task]) -> None:
        session = self._session
        statement = Statement(session, job)
        others = session.job_queue == session.queue_of(job).index
        others[job.index] = False
        while tasks and session.dispatch.starving(job):
            self._try(statement, tasks.pop(), others)
        if session.dispatch.pipelined(job):
            statement.commit()
        else:
            statement.discard()

    def _inside_job(self, job: Job) -> None:
        session = self._session
        tasks = waiting_tasks(session, job, best_effort=True)
        own = np.zeros(len(session.jobs), dtype=np.bool_)
        own[job.index] = True
        while tasks:
            statement = Statement(session, job)
            if not self._try(statement, tasks.pop(), own):
                statement.discard()
                return
            statement.commit()

    # --- one task ------------------------------------------------------------------------------

    def _try(self, statement: Statement, task: Task, jobs: Bools) -> bool:
        """Looks for a node on which evicting tasks of the given jobs makes room for the task."""
        session = self._session
        if task.pod.spec.preemption_policy == "Never" or not self._may_preempt_again(task):
            return False
        curable = session.answers.curable(task)
        known = session.unresolvable.get(task.index)
        if known is not None:
            curable = curable & ~known
        curable = self._errors.left(task, curable)
        search = VictimSearch(
            session, "preemptable", task, jobs=jobs, passing=curable, bound_too=True
        )
        session.watched(task, search)
        scores = self._scores(task, search)
        if self._topology is not None:
            if self._topology.place(statement, task, search):
                return True
        else:
            for passed_over, node in enumerate(_by_score(search, scores)):
                best = partial(
                    chosen,
                    node,
                    search.candidates,
                    scores,
                    session.nodes.names,
                    tie=ChoiceRule.FIRST_NAME,
                    passed_over=passed_over,
                )
                if self._take(statement, task, search, node, best):
                    return True
        statement.reject(task, search.rejection(_by_score(search, scores)))
        return False

    def _may_preempt_again(self, task: Task) -> bool:
        """A task that waits for the victims of an earlier preemption takes no further ones."""
        name = task.pod.status.nominated_node_name
        if not name:
            return True
        session = self._session
        node = session.nodes.index_of(name)
        if node == NOWHERE or session.answers.passes_at(task, node):
            return False
        return not any(_leaves_for(other, task) for other in session.nodes.tasks(node))

    def _scores(self, task: Task, search: VictimSearch) -> Floats:
        """Of the candidates."""
        if not search.candidates.size:
            return np.zeros(0)
        # Scores compare all nodes that pass, not only those with victims enough.
        every = np.flatnonzero(search.passing)
        scores = np.zeros(search.passing.size)
        scores[every] = self._session.answers.scores(task, every)
        return np.asarray(scores[search.candidates])

    def _take(
        self,
        statement: Statement,
        task: Task,
        search: VictimSearch,
        node: int,
        best: Callable[[], ChosenNode],
    ) -> bool:
        """Evicts on the node until the task fits and its queue may have it."""
        found = search.at(node)
        if not found.enough:
            return False
        mark = statement.mark()
        victims = search.in_order(found)
        fits = self._session.fits(task, node)
        while victims and not fits:
            statement.evict(victims.pop(), task)
            fits = self._session.fits(task, node)
        if fits and statement.pipeline(task, best(), found.answer):
            return True
        statement.back_to(mark)
        return False


def _by_score(search: VictimSearch, scores: Floats) -> Iterator[int]:
    """Candidates, the best first; of equal ones the first in name order."""
    nodes = search.candidates
    yield from map(int, nodes[np.lexsort((nodes, -scores))])


def _leaves_for(other: Task, task: Task) -> bool:
    """Is it a less important pod that a scheduler marked to leave?"""
    if other.pod.metadata.deletion_timestamp is None or other.priority >= task.priority:
        return False
    return any(
        c.type == "DisruptionTarget" and c.status == "True" and c.reason == "PreemptionByScheduler"
        for c in other.pod.status.conditions or ()
    )
