"""Generated clusters for the benchmarks: full nodes, five priority levels, budgets on a third.

The same arguments give the same cluster on every machine: a small linear congruential generator
replaces the library's, whose sequence may change between versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy.cluster.objects import (
    ClusterObject,
    Container,
    LabelSelector,
    Node,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)

PODS_PER_NODE = 30
PRIORITIES = (0, 10, 100, 1000, 5000)
_APPS_PER_NAMESPACE = 20


class Dice:
    """Numbers below 2^31 in a fixed sequence."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2654435761 % 2**31

    def below(self, size: int) -> int:
        self._state = (self._state * 1103515245 + 12345) % 2**31
        return (self._state >> 8) % size


def _instant(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    return f"2024-{1 + days // 28:02d}-{1 + days % 28:02d}T{hours:02d}:{rest // 60:02d}:00Z"


def cluster(*, nodes: int, pending: int = 0, seed: int = 1) -> Iterator[ClusterObject]:
    """A full cluster with `pending` pods of the highest priority that fit on no node."""
    dice = Dice(seed)
    namespaces = max(2, nodes // 25)
    for n in range(nodes):
        yield a_node(f"node-{n:05d}", cpu="30", memory="120Gi", zone=f"z{n % 3}")
    for n in range(nodes):
        left_cpu, left_memory = 30_000, 120 * 1024
        for i in range(PODS_PER_NODE):
            last = i == PODS_PER_NODE - 1
            cpu = left_cpu if last else min(left_cpu, 500 + 100 * dice.below(11))
            memory = left_memory if last else min(left_memory, 2048 + 512 * dice.below(9))
            left_cpu, left_memory = left_cpu - cpu, left_memory - memory
            namespace, app = dice.below(namespaces), dice.below(_APPS_PER_NAMESPACE)
            yield a_pod(
                f"app-{app:02d}-{n:05d}-{i:02d}",
                namespace=f"team-{namespace:04d}",
                app=f"app-{app:02d}",
                priority=PRIORITIES[dice.below(len(PRIORITIES))],
                cpu=f"{cpu}m",
                memory=f"{memory}Mi",
                node=f"node-{n:05d}",
                start=_instant(60 * dice.below(200 * 1440)),
            )
    for namespace in range(namespaces):
        for app in range(0, _APPS_PER_NAMESPACE, 3):
            yield PodDisruptionBudget(
                metadata=ObjectMeta(name=f"app-{app:02d}", namespace=f"team-{namespace:04d}"),
                spec=PodDisruptionBudgetSpec(
                    selector=LabelSelector(match_labels={"app": f"app-{app:02d}"})
                ),
                status=PodDisruptionBudgetStatus(disruptions_allowed=dice.below(3)),
            )
    for i in range(pending):
        yield a_pod(
            f"urgent-{i:05d}",
            namespace="urgent",
            app="urgent",
            priority=10_000,
            cpu=f"{2000 + 500 * (i % 5)}m",
            memory=f"{4096 + 1024 * (i % 3)}Mi",
        )


def a_node(name: str, *, cpu: str, memory: str, zone: str = "") -> Node:
    """A node for 110 pods."""
    return Node(
        metadata=ObjectMeta(name=name, labels={"zone": zone} if zone else None),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": memory, "pods": "110"}),
    )


def a_pod(
    name: str,
    *,
    namespace: str,
    app: str = "app",
    priority: int,
    cpu: str,
    memory: str,
    node: str = "",
    start: str | None = None,
) -> Pod:
    """A pod on a node, or one that waits."""
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{namespace}-{name}",
            labels={"app": app},
            creation_timestamp=start or "2024-12-01T00:00:00Z",
            owner_references=[
                OwnerReference(kind="ReplicaSet", name=app, uid=f"rs-{app}", controller=True)
            ],
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            preemption_policy="PreemptLowerPriority",
            scheduler_name="default-scheduler",
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}),
                )
            ],
        ),
        status=PodStatus(phase="Running" if node else "Pending", start_time=start),
    )
