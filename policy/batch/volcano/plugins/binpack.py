"""binpack: fills nodes up, the resources that matter most first.

Source: Volcano `pkg/scheduler/plugins/binpack`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints

_MAX = 100.0
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
        self._weights = {CPU: weight("binpack.cpu"), MEMORY: weight("binpack.memory")}
        for name in arguments.get(_RESOURCES, "").split(","):
            if name.strip():
                self._weights[name.strip()] = weight(f"{_RESOURCES}.{name.strip()}")

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
        found = np.zeros(nodes.size)
        fits = np.ones(nodes.size, dtype=np.bool_)
        weights = 0
        for name in resources.names(task.request):
            weight = self._weights.get(name)
            if weight is None:
                continue
            weights += weight
            row = self._nodes.row[name]
            room = self._nodes.allocatable[row, nodes]
            if not weight:
                continue
            wanted = self._nodes.used[row, nodes] + task.request[name]
            known = room != 0
            fits &= ~known | (wanted <= room)
            found += np.where(known, weight * wanted / np.where(known, room, 1.0), 0.0)
        if weights:
            found = found / weights
        return np.where(fits, found * _MAX * self._weight, 0.0)
