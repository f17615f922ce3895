"""Looking for victims: which nodes may yield enough, and what the plugins say about one node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from policy.batch.heap import Heap
from policy.batch.model import TaskStatus
from policy.batch.recording import NodeAnswer, Reason, Rejection
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.resources import EPSILON
from policy.batch.volcano.framework.session import Session
from policy.cluster.tables import NOWHERE, Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVictims:
    """What one node may yield."""

    victims: list[Task]  #: accepted, in the order of the node's tasks
    enough: bool  #: would the task fit, were they gone?
    answer: NodeAnswer


class VictimSearch:
    """One task's search for victims among the tasks of some jobs."""

    def __init__(
        self,
        session: Session,
        kind: str,
        claimant: Task,
        *,
        jobs: Bools,
        passing: Bools,
        bound_too: bool,
        someone: bool = False,
    ) -> None:
        """kind: preemptable or reclaimable; jobs: (jobs,) whose tasks may be asked about.

        passing: (nodes,) that may take the task, evictions granted. bound_too: tasks that have
        not started may go as well. someone: nodes without any such task are left out.
        """
        self._session = session
        self._kind = kind
        self._claimant = claimant
        self._jobs = jobs
        self.passing = passing
        self._bound_too = bound_too
        self._someone = someone

    @cached_property
    def candidates(self) -> Ints:
        """Nodes, in name order, on which the task would fit if every such task left."""
        session, nodes = self._session, self._session.nodes
        among = np.flatnonzero(nodes.running & session.task_preemptable)
        among = among[session.task_job[among] != NOWHERE]
        among = among[self._jobs[session.task_job[among]]]
        where = nodes.place[among]
        size = len(nodes.names)
        found = self.passing.copy()
        if self._someone:
            found &= np.bincount(where, minlength=size) > 0
        requests = session.task_requests[:, session.task_shape[among]]
        for row, value in nodes.needs[self._claimant.shape]:
            room = nodes.future[row] + np.bincount(where, requests[row], size)
            found &= value - room < EPSILON
        return np.flatnonzero(found)

    def potential(self, node: int) -> list[Task]:
        """Tasks of the node that the plugins are asked about, in order of namespace/name."""
        session = self._session
        statuses = (
            {TaskStatus.RUNNING, TaskStatus.BOUND} if self._bound_too else {TaskStatus.RUNNING}
        )
        only_idlers = self._bound_too and self._claimant.best_effort
        return [
            task
            for task in session.nodes.tasks(node)
            if task.preemptable
            and task.status in statuses
            and task.job in session.jobs
            and self._jobs[session.jobs[task.job].index]
            and (task.best_effort or not only_idlers)
        ]

    def at(self, node: int) -> NodeVictims:
        """What the plugins say about evicting tasks of the node."""
        session = self._session
        potential = self.potential(node)
        said = session.evictable(self._kind, self._claimant, potential)
        freed = session.nodes.requests_of(said.tasks)
        enough = session.nodes.has_future(self._claimant, node, freed)
        if self._someone and not potential:
            enough = False
        if enough:
            verdict = Reason.CHOSEN
        elif said.tasks:
            verdict = Reason.NOT_ENOUGH_VICTIMS
        else:
            verdict = Reason.VICTIMS_VETOED if potential else Reason.NO_POTENTIAL_VICTIMS
        answer = NodeAnswer(
            node=session.nodes.names[node],
            potential=tuple(t.key for t in potential),
            vetoes={name: tuple(t.key for t in tasks) for name, tasks in said.spared.items()},
            victims=tuple(t.key for t in said.tasks),
            verdict=verdict,
            tier=said.tier,
            protections=session.dispatch.protections(self._kind, self._claimant, potential, said),
        )
        return NodeVictims(victims=said.tasks, enough=enough, answer=answer)

    def in_order(self, found: NodeVictims) -> Heap[Task]:
        """The victims; who is evicted first comes out first."""
        session = self._session
        return session.dispatch.in_victim_order(
            found.victims, self._claimant, jobs=session.jobs, queues=session.queues
        )

    def rejection(self, candidates: Iterator[int]) -> Rejection:
        """Why no node was found. candidates: as they were tried."""
        session = self._session
        counts: dict[str, int] = {}
        answers = tuple(
            self.at(node).answer for node in islice(candidates, session.rules.recorded_nodes)
        )
        rejected = session.answers.rejected(self._claimant, among=~self.passing)
        short = int(self.passing.sum()) - self.candidates.size
        if self.candidates.size:
            counts[Reason.VICTIMS_VETOED.value] = self.candidates.size
        if short:
            counts[Reason.NOT_ENOUGH_VICTIMS.value] = short
        return Rejection(nodes=counts | rejected, answers=answers)
