"""Which pending pods wait, and who comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policy.cluster import times
from policy.cluster.objects import Pod
from policy.cluster.pod_groups import group_key
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import PRIORITY, TERMINATING
from policy.groups.members import muster
from policy.rules.group_rules import GroupRules
from policy.rules.ruleset import QueueOrder, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHead:
    """What one cycle takes out of the queue: a pod, or the pending members of a group."""

    pods: tuple[str, ...]
    group: str = ""  #: namespace/name; "" of a pod that is scheduled by itself


DEFAULT_SCHEDULER = "default-scheduler"


def waiting(pod: Pod, *, scheduler: str) -> bool:
    """Does the pod wait for this scheduler: not placed, not ended, not leaving, not gated?"""
    return (
        not pod.spec.node_name
        and pod.status.phase not in {"Succeeded", "Failed"}
        and not pod.metadata.deletion_timestamp
        and not pod.spec.scheduling_gates
        and (pod.spec.scheduler_name or DEFAULT_SCHEDULER) == scheduler
    )


def left_out(snapshot: Snapshot, *, scheduler: str) -> Counter[str]:
    """How many pods without a node are not in this scheduler's queue, by the reason for people."""
    found: Counter[str] = Counter()
    for row in np.flatnonzero(snapshot.node < 0).tolist():
        pod = snapshot.pods[row]
        if pod is None or pod.spec.node_name or pod.status.phase in {"Succeeded", "Failed"}:
            continue
        own = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        if own != scheduler:
            found[f"of scheduler {own}"] += 1
        elif pod.spec.scheduling_gates:
            found["with scheduling gates"] += 1
        elif pod.metadata.deletion_timestamp:
            found["leaving already"] += 1
    return found


def arrival_ms(pod: Pod, *, now_ms: int, order: QueueOrder = QueueOrder.ARRIVAL) -> int:
    """When the pod came; one without creation time counts as arriving now.

    Where `order` is by key every pod does: a scheduler that has just started sees all of them
    arrive at once.
    """
    created = times.parse_optional(pod.metadata.creation_timestamp)
    known = order is QueueOrder.ARRIVAL and created != times.MISSING
    return created if known else now_ms


def heads(
    snapshot: Snapshot, rules: RuleSet, *, scheduler: str = DEFAULT_SCHEDULER
) -> Iterator[QueueHead]:
    """The cycles that the queue holds, in order: a group comes with the first of its members.

    Members that their gates hold back are in no cycle.
    """
    found: set[str] = set()
    for key in pending(snapshot, scheduler=scheduler, order=rules.queue.order):
        if key not in found:
            head = head_of(key, snapshot, rules.groups)
            found.update(head.pods)
            if head.pods:
                yield head


def head_of(key: str, snapshot: Snapshot, rules: GroupRules | None) -> QueueHead:
    """The cycle that a waiting pod begins: its own, or that of its group with all its members.

    Without pods where the gate of the group holds them back.
    """
    pod = snapshot.pod(key)
    group = "" if pod is None or rules is None else group_key(pod)
    if not group or rules is None:
        return QueueHead(pods=(key,))
    members = muster(snapshot, group, rules).members
    return QueueHead(pods=tuple(m.key for m in members), group=group)


def pending(
    snapshot: Snapshot,
    *,
    scheduler: str = DEFAULT_SCHEDULER,
    order: QueueOrder = QueueOrder.ARRIVAL,
) -> list[str]:
    """Keys of the pods that wait, in queue order.

    1. Higher priority.
    2. Earlier arrival (creation); a pod without creation time counts as arriving now. Not where
       `order` is by key: a scheduler that has just started sees all of them arrive at once.
    3. Namespace and name.
    """
    rows = np.flatnonzero((snapshot.node < 0) & ~snapshot.column(TERMINATING)).tolist()
    priority = snapshot.column(PRIORITY)
    found = []
    for row in rows:
        pod = snapshot.pods[row]
        if pod is not None and waiting(pod, scheduler=scheduler):
            arrival = arrival_ms(pod, now_ms=snapshot.now_ms, order=order)
            found.append((-int(priority[row]), arrival, int(snapshot.rank[row]), row))
    return [snapshot.keys[row] for *_, row in sorted(found)]
