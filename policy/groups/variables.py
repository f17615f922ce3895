"""What rules about groups and units read: `group.*`, `unit.*`, `cluster.nodeCount` and `now`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from policy.cluster import times
from policy.cluster.objects import SchedulingPodGroup
from policy.cluster.pod_groups import disruption_mode
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE, PREEMPTED, PRIORITY, TERMINATING, Ints
from policy.groups.members import Muster
from policy.groups.units import Units, labels_of
from policy.preemption.columns import Lazy, Provider, scalar, workload_of
from policy.rules.expressions import (
    BoolColumn,
    Column,
    IntColumn,
    InternedColumn,
    TimestampColumn,
)


def group_variables(snapshot: Snapshot, found: Muster) -> Lazy:
    """Variables that are the same for all units."""
    group = found.group
    assert group is not None  # a group that does not exist is not asked about
    facts = _facts(snapshot, found, group)
    return Lazy(providers={name: scalar(of) for name, of in facts.items()})


def _facts(
    snapshot: Snapshot, found: Muster, group: SchedulingPodGroup
) -> Mapping[str, Callable[[], Any]]:
    meta, spec = group.metadata, group.spec
    created = times.parse_optional(meta.creation_timestamp)
    created = snapshot.now_ms if created == times.MISSING else created
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else None

    def running() -> int:
        pods = (snapshot.pods[row] for row in found.assigned)
        return sum(pod is not None and pod.status.phase == "Running" for pod in pods)

    facts: dict[str, Callable[[], Any]] = {
        "name": lambda: meta.name,
        "namespace": lambda: meta.namespace or "default",
        "key": lambda: found.key,
        "uid": lambda: meta.uid,
        "priority": lambda: found.priority,
        "preemptionPolicy": lambda: spec.preemption_policy or "",
        "priorityClassName": lambda: spec.priority_class_name,
        "labels": lambda: meta.labels or {},
        "annotations": lambda: meta.annotations or {},
        "policy": lambda: found.policy,
        "minCount": lambda: found.min_count,
        "disruptionMode": lambda: disruption_mode(group),
        "topologyKeys": lambda: len(topology or ()),
        "members": lambda: len(found.members),
        "assigned": lambda: len(found.assigned),
        "running": running,
        "neverPreempting": lambda: sum(
            m.pod.spec.preemption_policy == "Never" for m in found.members
        ),
        "highestMemberPriority": lambda: max((m.priority for m in found.members), default=0),
        "preemptedPodsTerminating": lambda: preempted_pods_terminating(snapshot, found),
        "createdAt": lambda: created,
        "waitingSeconds": lambda: max(0, (snapshot.now_ms - created) // 1000),
    }
    return {
        **{f"group.{name}": of for name, of in facts.items()},
        "cluster.nodeCount": lambda: len(snapshot.nodes),
        "now": lambda: snapshot.now_ms,
    }


def preempted_pods_terminating(snapshot: Snapshot, found: Muster) -> int:
    """Preempted pods of lower priority that still leave the members' nominated nodes."""
    rows = np.array([m.row for m in found.members], dtype=np.int64)
    nodes = np.unique(snapshot.nominated[rows])
    nodes = nodes[nodes != NOWHERE]
    leaving = snapshot.column(TERMINATING) & snapshot.column(PREEMPTED)
    leaving &= np.isin(snapshot.node, nodes)
    return int((snapshot.column(PRIORITY)[leaving] < found.priority).sum())


class UnitVariables:
    """Variables with one row per unit."""

    def __init__(self, units: Units, found: Muster) -> None:
        self._units = units
        self._snapshot = units.snapshot
        self._key = found.key

    def beside(self, group: Lazy) -> Lazy:
        """All variables that rules about units read."""
        return group.also(self._providers())

    def _providers(self) -> dict[str, Provider]:
        units = self._units
        fields: dict[str, Provider] = {
            "key": lambda: _own([self._snapshot.keys[r] for r in units.first.tolist()]),
            "namespace": lambda: _texts(self._namespaces),
            "priority": lambda: IntColumn(units.priority),
            "podPriority": lambda: IntColumn(self._highest(self._snapshot.column(PRIORITY))),
            "pods": lambda: IntColumn(units.sizes),
            "grouped": lambda: BoolColumn(units.groups != NOWHERE),
            "groupSize": lambda: IntColumn(np.where(units.groups != NOWHERE, units.sizes, 0)),
            "whole": lambda: BoolColumn(units.whole),
            "group": lambda: _texts([units.group(u) for u in range(len(units))]),
            "disruptionMode": lambda: _texts(self._modes()),
            "ofPreemptor": lambda: BoolColumn(self._of_preemptor()),
            "labels": lambda: _interned(labels_of(self._snapshot, units.first)),
            "workload": lambda: _texts(self._workloads()),
            "startTime": lambda: TimestampColumn(units.start),
            "oldestStart": lambda: TimestampColumn(units.oldest),
            "terminating": lambda: IntColumn(units.summed(self._snapshot.column(TERMINATING))),
            "cpuMilli": lambda: IntColumn(self._requested(CPU)),
            "memoryBytes": lambda: IntColumn(self._requested(MEMORY)),
            "nodes": lambda: IntColumn(self._node_counts()),
        }
        return {f"unit.{name}": of for name, of in fields.items()}

    @cached_property
    def _namespaces(self) -> list[str]:
        return [self._snapshot.keys[r].split("/", 1)[0] for r in self._units.first.tolist()]

    def _highest(self, values: Ints) -> Ints:
        units = self._units
        if not len(units):
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(values[units.rows], units.offsets[:-1])

    def _modes(self) -> list[str]:
        names = ["" if g is None else disruption_mode(g) for g in self._units.of_pool]
        return [names[g] if g != NOWHERE else "" for g in self._units.groups.tolist()]

    def _of_preemptor(self) -> Any:
        names = self._snapshot.pools.named("pod groups")
        return self._units.groups == names.ids.get(self._key, -2)

    def _workloads(self) -> list[str]:
        found = []
        for row in self._units.first.tolist():
            pod = self._snapshot.pods[row]
            assert pod is not None
            found.append(workload_of(pod))
        return found

    def _requested(self, resource: str) -> Ints:
        column = self._snapshot.pools.resources.ids.get(resource)
        if column is None:
            return np.zeros(len(self._units), dtype=np.int64)
        return self._units.summed(self._snapshot.requests()[:, column])

    def _node_counts(self) -> Ints:
        nodes = self._snapshot.node
        units = self._units
        return np.array(
            [np.unique(nodes[units.pods(u)]).size for u in range(len(units))], dtype=np.int64
        )


def _own(values: list[str]) -> Column:
    return InternedColumn(np.arange(len(values)), values or [""])


def _texts(values: list[str]) -> Column:
    ids: dict[str, int] = {}
    codes = np.array([ids.setdefault(v, len(ids)) for v in values], dtype=np.intp)
    return InternedColumn(codes, list(ids) or [""])


def _interned(values: list[Mapping[str, str]]) -> Column:
    ids: dict[tuple[tuple[str, str], ...], int] = {}
    codes = np.array(
        [ids.setdefault(tuple(sorted(v.items())), len(ids)) for v in values], dtype=np.intp
    )
    return InternedColumn(codes, [dict(key) for key in ids] or [{}])
