"""Topology-aware preemption: the fewest victims on each of some nodes, and the best node of them.

On each node victims are removed until the task fits, affinity to other pods included, and then
those that can stay are given back, the most important first: what kube-scheduler does.

Source: Volcano `pkg/scheduler/actions/preempt` (enableTopologyAwarePreemption).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy.batch.choosing import ChosenNode
from policy.batch.model import TaskStatus
from policy.batch.recording import ChoiceRule, NodeChoice
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.statement import Statement
from policy.batch.volcano.framework.victims import NodeVictims, VictimSearch
from policy.cluster import times
from policy.cluster.selectors import go_integer

_OFFSET = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    node: int
    victims: list[Task]  #: who leaves, the most important first
    found: NodeVictims


class TopologySearch:
    """The search with its arguments."""

    def __init__(self, session: Session, arguments: Mapping[str, str]) -> None:
        self._session = session

        def number(name: str, default: int) -> int:
            found = go_integer(arguments.get(name, ""))
            return default if found is None else found

        self._percentage = number("minCandidateNodesPercentage", 10)
        self._least = number("minCandidateNodesAbsolute", 1)
        self._most = number("maxCandidateNodesAbsolute", 100)

    def place(self, statement: Statement, task: Task, search: VictimSearch) -> bool:
        """Evicts on the best node and promises it to the task; False where there is none."""
        wanted = len(self._session.nodes.names) * self._percentage // 100
        wanted = min(max(wanted, self._least), self._most)
        candidates: list[_Candidate] = []
        for node in search.candidates.tolist():
            found = search.at(node)
            if not found.victims:
                continue
            victims = self._minimal(task, search, found, node)
            if victims:
                candidates.append(_Candidate(node=node, victims=victims, found=found))
                if len(candidates) >= wanted:
                    break
        if not candidates:
            return False
        best = min(candidates, key=_rank)
        for victim in best.victims:
            statement.evict(victim, task)
        rule = ChoiceRule.FEWEST_LOSSES if len(candidates) > 1 else ChoiceRule.ONLY
        choice = NodeChoice(rule=rule, nodes=len(candidates))
        return statement.pipeline(
            task, ChosenNode(node=best.node, choice=choice), best.found.answer
        )

    def _minimal(
        self, task: Task, search: VictimSearch, found: NodeVictims, node: int
    ) -> list[Task]:
        """Victims without which the task would not fit; empty where it does not fit at all."""
        session = self._session
        gone: list[Task] = []
        before = {t.index: t.status for t in found.victims}
        heap = search.in_order(found)
        session.simulating = True
        try:
            while heap and not self._session.fits(task, node):
                victim = heap.pop()
                session.release(victim)
                gone.append(victim)
            if not self._session.fits(task, node):
                return []
            kept = []
            for victim in sorted(gone, key=_importance):
                session.restore(victim, before[victim.index])
                if not self._session.fits(task, node):
                    session.release(victim)
                    kept.append(victim)
            return kept
        finally:
            for victim in gone:
                if victim.status is TaskStatus.RELEASING:
                    session.restore(victim, before[victim.index])
            session.simulating = False


def _priority(task: Task) -> int:
    return task.pod.spec.priority or 0


def _started(task: Task) -> int:
    return times.parse_optional(task.pod.status.start_time)


def _importance(task: Task) -> tuple[int, int, str]:
    """Higher priority first, then who started earlier."""
    return -_priority(task), _started(task), task.key


def _rank(candidate: _Candidate) -> tuple[int, int, int, int, int]:
    """The node with the least comes first.

    1. Lowest priority of the first victim.  2. Smallest sum of priorities, moved above 0.
    3. Fewest victims.  4. The latest start of the earliest of the top victims.  5. Its name.
    """
    victims = candidate.victims
    top = max(_priority(v) for v in victims)
    earliest = min(_started(v) for v in victims if _priority(v) == top)
    total = sum(_priority(v) + _OFFSET for v in victims)
    return _priority(victims[0]), total, len(victims), -earliest, candidate.node
