"""resource-strategy-fit: fills some resources up and spreads others.

Source: Volcano `pkg/scheduler/plugins/resource-strategy-fit`; its options `sra` and `proportional`
are not modelled.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.nodes import Floats, Nodes
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.cluster import canonical
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints

_MAX: Final = 100.0
_WEIGHT: Final = 10
_MOST: Final = "MostAllocated"
_DEFAULT: Final[Mapping[str, Any]] = {CPU: {}, MEMORY: {}}


class ResourceStrategyFit(Plugin):
    name = "resource-strategy-fit"
    doc = "Scores nodes by each resource: full ones or empty ones first."
    arguments: ClassVar = {"resourceStrategyFitWeight": int, "resources": dict}

    def __init__(self, arguments: Arguments) -> None:
        weight = arguments.integer("resourceStrategyFitWeight", default=_WEIGHT)
        self._weight = weight if weight > 0 else _WEIGHT
        text = arguments.get("resources", "")
        given = canonical.parse(text) if text else {}
        self._resources = {
            name: (_weight(said), said.get("type") == _MOST if isinstance(said, Mapping) else False)
            for name, said in (given or _DEFAULT).items()
        }

    def open(self, session: Session) -> None:
        self._nodes = session.nodes
        session.register(
            self.name, node_order=self.node_order, node_order_class=self.node_order_class
        )

    def node_order_class(self, task: Task) -> Hashable:
        return task.shape

    def node_order(self, task: Task, nodes: Ints) -> Floats:
        return weighted_use(self._nodes, task, nodes, self._resources) * self._weight


def weighted_use(
    of: Nodes, task: Task, nodes: Ints, weights: Mapping[str, tuple[int, bool]]
) -> Floats:
    """Mean use of the nodes with the task, from 0 to 100; 0 of a node that would be overfull.

    nodes: (n,) indices. weights: of the resources that count, each with whether what is used counts
    or what is left; one with weight 0 has no say in what is overfull. Returns (n,).
    """
    found = np.zeros(nodes.size)
    fits = np.ones(nodes.size, dtype=np.bool_)
    total = 0
    for name in resources.names(task.request):
        weight, most = weights.get(name, (0, False))
        if not weight:
            continue
        total += weight
        row = of.row[name]
        room = of.allocatable[row, nodes]
        wanted = of.used[row, nodes] + task.request[name]
        known = room != 0
        fits &= ~known | (wanted <= room)
        part = (wanted if most else room - wanted) * weight
        found += np.where(known, part / np.where(known, room, 1.0), 0.0)
    if total:
        found = found / total
    return np.where(fits, found * _MAX, 0.0)


def _weight(said: Any) -> int:
    weight = said.get("weight") if isinstance(said, Mapping) else None
    return weight if isinstance(weight, int) and weight > 0 else 1
