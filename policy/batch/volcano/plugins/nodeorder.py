"""nodeorder: kube-scheduler's scorers, each 0 to 100 times its weight.

Only nodes that may take the task are scored, together. Placements of the session are seen only
where `predicates` is in the tiers too: it keeps the view of pods that the scorers read.

Source: Volcano `pkg/scheduler/plugins/nodeorder`, kube-scheduler 1.36.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np

from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.plugins.predicates import PREDICATES, incoming
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import NOWHERE, Ints
from policy.scoring.balanced_allocation import balance
from policy.scoring.least_allocated import mean_part
from policy.scoring.pod_affinity import PULLS, preferred_pulls
from policy.scoring.registry import SCORERS
from policy.scoring.resource_use import ResourceUse, assumed

_GPU: Final = "nvidia.com/gpu"
_EQUAL: Final = {CPU: 1, MEMORY: 1}
_DEFAULTS: Final[Mapping[str, int]] = {
    "leastrequested": 1,
    "mostrequested": 0,
    "nodeaffinity": 2,
    "podaffinity": 2,
    "balancedresource": 1,
    "tainttoleration": 3,
    "imagelocality": 1,
    "podtopologyspread": 2,
}


class NodeOrder(Plugin):
    name = "nodeorder"
    doc = "Scores nodes by free resources, their balance, affinity, taints, images and spread."
    arguments: ClassVar = {f"{name}.weight": int for name in _DEFAULTS}

    def __init__(self, arguments: Arguments) -> None:
        self._weight = {
            name: arguments.integer(f"{name}.weight", default=default)
            for name, default in _DEFAULTS.items()
        }

    def open(self, session: Session) -> None:
        self._session = session
        self._fixed: dict[tuple[str, bytes], Ints | None] = {}
        self._every = np.arange(len(session.nodes.names), dtype=np.int64)
        self._follows = any(use.name == PREDICATES for tier in session.rules.tiers for use in tier)
        self._at_open = session.seen.copy()
        self._pulled = bool((session.snapshot.column(PULLS) >= 0).any())
        self._count_at_open(session)
        if self._follows:
            session.on_events(
                allocate=lambda task: self._count(task, 1),
                deallocate=lambda task: self._count(task, -1),
            )
        session.register(
            self.name, node_order=self.node_order, node_order_class=self.node_order_class
        )

    # --- what nodes have in use ----------------------------------------------------------------

    def _count_at_open(self, session: Session) -> None:
        """Per shape what pods ask for, and what they are taken to ask for; per node the sums."""
        self._asked: dict[str, Ints] = {}
        self._assumed: dict[str, Ints] = {}
        self._room: dict[str, Ints] = {}
        self._used: dict[str, Ints] = {}
        self._used_assumed: dict[str, Ints] = {}
        held = np.flatnonzero(session.nodes.place != NOWHERE)
        where, shapes = session.nodes.place[held], session.task_shape[held]
        for name in (CPU, MEMORY, _GPU):
            if name not in session.nodes.row:
                continue
            row = session.nodes.row[name]
            scale = 1 if name in {CPU, MEMORY} else 1000
            asked = [int(r.get(name, 0.0)) // scale for r in session.world.requests]
            self._asked[name] = np.array(asked, dtype=np.int64)
            extra = [0] * len(asked)
            if name != _GPU:
                extra = [assumed(pod, name, on_node=False) for pod in session.world.pods]
            self._assumed[name] = np.array(extra, dtype=np.int64) + self._asked[name]
            self._room[name] = session.nodes.allocatable[row].astype(np.int64) // scale
            for of_shape, sums in (
                (self._asked[name], self._used),
                (self._assumed[name], self._used_assumed),
            ):
                sums[name] = np.zeros(self._every.size, dtype=np.int64)
                np.add.at(sums[name], where, of_shape[shapes])

    def _count(self, task: Task, sign: int) -> None:
        node = self._session.nodes.index_of(task.node)
        if node == NOWHERE:
            return
        for name in self._asked:
            self._used[name][node] += sign * self._asked[name][task.shape]
            self._used_assumed[name][node] += sign * self._assumed[name][task.shape]

    def _use(self, task: Task, name: str, nodes: Ints, *, assume: bool) -> ResourceUse:
        asked = int((self._assumed if assume else self._asked)[name][task.shape])
        used = (self._used_assumed if assume else self._used)[name][nodes]
        return ResourceUse(room=self._room[name][nodes], used=used + asked, asked=asked)

    # --- scores --------------------------------------------------------------------------------

    def node_order_class(self, task: Task) -> Hashable | None:
        """None where a node's score depends on the other nodes, or on pods of other nodes."""
        if self._weight["podaffinity"] and self._looks_at_pods(task):
            return None
        if self._weight["podtopologyspread"] and task.pod.spec.topology_spread_constraints:
            return None
        if self._weight["nodeaffinity"] and self._fixed_score("node-affinity", task) is not None:
            return None
        taints = self._fixed_score("taints", task)
        if self._weight["tainttoleration"] and taints is not None and np.ptp(taints):
            return None
        return task.shape, _images(task)

    def node_order(self, task: Task, nodes: Ints) -> Floats:
        weight = self._weight
        found = np.zeros(nodes.size, dtype=np.int64)
        if weight["leastrequested"] or weight["mostrequested"]:
            uses = {n: self._use(task, n, nodes, assume=True) for n in (CPU, MEMORY)}
            for key, most in (("leastrequested", False), ("mostrequested", True)):
                if weight[key]:
                    found += weight[key] * mean_part(uses, _EQUAL, most=most)
        if weight["balancedresource"]:
            found += weight["balancedresource"] * self._balance(task, nodes)
        if weight["imagelocality"]:
            images = self._fixed_score("image-locality", task)
            if images is not None:
                found += weight["imagelocality"] * images[nodes]
        for key, name, wanted in (
            ("nodeaffinity", "node-affinity", _prefers_nodes(task)),
            ("tainttoleration", "taints", True),
            ("podaffinity", "pod-affinity", self._looks_at_pods(task)),
            ("podtopologyspread", "topology-spread", _spreads(task)),
        ):
            if weight[key] and wanted:
                scored = self._score(name, task, nodes)
                if scored is not None:
                    found += weight[key] * scored
        return found.astype(np.float64)

    def _balance(self, task: Task, nodes: Ints) -> Ints | int:
        names = [CPU, MEMORY]
        if _GPU in self._asked and self._asked[_GPU][task.shape]:
            names.append(_GPU)
        scored = balance(
            [self._use(task, name, nodes, assume=False) for name in names], change=True
        )
        return 0 if scored is None else scored

    def _score(self, name: str, task: Task, nodes: Ints) -> Ints | None:
        """A scorer that compares the nodes with one another."""
        seen = self._session.seen if self._follows else self._at_open
        info = SCORERS[name]
        assert info.score is not None
        return info.score(incoming(self._session, task, seen), info.defaults(), nodes)

    def _fixed_score(self, name: str, task: Task) -> Ints | None:
        """What does not depend on any pod, of all nodes; shape (nodes,). None: no preference."""
        spec = task.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        reads = {
            "image-locality": _images(task),
            "node-affinity": affinity,
            "taints": spec.tolerations,
        }
        key = (name, msgspec.json.encode(reads[name]))
        if key not in self._fixed:
            info = SCORERS[name]
            assert info.score is not None
            asks = incoming(self._session, task, self._at_open)
            self._fixed[key] = info.score(asks, info.defaults(), self._every)
        return self._fixed[key]

    def _looks_at_pods(self, task: Task) -> bool:
        return self._pulled or bool(preferred_pulls(task.pod))


def _images(task: Task) -> tuple[str, ...]:
    spec = task.pod.spec
    return tuple(c.image or "" for c in (*(spec.init_containers or ()), *(spec.containers or ())))


def _prefers_nodes(task: Task) -> bool:
    affinity = task.pod.spec.affinity
    return bool(affinity and affinity.node_affinity and affinity.node_affinity.preferred)


def _spreads(task: Task) -> bool:
    return bool(task.pod.spec.topology_spread_constraints)
