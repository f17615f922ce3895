"""binpack: fills nodes up, the resources that matter most first.

Source: Volcano `pkg/scheduler/plugins/binpack`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.plugins.resource_strategy_fit import weighted_use
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints

_RESOURCES = "binpack.resources"


class BinPack(Plugin):
    name = "binpack"
    doc = "Scores nodes by how full the task would make them."
    arguments: ClassVar = {
        "binpack.weight": int,
        "binpack.cpu": int,
        "binpack.memory": int,
        _RESOURCES: str,
        f"{_RESOURCES}.*": int,
    }

    def __init__(self, arguments: Arguments) -> None:
        def weight(name: str) -> int:
            found = arguments.integer(name, default=1)
            return 1 if found < 0 else found

        self._weight = weight("binpack.weight")
        self._weights = {
            CPU: (weight("binpack.cpu"), True),
            MEMORY: (weight("binpack.memory"), True),
        }
        for name in arguments.get(_RESOURCES, "").split(","):
            if name.strip():
                self._weights[name.strip()] = (weight(f"{_RESOURCES}.{name.strip()}"), True)

    def open(self, session: Session) -> None:
        self._nodes = session.nodes
        if self._weight:
            session.register(
                self.name,
                node_order=self.node_order,
                node_order_class=self.node_order_class,
            )

    def node_order_class(self, task: Task) -> Hashable:
        return task.shape

    def node_order(self, task: Task, nodes: Ints) -> Floats:
        return weighted_use(self._nodes, task, nodes, self._weights) * self._weight
