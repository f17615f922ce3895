"""nodegroup: queues that may use some groups of nodes only, or prefer them.

Source: Volcano `pkg/scheduler/plugins/nodegroup`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.batch.volcano.framework.model import ROOT, Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin
from policy.cluster.objects import QueueAffinity
from policy.cluster.tables import Ints
from policy.filters.base import SUCCESS, UNRESOLVABLE, Codes

LABEL: Final = "volcano.sh/nodegroup-name"
_SCORE: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """What a queue's affinity says of node groups."""

    required: frozenset[str] = frozenset()
    preferred: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()

    @staticmethod
    def of(affinity: QueueAffinity) -> _Groups:
        to, away = affinity.node_group_affinity, affinity.node_group_anti_affinity
        return _Groups(
            required=frozenset((to.required if to else None) or ()),
            preferred=frozenset((to.preferred if to else None) or ()),
            forbidden=frozenset((away.required if away else None) or ()),
            avoided=frozenset((away.preferred if away else None) or ()),
        )


class NodeGroup(Plugin):
    name = "nodegroup"
    doc = "Keeps tasks to the node groups that their queue requires; scores those it prefers."

    def open(self, session: Session) -> None:
        self._session = session
        self._groups = [
            (node.metadata.labels or {}).get(LABEL, "") for node in session.snapshot.nodes.nodes
        ]
        self._inherits = self.hierarchical(session)
        self._known: dict[str, tuple[Codes, Floats]] = {}
        session.register(
            self.name,
            predicate=lambda task: self._of(task)[0].copy(),
            predicate_class=self._queue,
            predicate_at=lambda task, nodes: self._of(task)[0][nodes],
            node_order=self._score,
            node_order_class=self._queue,
        )

    def _queue(self, task: Task) -> str:
        return self._session.jobs[task.job].queue

    def _score(self, task: Task, nodes: Ints) -> Floats:
        return np.asarray(self._of(task)[1][nodes])

    def _of(self, task: Task) -> tuple[Codes, Floats]:
        queue = self._queue(task)
        found = self._known.get(queue)
        if found is None:
            found = self._known[queue] = self._judge(queue)
        return found

    def _affinity(self, name: str) -> _Groups | None:
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            queue = self._session.queues.get(name)
            if queue is None:
                return None
            affinity = queue.queue.spec.affinity
            if affinity is not None:
                return _Groups.of(affinity)
            if not self._inherits or name == ROOT:
                return None
            name = queue.parent or ROOT
        return None

    def _judge(self, queue: str) -> tuple[Codes, Floats]:
        wanted = self._affinity(queue)
        size = len(self._groups)
        codes = np.full(size, SUCCESS, dtype=np.int8)
        scores = np.zeros(size)
        for i, group in enumerate(self._groups):
            if wanted is None:
                continue
            missing = bool(wanted.required) and group not in wanted.required
            if missing or group in wanted.forbidden:
                codes[i] = UNRESOLVABLE
            elif group in wanted.preferred:
                scores[i] = _SCORE
            elif group in wanted.avoided:
                scores[i] = -_SCORE
        return codes, scores
