"""nodeorder: scores of nodes, each 0 to 10 times its weight.

Source: the priority functions of Kubernetes 1.16 (least and most requested, balanced allocation,
node affinity, inter-pod affinity). Only nodes that may take the task are scored, and the scores of
the affinities are relative to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.batch.functions import Scores
from policy.batch.model import Task
from policy.batch.plugins.base import Arguments, Plugin
from policy.batch.plugins.pod_affinity import PodAffinityScores
from policy.batch.views import PluginView
from policy.cluster import quantities
from policy.cluster.objects import NodeSelectorTerm, Pod
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.selectors import RequiredNodes, compile_node_term
from policy.cluster.tables import NOWHERE, Ints
from policy.filters.node_affinity import matching_nodes

MAX = 10
DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024


class NodeOrder(Plugin):
    name = "nodeorder"
    doc = "Scores nodes by free resources, their balance, and affinity."
    arguments: ClassVar[Mapping[str, bool | int]] = {
        "leastrequested.weight": 1,
        "mostrequested.weight": 0,
        "nodeaffinity.weight": 1,
        "podaffinity.weight": 1,
        "balancedresource.weight": 1,
    }

    def __init__(self, arguments: Arguments) -> None:
        self._weight = {
            name.removesuffix(".weight"): arguments.integer(name, default=int(default))
            for name, default in self.arguments.items()
        }

    def open(self, session: PluginView) -> None:
        self._session = session
        size = len(session.nodes.names)
        allocatable = session.nodes.allocatable
        self._capacity = (allocatable.cpu.astype(np.int64), allocatable.memory.astype(np.int64))
        self._requested = (np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
        self._preferred: dict[bytes, Ints | None] = {}
        self._asked = [nonzero_requests(pod) for pod in session.shapes.pods]  #: by shape
        held = np.flatnonzero(session.nodes.place != NOWHERE)
        asked = np.array(self._asked, dtype=np.int64).reshape(-1, 2)[session.task_shape[held]]
        for column, requested in enumerate(self._requested):
            np.add.at(requested, session.nodes.place[held], asked[:, column])
        session.nodes.watchers.append(self._count)
        self._pod_affinity = PodAffinityScores(session)
        session.register(
            self.name, node_order=self.node_order, node_order_class=self.node_order_class
        )

    def node_order(self, task: Task, nodes: Ints) -> Scores:
        weight = self._weight
        found = np.zeros(nodes.size, dtype=np.int64)
        cpu_asked, memory_asked = self._asks(task)
        cpu = self._requested[0][nodes] + cpu_asked
        memory = self._requested[1][nodes] + memory_asked
        cpu_cap, memory_cap = self._capacity[0][nodes], self._capacity[1][nodes]
        if weight["leastrequested"]:
            found += weight["leastrequested"] * (
                (_unused(cpu, cpu_cap) + _unused(memory, memory_cap)) // 2
            )
        if weight["mostrequested"]:
            found += weight["mostrequested"] * (
                (_used(cpu, cpu_cap) + _used(memory, memory_cap)) // 2
            )
        if weight["balancedresource"]:
            found += weight["balancedresource"] * _balance(cpu, cpu_cap, memory, memory_cap)
        if weight["nodeaffinity"]:
            preferred = self._node_affinity(task)
            if preferred is not None:
                raw = preferred[nodes]
                top = int(raw.max(initial=0))
                if top:
                    found += weight["nodeaffinity"] * (MAX * raw // top)
        if weight["podaffinity"]:
            scored = self._pod_affinity.scores(task, nodes)
            if scored is not None:
                found += weight["podaffinity"] * scored
        return found.astype(np.float64)

    def node_order_class(self, task: Task) -> tuple[int, int] | None:
        """None where affinity makes a node's score depend on the other nodes that are scored."""
        if self._weight["nodeaffinity"] and self._node_affinity(task) is not None:
            return None
        if self._weight["podaffinity"] and self._pod_affinity.counts(task):
            return None
        return self._asks(task)

    def _asks(self, task: Task) -> tuple[int, int]:
        return self._asked[task.shape]

    def _count(self, node: int, task: Task, sign: int) -> None:
        cpu, memory = self._asks(task)
        self._requested[0][node] += sign * cpu
        self._requested[1][node] += sign * memory

    def _node_affinity(self, task: Task) -> Ints | None:
        """Sum of the weights of preferred terms that match each node; None without terms."""
        affinity = task.pod.spec.affinity
        if affinity is None or affinity.node_affinity is None:
            return None
        terms = affinity.node_affinity.preferred
        if not terms:
            return None
        key = msgspec.json.encode(terms)
        if key not in self._preferred:
            table = self._session.snapshot.nodes
            found = np.zeros(len(table), dtype=np.int64)
            for preferred in terms:
                expressions = preferred.preference.match_expressions
                compiled = compile_node_term(NodeSelectorTerm(match_expressions=expressions))
                if preferred.weight and compiled is not None:
                    required = RequiredNodes(selector=(), terms=(compiled,))
                    found += preferred.weight * matching_nodes(table, required)
            self._preferred[key] = found
        return self._preferred[key]


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Milli cpu and bytes of the containers; one that names none counts a small amount."""
    cpu = memory = 0
    for container in pod.spec.containers or ():
        requests = (container.resources.requests if container.resources else None) or {}
        cpu += quantities.milli(requests[CPU]) if CPU in requests else DEFAULT_CPU_MILLI
        memory += quantities.units(requests[MEMORY]) if MEMORY in requests else DEFAULT_MEMORY_BYTES
    return cpu, memory


def _unused(asked: Ints, capacity: Ints) -> Ints:
    """(capacity - asked) * 10 / capacity in whole numbers; 0 where it does not fit."""
    fits = (capacity != 0) & (asked <= capacity)
    return np.where(fits, (capacity - asked) * MAX // np.where(fits, capacity, 1), 0)


def _used(asked: Ints, capacity: Ints) -> Ints:
    fits = (capacity != 0) & (asked <= capacity)
    return np.where(fits, asked * MAX // np.where(fits, capacity, 1), 0)


def _balance(cpu: Ints, cpu_cap: Ints, memory: Ints, memory_cap: Ints) -> Ints:
    """10 where cpu and memory are used alike, less where one is used more than the other."""
    of_cpu, of_memory = _fraction(cpu, cpu_cap), _fraction(memory, memory_cap)
    balance = ((1 - np.abs(of_cpu - of_memory)) * float(MAX)).astype(np.int64)
    return np.where((of_cpu >= 1) | (of_memory >= 1), 0, balance)


def _fraction(asked: Ints, capacity: Ints) -> NDArray[np.float64]:
    known = capacity != 0
    return np.where(known, asked / np.where(known, capacity, 1), 1.0)
