"""Gangs and queues in one line, for tests of sessions.

cluster(a_node("n1", cpu=4), a_queue("q1"), a_gang("j", on=["n1"], waiting=2, cpu=1))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from policy.batch.rules import BatchRules
from policy.cluster.objects import (
    ClusterObject,
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
)
from policy.cluster.snapshot import Snapshot
from policy.scheduling.sessions import CompletedSession, SessionScheduler
from policy.scheduling.state import State

NOW_MS = 1_795_219_200_000
CREATED = "2026-11-20T00:00:00Z"


def a_node(name: str, **amounts: Any) -> Node:
    allocatable = {"cpu": 4, "memory": "16Gi", "pods": 110, **amounts}
    return Node(
        metadata=ObjectMeta(name=name, labels={"host": name}),
        status=NodeStatus(allocatable=allocatable),
    )


def a_queue(name: str, weight: int = 1) -> Queue:
    return Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))


def a_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value)


def a_pod(name: str, *, group: str = "", node: str = "", spec: Any = None, **requests: Any) -> Pod:
    annotations = {"scheduling.k8s.io/group-name": group} if group else None
    found = PodSpec(
        node_name=node,
        scheduler_name="kube-batch",
        containers=[Container(resources=ResourceRequirements(requests=requests or None))],
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            creation_timestamp=CREATED,
            annotations=annotations,
        ),
        spec=replace(found, **(spec or {})),
        status=PodStatus(phase="Running" if node else "Pending"),
    )


def a_gang(
    name: str,
    *,
    minimum: int = 1,
    queue: str = "default",
    klass: str = "",
    on: Sequence[str] = (),
    waiting: int = 0,
    **requests: Any,
) -> list[ClusterObject]:
    """A pod group, its running pods (one node each), then those that wait."""
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=CREATED),
        spec=PodGroupSpec(min_member=minimum, queue=queue, priority_class_name=klass),
    )
    nodes = [*on, *[""] * waiting]
    pods = [a_pod(f"{name}-{i}", group=name, node=node, **requests) for i, node in enumerate(nodes)]
    return [group, *pods]


def cluster(*parts: ClusterObject | Iterable[ClusterObject]) -> Snapshot:
    objects: list[ClusterObject] = []
    for part in parts:
        if isinstance(part, Iterable):
            objects.extend(part)
        else:
            objects.append(part)
    return Snapshot.from_objects(objects, now_ms=NOW_MS)


class _Loaded:
    """A journal of which a dry run needs the state alone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def active_batch_rules(self) -> None:
        return None

    def load(self, *, now_ms: int) -> State:
        return State(snapshot=self._snapshot.at(now_ms), revision=0)


def settled(
    snapshot: Snapshot, rules: BatchRules, *, limit: int = 100
) -> tuple[list[CompletedSession], Snapshot]:
    """Sessions until the cluster has settled, and the cluster then; at most `limit` of them."""
    journal: Any = _Loaded(snapshot)
    scheduler = SessionScheduler(journal, rules, clock=lambda: snapshot.now_ms, dry_run=True)
    return list(islice(scheduler.until_settled(), limit)), scheduler.snapshot
