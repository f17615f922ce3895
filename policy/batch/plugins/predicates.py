"""predicates: which nodes may take a task, whatever room they have.

The checks are the engine's filters with kube-batch's parameters. What a filter reads of other pods
is where the session has them: the snapshot is looked at with the pods in other places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from policy.batch.model import Task
from policy.batch.plugins.base import Arguments, Plugin
from policy.batch.views import PluginView
from policy.cluster.objects import Pod
from policy.cluster.snapshot import NodeIndex, Snapshot
from policy.cluster.tables import ANTI_AFFINITY, NOWHERE, Bools, Ints, host_ports
from policy.filters.affinity_terms import required_terms
from policy.filters.base import Incoming
from policy.filters.registry import FILTERS

TOO_MANY_PODS: Final = "pods"
"""Reason beside the filters' names: the node has as many pods as it allows."""

_BEFORE_PORTS: Final = ("node-conditions", "node-unschedulable", "node-affinity")
_AFTER_PORTS: Final = ("taints",)
_PRESSURE: Final = "node-pressure"

_PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "node-unschedulable": {"tolerations": "ignored"},
    "pod-affinity": {
        "namespaceSelector": "ignored",
        "terms": "together",
        "firstOfGroup": "any-node",
        "order": "existing-first",
        "skip": "never",
    },
}


class Predicates(Plugin):
    name = "predicates"
    doc = "Node conditions, selectors, taints, host ports and pod affinity."
    arguments: ClassVar[Mapping[str, bool | int]] = {
        "predicate.MemoryPressureEnable": False,
        "predicate.DiskPressureEnable": False,
        "predicate.PIDPressureEnable": False,
    }

    def __init__(self, arguments: Arguments) -> None:
        self._pressures = {
            parameter: arguments.boolean(name, default=False)
            for parameter, name in (
                ("memoryPressure", "predicate.MemoryPressureEnable"),
                ("diskPressure", "predicate.DiskPressureEnable"),
                ("pidPressure", "predicate.PIDPressureEnable"),
            )
        }

    def open(self, session: PluginView) -> None:
        self._session = session
        self._snapshot = session.snapshot
        self._all = np.arange(len(session.nodes.names), dtype=np.int64)
        self._fixed: dict[bytes, dict[str, Bools]] = {}
        self._signatures: dict[int, bytes] = {}
        self._affinity: dict[bytes, Bools | None] = {}
        self._affinity_version = (-1, -1)
        self._rows = np.array([t.row for t in session.tasks], dtype=np.int64)
        anti = session.snapshot.column(ANTI_AFFINITY)
        self._anti_rows = np.flatnonzero(anti >= 0)
        session.register(
            self.name,
            predicate=self.predicate,
            predicate_class=self.predicate_class,
            predicate_at=self.predicate_at,
            predicate_reasons=self.predicate_reasons,
        )

    def predicate(self, task: Task) -> Bools:
        found = self._session.nodes.pods < self._session.nodes.allowed_pods
        for passes in self._checks(task).values():
            found &= passes
        return found

    def predicate_class(self, task: Task) -> bytes | None:
        """None where ports or affinity make a node's answer depend on other pods."""
        if host_ports(task.pod) or self._looks_at_pods(task):
            return None
        return self._signature_of(task)

    def predicate_at(self, task: Task, nodes: Ints) -> Bools:
        """Of tasks with a class."""
        found = self._session.nodes.pods[nodes] < self._session.nodes.allowed_pods[nodes]
        for passes in self._fixed_checks(task).values():
            found &= passes[nodes]
        return found

    def predicate_reasons(self, task: Task) -> dict[str, Bools]:
        """Every check in the original's order, with the nodes that it rejects."""
        full = self._session.nodes.pods >= self._session.nodes.allowed_pods
        checks = {name: ~passes for name, passes in self._checks(task).items()}
        return {TOO_MANY_PODS: full, **checks}

    def _checks(self, task: Task) -> dict[str, Bools]:
        found = self._fixed_checks(task)
        ports = self._ports(task)
        affinity = self._pod_affinity(task)
        if ports is None and affinity is None:
            return found
        found = dict(found)
        if ports is not None:
            found["node-ports"] = ports
        if affinity is not None:
            found["pod-affinity"] = affinity
        return found

    # --- what no placement changes -------------------------------------------------------------

    def _fixed_checks(self, task: Task) -> dict[str, Bools]:
        """Checks of the nodes alone; pods that ask for the same share their answers."""
        signature = self._signature_of(task)
        found = self._fixed.get(signature)
        if found is None:
            found = self._fixed[signature] = self._judge_nodes(task)
        return found

    def _signature_of(self, task: Task) -> bytes:
        found = self._signatures.get(task.index)
        if found is None:
            found = self._signatures[task.index] = _signature(task.pod)
        return found

    def _judge_nodes(self, task: Task) -> dict[str, Bools]:
        incoming = self._incoming(self._snapshot, task)
        no_pressure = dict.fromkeys(("outOfDisk", *self._pressures), False)
        found: dict[str, Bools] = {}
        for name in (*_BEFORE_PORTS, *_AFTER_PORTS):
            given = no_pressure if name == "node-conditions" else {}
            passes = self._passes(name, incoming, given)
            if passes is not None:
                found[name] = passes
        if any(self._pressures.values()):
            # Conditions are checked twice, before selectors and after taints: pressure comes last.
            passes = self._passes("node-conditions", incoming, {**no_pressure, **self._pressures})
            if passes is not None:
                found[_PRESSURE] = passes
        return found

    def _passes(self, name: str, incoming: Incoming, given: Mapping[str, Any]) -> Bools | None:
        info = FILTERS[name]
        parameters = {**info.defaults(), **_PARAMETERS.get(name, {}), **given}
        built = info.build(incoming, parameters)
        if built is None:
            return None
        return np.asarray(built.passes(built.base(), self._all))

    # --- what other pods change ----------------------------------------------------------------

    def _ports(self, task: Task) -> Bools | None:
        """Ports clash with those of every task that the node holds, also of leaving ones."""
        if not host_ports(task.pod):
            return None
        held: NodeIndex = np.full(len(self._snapshot.pods), NOWHERE, dtype=np.int32)
        held[self._rows] = self._session.nodes.place
        return self._passes("node-ports", self._incoming(self._seen(held), task), {})

    def _pod_affinity(self, task: Task) -> Bools | None:
        """Affinity sees tasks in allocated statuses of the session's jobs, where they are."""
        if not self._looks_at_pods(task):
            return None
        version = (self._session.existing_version, len(self._session.nodes.changed))
        if version != self._affinity_version:
            self._affinity_version = version
            self._affinity.clear()
        key = msgspec.json.encode(
            [task.pod.metadata.namespace, task.pod.metadata.labels, task.pod.spec.affinity]
        )
        if key not in self._affinity:
            self._affinity[key] = self._judge_affinity(task)
        return self._affinity[key]

    def _looks_at_pods(self, task: Task) -> bool:
        """Has the task required terms, or a pod that is there a required anti-affinity?"""
        own = required_terms(task.pod, anti=False) or required_terms(task.pod, anti=True)
        return bool(own) or bool((self._session.existing[self._anti_rows] >= 0).any())

    def _judge_affinity(self, task: Task) -> Bools | None:
        existing = self._session.existing
        incoming = self._incoming(self._seen(existing), task)
        info = FILTERS["pod-affinity"]
        parameters = {**info.defaults(), **_PARAMETERS["pod-affinity"]}
        if info.narrow(incoming, parameters) is not None:
            return np.zeros(self._all.size, dtype=np.bool_)
        built = info.build(incoming, parameters)
        if built is None:
            return None
        load = built.base()
        # A pod that counts for a node which does not hold it is skipped on that node, and only
        # there.
        where = existing[self._rows].astype(np.int64)
        ghosts = np.flatnonzero((where >= 0) & (where != self._session.nodes.place))
        if ghosts.size:
            demand = built.demand(self._rows[ghosts], where[ghosts])
            np.subtract.at(load, where[ghosts], demand)
        return np.asarray(built.passes(load, self._all))

    def _seen(self, places: NodeIndex) -> Snapshot:
        """The snapshot with its pods on other nodes."""
        return self._snapshot.with_pods_on(places)

    @staticmethod
    def _incoming(snapshot: Snapshot, task: Task) -> Incoming:
        return Incoming(snapshot=snapshot, pod=task.pod, key=task.key, row=task.row)


def _signature(pod: Pod) -> bytes:
    """What the checks of nodes read of a pod."""
    spec = pod.spec
    requests = [c.resources for c in (*(spec.containers or ()), *(spec.init_containers or ()))]
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return msgspec.json.encode([spec.node_selector, required, spec.tolerations, requests])
