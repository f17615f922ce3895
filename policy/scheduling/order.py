"""Which pending pods wait, and who comes first."""

from __future__ import annotations

import numpy as np

from policy.cluster import times
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import PRIORITY, TERMINATING
from policy.rules.ruleset import QueueOrder

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
    by_arrival = order is QueueOrder.ARRIVAL
    rows = np.flatnonzero((snapshot.node < 0) & ~snapshot.column(TERMINATING)).tolist()
    priority = snapshot.column(PRIORITY)
    found = []
    for row in rows:
        pod = snapshot.pods[row]
        if pod is not None and waiting(pod, scheduler=scheduler):
            created = times.parse_optional(pod.metadata.creation_timestamp)
            known = by_arrival and created != times.MISSING
            arrival = created if known else snapshot.now_ms
            found.append((-int(priority[row]), arrival, int(snapshot.rank[row]), row))
    return [snapshot.keys[row] for *_, row in sorted(found)]
