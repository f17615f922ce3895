"""node-conditions: nodes that are not ready, or short of something. Eviction cannot help.

Conditions are what the kubelet reported last; they do not change because the scheduler imagines
pods away. Generations since 1.14 read taints instead. Cordoned nodes are the business of
node-unschedulable.

Source: CheckNodeCondition and the three pressure predicates of 1.14. There the pressure predicates
stand behind the volumes; a node that fails them is no candidate either way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from policy.cluster import quantities
from policy.cluster.objects import Node, Pod
from policy.filters.base import (
    Filter,
    FilterInfo,
    Incoming,
    Parameter,
    Parameters,
    unresolvable,
)

NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NO_NETWORK = "node(s) had unavailable network"
MEMORY = "node(s) had memory pressure"
DISK = "node(s) had disk pressure"
PID = "node(s) had pid pressure"


_SWITCHES: Final = {
    "outOfDisk": OUT_OF_DISK,
    "memoryPressure": MEMORY,
    "diskPressure": DISK,
    "pidPressure": PID,
}
"""Parameter -> reason of the condition that it switches off."""


def best_effort(pod: Pod) -> bool:
    """Does no container ask for, or limit, any cpu or memory?"""
    for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        if container.resources is None:
            continue
        for amounts in (container.resources.requests, container.resources.limits):
            for name, quantity in (amounts or {}).items():
                if name in {"cpu", "memory"} and quantities.nano(quantity) > 0:
                    return False
    return True


def _problems(node: Node) -> Hashable:
    """Reasons in the order of the node's conditions, then pressure: the first predicate decides."""
    found: list[str] = []
    pressure: dict[str, str] = {}
    for condition in node.status.conditions or ():
        match condition.type:
            case "Ready" if condition.status != "True":
                found.append(NOT_READY)
            case "OutOfDisk" if condition.status != "False":
                found.append(OUT_OF_DISK)
            case "NetworkUnavailable" if condition.status != "False":
                found.append(NO_NETWORK)
            case "MemoryPressure" | "DiskPressure" | "PIDPressure":
                pressure[condition.type] = condition.status
    short = tuple(
        reason
        for kind, reason in (
            ("MemoryPressure", MEMORY),
            ("DiskPressure", DISK),
            ("PIDPressure", PID),
        )
        if pressure.get(kind) == "True"
    )
    return tuple(found), short


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    conditions = incoming.snapshot.nodes.coded("conditions", _problems)
    spared = not best_effort(incoming.pod)
    unread = {reason for name, reason in _SWITCHES.items() if not parameters[name]}
    reasons = []
    for found, pressure in conditions.values:
        found = tuple(r for r in found if r not in unread)
        # Memory pressure keeps only best-effort pods away.
        short = tuple(r for r in pressure if r not in unread and not (spared and r == MEMORY))
        reasons.append(found or short[:1])
    return unresolvable(conditions, reasons)


INFO = FilterInfo(
    name="node-conditions",
    plugin="CheckNodeCondition",
    doc="Ready, OutOfDisk, NetworkUnavailable, and memory, disk and pid pressure (1.14). Eviction "
    "cannot resolve it.",
    build=build,
    parameters={
        name: Parameter(doc=f"whether the condition counts: {reason}", default=True)
        for name, reason in _SWITCHES.items()
    },
)
