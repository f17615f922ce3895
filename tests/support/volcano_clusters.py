"""Random clusters with what Volcano's queues and groups have beside, and random configurations."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from policy.cluster.objects import (
    ClusterObject,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupStatus,
    Queue,
    QueueGuarantee,
    QueueSpec,
    QueueStatus,
)
from tests.support import batch_clusters

ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
FIRST = ("priority", "gang", "conformance", "cdp", "pdb", "sla", "tdm")
SECOND = (
    "overcommit",
    "drf",
    "predicates",
    "nodeorder",
    "binpack",
    "nodegroup",
    "resourcequota",
    "resource-strategy-fit",
)


def cluster(dice: Random, *, odd: bool = True) -> list[ClusterObject]:
    """As for kube-batch, for pods of Volcano; queues with limits, perhaps in a tree."""
    found: list[ClusterObject] = []
    for obj in batch_clusters.cluster(dice, odd=odd):
        if isinstance(obj, Pod):
            found.append(_pod(dice, obj))
        elif isinstance(obj, PodGroup):
            found.append(_group(dice, obj))
        elif not isinstance(obj, Queue):
            found.append(obj)
    found += _queues(dice)
    dice.shuffle(found)
    return found


def _queues(dice: Random) -> list[Queue]:
    tree = dice.random() < 0.4
    found = [_queue(dice, name, "team" if tree and name != "q3" else "") for name in ("q1", "q2")]
    if tree:
        found.append(_queue(dice, "team", ""))
    if dice.random() < 0.5:
        found.append(_queue(dice, "q3", ""))
    return found


def _queue(dice: Random, name: str, parent: str) -> Queue:
    def some(chance: float) -> dict[str, Any] | None:
        if dice.random() >= chance:
            return None
        amounts: dict[str, Any] = {"cpu": str(dice.randint(1, 8))}
        if dice.random() < 0.5:
            amounts["memory"] = f"{dice.randint(1, 12)}Gi"
        return amounts

    guarantee = {"cpu": str(dice.randint(1, 2))} if dice.random() < 0.2 else None
    return Queue(
        metadata=ObjectMeta(name=name),
        spec=QueueSpec(
            weight=dice.randint(1, 3),
            capability=some(0.4),
            deserved=some(0.8),
            guarantee=QueueGuarantee(resource=guarantee) if guarantee else None,
            reclaimable=dice.choice([None, None, None, True, False]),
            priority=dice.choice([0, 0, 0, 5]),
            parent=parent,
        ),
        status=QueueStatus(state=dice.choice(["", *["Open"] * 8, "Closed"])),
    )


def _group(dice: Random, group: PodGroup) -> PodGroup:
    least = {"cpu": str(dice.randint(1, 6))} if dice.random() < 0.5 else None
    phase = dice.choice(["", "Pending", *["Inqueue"] * 4, "Running", "Running"])
    roles = {"worker": dice.randint(1, 2)} if dice.random() < 0.2 else None
    # Gangs that may lose some of their pods, so that there are victims.
    minimum = min(group.spec.min_member, dice.choice([0, 1, 1, 9]))
    return replace(
        group,
        spec=replace(group.spec, min_member=minimum, min_resources=least, min_task_member=roles),
        status=PodGroupStatus(phase=phase),
    )


def _pod(dice: Random, pod: Pod) -> Pod:
    name = pod.spec.scheduler_name
    labels = dict(pod.metadata.labels or {})
    if dice.random() < 0.4:
        labels["volcano.sh/task-spec"] = dice.choice(["worker", "master"])
    if dice.random() < 0.2:
        labels["volcano.sh/preemptable"] = dice.choice(["true", "false", "x"])
    return replace(
        pod,
        metadata=replace(pod.metadata, labels=labels or None),
        spec=replace(pod.spec, scheduler_name="volcano" if name == "kube-batch" else name),
    )


def configuration(dice: Random) -> dict[str, Any]:
    """Actions in any order over tiers of which the second divides the cluster, or none does."""
    actions = [dice.choice(ACTIONS) for _ in range(dice.randint(1, 5))]
    first = [name for name in FIRST if dice.random() < 0.6]
    second = [name for name in SECOND if dice.random() < 0.7]
    divides = dice.choice(["proportion", "capacity", "capacity", ""])
    if divides:
        second.append(divides)
    dice.shuffle(first)
    dice.shuffle(second)
    return {
        "actions": ", ".join(actions),
        "tiers": [{"plugins": [_use(dice, n) for n in names]} for names in (first, second)],
        "configurations": [
            {
                "name": "preempt",
                "arguments": {"enableTopologyAwarePreemption": dice.random() < 0.3},
            }
        ],
    }


def _use(dice: Random, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    if dice.random() < 0.2:
        flag = dice.choice(["enablePreemptable", "enableJobOrder", "enableJobReady"])
        found[flag] = dice.random() < 0.3
    if name == "capacity":
        found["enableHierarchy"] = dice.random() < 0.5
        found["arguments"] = {"ancestorReclaimLevel": dice.randint(0, 2)}
    return found
