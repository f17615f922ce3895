"""Looking for victims: which nodes may yield enough, and what the plugins say about one node.

Plugins decide about the tasks of one node at a time. Asking them about every node would take most
of a session, so those that can tell at once what they will never accept (hints) first leave the
nodes that may yield enough; a hint only spares questions and never answers one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from policy.batch.model import Task, TaskStatus
from policy.batch.recording import NodeAnswer, Protection, Reason, Rejection
from policy.batch.resources import (
    CPU_EPSILON,
    MEMORY_EPSILON,
    SCALAR_EPSILON,
    Amounts,
    Floats,
    Resource,
    total,
)
from policy.batch.totals import Totals
from policy.batch.views import ActionView
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Bools, Ints

KEEP_GANGS = "keepGangs"
"""Name under which the rules' option speaks among the plugins."""

Ordered = Callable[[list[Task]], Iterable[Task]]
"""The order in which victims go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVictims:
    """The victims of one node in the order in which they go; empty where it yields too little."""

    victims: tuple[Task, ...]
    answer: NodeAnswer


class VictimSearch:
    """The search for victims for one task."""

    def __init__(
        self,
        session: ActionView,
        kind: str,
        claimant: Task,
        *,
        jobs: Bools,
        passing: Bools,
        order: Ordered,
        room: Amounts | None,
        alike: tuple[Hashable, ...],
    ) -> None:
        """kind: `preemptable` or `reclaimable`; jobs: (jobs,) whose running tasks are looked at.

        alike: equal for searches that ask about nearly the same tasks; only speed depends on it.
        passing: (nodes,) nodes that the claimant may use. room: per node, what counts towards the
        need beside the victims.
        """
        self._session = session
        self._kind = kind
        self._chain = session.deciding(kind)
        self._claimant = claimant
        self._jobs = jobs
        self._passing = passing
        self._order = order
        self._room = room
        self._alike = alike
        self._exact: dict[int, NodeAnswer] = {}

    # --- all nodes at once ---------------------------------------------------------------------

    @cached_property
    def _potential(self) -> Totals:
        """The running tasks that the action may ask about."""
        return self._session.running.totals((self._kind, *self._alike), self._jobs, None)

    @cached_property
    def _hints(self) -> tuple[list[tuple[str, Bools]], list[tuple[str, Bools]]]:
        """Plugin of the deciding tier -> jobs, and tasks, that it may accept, where it can tell."""
        of_jobs, of_tasks = [], []
        for consulted in self._chain:
            jobs = self._session.hint(f"{self._kind}_jobs", consulted.plugin)
            if jobs is not None:
                of_jobs.append((consulted.plugin, jobs(self._claimant)))
            tasks = self._session.hint(f"{self._kind}_tasks", consulted.plugin)
            if tasks is not None:
                of_tasks.append((consulted.plugin, tasks(self._claimant)))
        return of_jobs, of_tasks

    @cached_property
    def _eligible(self) -> Totals:
        """The potential tasks that no hint rules out."""
        of_jobs, of_tasks = self._hints
        jobs, tasks = self._jobs, None
        for _, accepted in of_jobs:
            jobs = jobs & accepted
        for _, accepted in of_tasks:
            tasks = accepted if tasks is None else tasks & accepted
        name = (self._kind, "eligible", *self._alike)
        return self._session.running.totals(name, jobs, tasks)

    @cached_property
    def candidates(self) -> Ints:
        """Nodes that may yield enough, in name order."""
        if not self._chain or not self._potential.per_node.any():
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self._passing & (self._eligible.per_node > 0) & self._enough())

    def _enough(self) -> Bools:
        """Nodes on which the eligible tasks' requests in sum cover the need; shape (nodes,)."""
        need, sums = self._claimant.start_request, self._eligible
        size = self._passing.size
        room = Amounts.zeros(size, need.scalars or ()) if self._room is None else self._room

        def missing(asked: float, name: str, extra: Floats) -> Floats:
            return asked - (sums.amount(name) + extra)

        found = missing(need.cpu, CPU, room.cpu) < CPU_EPSILON
        found &= missing(need.memory, MEMORY, room.memory) < MEMORY_EPSILON
        for name, asked in (need.scalars or {}).items():
            if asked > SCALAR_EPSILON:
                found &= missing(asked, name, room.scalars[name]) < SCALAR_EPSILON
        return found

    # --- one node ------------------------------------------------------------------------------

    def at(self, node: int) -> NodeVictims:
        """Asks the plugins about the tasks of one node."""
        session = self._session
        potential = [
            held.task
            for held in session.nodes.tasks(node)
            if held.status is TaskStatus.RUNNING and self._asks_about(held.task)
        ]
        accepted, vetoes, protections = self._ask(potential)
        ordered = tuple(self._order(accepted))
        if session.options.keep_gangs:
            ordered, spared = self._above_minimum(ordered)
            if spared:
                vetoes[KEEP_GANGS] = spared
        if not ordered:
            verdict = Reason.VICTIMS_VETOED if potential else Reason.NO_POTENTIAL_VICTIMS
        elif self._claimant.start_request.less_equal(self._freed(node, ordered)):
            verdict = Reason.CHOSEN
        else:
            verdict = Reason.NOT_ENOUGH_VICTIMS
        answer = NodeAnswer(
            node=session.nodes.names[node],
            potential=tuple(t.key for t in potential),
            vetoes=vetoes,
            victims=tuple(t.key for t in ordered),
            verdict=verdict,
            protections=protections,
        )
        self._exact[node] = answer
        return NodeVictims(victims=ordered if verdict is Reason.CHOSEN else (), answer=answer)

    def _asks_about(self, task: Task) -> bool:
        job = self._session.jobs.get(task.job)
        return job is not None and bool(self._jobs[job.index])

    def _ask(
        self, potential: list[Task]
    ) -> tuple[list[Task], dict[str, tuple[str, ...]], tuple[Protection, ...]]:
        """What all functions of the deciding tier accept, in the order of the first answer.

        With it plugin -> tasks that it spared, and the limits of those that have numbers.
        """
        accepted: list[Task] | None = None
        vetoes: dict[str, tuple[str, ...]] = {}
        protections: list[Protection] = []
        for consulted in self._chain:
            answer = consulted.function(self._claimant, potential)
            kept = {task.uid for task in answer}
            accepted = answer if accepted is None else [t for t in accepted if t.uid in kept]
            spared = tuple(t.key for t in potential if t.uid not in kept)
            if spared:
                vetoes[consulted.plugin] = spared
                limits = self._session.hint(f"{self._kind}_limits", consulted.plugin)
                protections += () if limits is None else limits(self._claimant, potential)
        return accepted or [], vetoes, tuple(protections)

    def _above_minimum(self, victims: tuple[Task, ...]) -> tuple[tuple[Task, ...], tuple[str, ...]]:
        """The victims that leave every gang its minimum, and those that do not.

        A job whose minimum is 1 is no gang: it may lose its last task, or lone pods could never
        be preempted.
        """
        left: dict[str, int] = {}
        taken, spared = [], []
        for victim in victims:
            job = self._session.jobs[victim.job]
            ready = left.setdefault(job.uid, job.ready)
            if job.minimum > 1 and ready - 1 < job.minimum:
                spared.append(victim.key)
                continue
            left[job.uid] = ready - 1
            taken.append(victim)
        return tuple(taken), tuple(spared)

    def _freed(self, node: int, victims: Iterable[Task]) -> Resource:
        freed = self.room_at(node)
        return freed.add(total(v.request for v in victims))

    def room_at(self, node: int) -> Resource:
        """What counts towards the need on a node before anybody leaves."""
        return Resource() if self._room is None else self._room.at(node)

    # --- no victim -----------------------------------------------------------------------------

    def rejection(self, best: Callable[[Ints], Iterable[int]]) -> Rejection:
        """Why no node was found. best: nodes in the order in which they would be tried."""
        session = self._session
        counts = dict(session.rejected(self._claimant))
        passing = np.flatnonzero(self._passing)
        has_potential = self._potential.per_node > 0
        if not has_potential.any():
            _count(counts, Reason.NO_POTENTIAL_VICTIMS, passing.size)
            return Rejection(nodes=counts)
        has_eligible = self._eligible.per_node > 0
        for node in self._told(passing[has_potential[passing]], best):
            self.at(node)
        known = np.zeros(has_potential.size, dtype=np.bool_)
        for node, answer in self._exact.items():
            known[node] = True
            _count(counts, answer.verdict, 1)
        rest = self._passing & ~known
        _count(counts, Reason.NO_POTENTIAL_VICTIMS, int((rest & ~has_potential).sum()))
        _count(counts, Reason.VICTIMS_VETOED, int((rest & has_potential & ~has_eligible).sum()))
        _count(counts, Reason.NOT_ENOUGH_VICTIMS, int((rest & has_eligible).sum()))
        answers = tuple(self._exact[node] for node in sorted(self._exact))
        wanted = session.recorded_nodes
        return Rejection(nodes=counts, vetoes=self._vetoes(), answers=answers[:wanted])

    def _vetoes(self) -> dict[str, int]:
        """Plugin -> potential tasks that its hints rule out."""
        of_jobs, of_tasks = self._hints
        found: dict[str, int] = {}
        for plugin, accepted in of_jobs:
            _count(found, plugin, int(np.dot(self._potential.per_job, ~accepted)))
        for plugin, accepted in of_tasks:
            _count(found, plugin, self._potential.counted(np.flatnonzero(~accepted)))
        return found

    def _told(self, nodes: Ints, best: Callable[[Ints], Iterable[int]]) -> list[int]:
        missing = self._session.recorded_nodes - len(self._exact)
        if missing <= 0:
            return []
        return list(islice((node for node in best(nodes) if node not in self._exact), missing))


def _count(counts: dict[str, int], reason: str, number: int) -> None:
    if number:
        counts[reason] = counts.get(reason, 0) + number
