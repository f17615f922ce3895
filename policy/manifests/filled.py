"""What admission filled in: the difference between objects as they were read and as resolved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from policy.cluster.objects import ClusterObject, Container, Pod
from policy.text.words import number


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledIn:
    """How many pods got what."""

    priorities: Counter[str] = field(default_factory=Counter)
    """By the name of the priority class; "" for the 0 of a pod without any."""
    requests: int = 0  #: requests from limits
    host_ports: int = 0  #: host ports of pods on the host's network
    qos_classes: int = 0  #: without one in their status: rules compute it

    def sentences(self) -> list[str]:
        """One for each kind of thing that was filled in, in plain words."""
        found = []
        for name, count in sorted(self.priorities.items()):
            source = f"from PriorityClass {name}" if name else "as 0: no class, no global default"
            found.append(f"priority filled in for {number(count, 'pod')} {source}")
        if self.requests:
            found.append(f"requests filled in from limits for {number(self.requests, 'pod')}")
        if self.host_ports:
            found.append(
                f"host ports filled in for {number(self.host_ports, 'pod')} on the host's network"
            )
        if self.qos_classes:
            many = "QoS class" if self.qos_classes == 1 else "QoS classes"
            found.append(f"{self.qos_classes} {many} computed from requests and limits")
        return found


def filled_in(read: Sequence[ClusterObject], resolved: Sequence[ClusterObject]) -> FilledIn:
    """Of objects and what `resolve` made of them, in the same order."""
    priorities: Counter[str] = Counter()
    requests = host_ports = qos_classes = 0
    for before, after in zip(read, resolved, strict=True):
        if type(before) is not Pod or type(after) is not Pod:
            continue
        qos_classes += not after.status.qos_class
        if before is after:
            continue
        if before.spec.priority is None:
            priorities[after.spec.priority_class_name] += 1
        old, new = _containers(before), _containers(after)
        requests += any(a.resources != b.resources for a, b in zip(old, new, strict=True)) or (
            before.spec.resources != after.spec.resources
        )
        host_ports += any(a.ports != b.ports for a, b in zip(old, new, strict=True))
    return FilledIn(
        priorities=priorities, requests=requests, host_ports=host_ports, qos_classes=qos_classes
    )


def _containers(pod: Pod) -> list[Container]:
    return [*(pod.spec.containers or ()), *(pod.spec.init_containers or ())]
