"""predicates: which nodes may take a task, whatever room they have.

The checks are the engine's filters of kube-scheduler 1.36. What they read of other pods is the
session's view: a task counts where it was placed or promised, and no longer once it is evicted.

Source: Volcano `pkg/scheduler/plugins/predicates`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np

from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.cluster.snapshot import NodeIndex
from policy.cluster.tables import ANTI_AFFINITY, NOWHERE, Bools, Ints, host_ports
from policy.filters.affinity_terms import required_terms
from policy.filters.base import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, Codes, Incoming
from policy.filters.registry import FILTERS

PREDICATES: Final = "predicates"
TOO_MANY_PODS: Final = "pods"
"""Reason beside the filters' names: the node has as many pods as it allows."""

_STATIC: Final = ("node-unschedulable", "node-affinity", "taints")
_OF_VOLUMES: Final = ("volume-limits", "volume-zone", "volume-binding")

_SWITCHES: Final[Mapping[str, str]] = {
    "predicate.NodeAffinityEnable": "node-affinity",
    "predicate.NodePortsEnable": "node-ports",
    "predicate.TaintTolerationEnable": "taints",
    "predicate.PodAffinityEnable": "pod-affinity",
    "predicate.NodeVolumeLimitsEnable": "volume-limits",
    "predicate.VolumeZoneEnable": "volume-zone",
    "predicate.PodTopologySpreadEnable": "topology-spread",
    "predicate.VolumeBindingEnable": "volume-binding",
}


class Predicates(Plugin):
    name = PREDICATES
    doc = "Number of pods, cordons, selectors, taints, ports, pod affinity, spread and volumes."
    arguments: ClassVar = {**dict.fromkeys(_SWITCHES, bool), "predicate.CacheEnable": bool}

    def __init__(self, arguments: Arguments) -> None:
        self._off = {
            name
            for switch, name in _SWITCHES.items()
            if not arguments.boolean(switch, default=True)
        }

    def open(self, session: Session) -> None:
        self._session = session
        # Evictions that are only tried out are seen where either of these flags is on.
        self._simulates = any(
            use.name == self.name
            and (use.enabled("enablePreemptable") or use.enabled("enabledAllocatable"))
            for tier in session.rules.tiers
            for use in tier
        )
        self._every = np.arange(len(session.nodes.names), dtype=np.int64)
        self._allowed = session.snapshot.nodes.allowed_pods
        seen = session.seen[session.seen != NOWHERE]
        self._pods: Ints = np.bincount(seen, minlength=self._every.size)
        self._fixed: dict[bytes, dict[str, Codes]] = {}
        self._signatures: dict[int, bytes] = {}
        self._moving: dict[tuple[int, str], tuple[int, Codes | None]] = {}
        self._anti_rows = np.flatnonzero(session.snapshot.column(ANTI_AFFINITY) >= 0)
        session.register(
            self.name,
            predicate=self.predicate,
            predicate_class=self.predicate_class,
            predicate_at=self.predicate_at,
            predicate_reasons=self.predicate_reasons,
        )
        session.on_events(
            allocate=lambda task: self._see(task, session.nodes.index_of(task.node)),
            deallocate=lambda task: self._see(task, NOWHERE),
        )

    def _see(self, task: Task, node: int) -> None:
        session = self._session
        if session.simulating and not self._simulates:
            return
        before = session.seen[task.row]
        if before == node:
            return
        if before != NOWHERE:
            self._pods[before] -= 1
        if node != NOWHERE:
            self._pods[node] += 1
        session.seen[task.row] = node
        session.seen_version += 1

    # --- answering -----------------------------------------------------------------------------

    def predicate(self, task: Task) -> Codes:
        found = self._full(self._every)
        for codes in self._checks(task).values():
            np.maximum(found, codes, out=found)
        return found

    def predicate_class(self, task: Task) -> Hashable | None:
        """None where a node's answer depends on which pods are where."""
        return None if any(self._moving_checks(task)) else self._signature_of(task)

    def predicate_at(self, task: Task, nodes: Ints) -> Codes:
        """Of tasks with a class."""
        found = self._full(nodes)
        for codes in self._fixed_checks(task).values():
            np.maximum(found, codes[nodes], out=found)
        return found

    def predicate_reasons(self, task: Task) -> dict[str, Bools]:
        found = {TOO_MANY_PODS: np.asarray(self._full(self._every) != SUCCESS)}
        for name, codes in self._checks(task).items():
            found[name] = np.asarray(codes != SUCCESS)
        return found

    def _full(self, nodes: Ints) -> Codes:
        full = self._allowed[nodes] <= self._pods[nodes]
        return np.where(full, UNSCHEDULABLE, SUCCESS).astype(np.int8)

    def _checks(self, task: Task) -> dict[str, Codes]:
        found = dict(self._fixed_checks(task))
        for name in self._moving_checks(task):
            codes = self._judge_moving(task, name)
            if codes is not None:
                found[name] = codes
        return found

    # --- checks --------------------------------------------------------------------------------

    def _fixed_checks(self, task: Task) -> dict[str, Codes]:
        """Checks of the nodes alone; pods that ask for the same share their answers."""
        signature = self._signature_of(task)
        found = self._fixed.get(signature)
        if found is None:
            found = {}
            for name in _STATIC:
                codes = None if name in self._off else self._judge(task, name, self._session.seen)
                if codes is not None:
                    found[name] = codes
            self._fixed[signature] = found
        return found

    def _signature_of(self, task: Task) -> bytes:
        found = self._signatures.get(task.index)
        if found is None:
            spec = task.pod.spec
            affinity = spec.affinity.node_affinity if spec.affinity is not None else None
            required = affinity.required if affinity is not None else None
            found = msgspec.json.encode([spec.node_selector, required, spec.tolerations])
            self._signatures[task.index] = found
        return found

    def _moving_checks(self, task: Task) -> Iterator[str]:
        """Checks of which the answer changes with the pods that are there."""
        for name, wanted in (
            ("node-ports", bool(host_ports(task.pod))),
            ("pod-affinity", self._looks_at_pods(task)),
            ("topology-spread", bool(task.pod.spec.topology_spread_constraints)),
            *((name, _claims(task)) for name in _OF_VOLUMES),
        ):
            if wanted and name not in self._off:
                yield name

    def _looks_at_pods(self, task: Task) -> bool:
        """Has the task required terms, or a pod that is there a required anti-affinity?"""
        own = required_terms(task.pod, anti=False) or required_terms(task.pod, anti=True)
        return bool(own) or bool((self._session.seen[self._anti_rows] != NOWHERE).any())

    def _judge_moving(self, task: Task, name: str) -> Codes | None:
        key = (task.index, name)
        known = self._moving.get(key)
        version = self._session.seen_version
        if known is None or known[0] != version:
            known = self._moving[key] = (version, self._judge(task, name, self._session.seen))
        return known[1]

    def _judge(self, task: Task, name: str, seen: NodeIndex) -> Codes | None:
        """Codes of all nodes; None where the filter says nothing about the task."""
        info = FILTERS[name]
        asks = incoming(self._session, task, seen)
        narrowed = info.narrow(asks, info.defaults())
        if narrowed is not None and (narrowed.rejected or narrowed.error):
            return np.full(self._every.size, UNRESOLVABLE, dtype=np.int8)
        built = info.build(asks, info.defaults())
        return None if built is None else built.judge(built.base(), self._every).codes


def incoming(session: Session, task: Task, seen: NodeIndex) -> Incoming:
    """The task as filters and scorers read it, among pods that are where `seen` has them."""
    snapshot = session.snapshot.with_pods_on(seen.copy())
    return Incoming(snapshot=snapshot, pod=task.pod, key=task.key, row=task.row)


def _claims(task: Task) -> bool:
    return any(
        v.persistent_volume_claim is not None or v.ephemeral is not None
        for v in task.pod.spec.volumes or ()
    )
