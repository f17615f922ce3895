"""Which pending pods wait, and who comes first."""

from __future__ import annotations

import numpy as np

from policy.cluster import times
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import PRIORITY, TERMINATING

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


def arrival_ms(pod: Pod, *, now_ms: int) -> int:
    """When the pod came; one without creation time counts as arriving now."""
    created = times.parse_optional(pod.metadata.creation_timestamp)
    return now_ms if created == times.MISSING else created


def pending(snapshot: Snapshot, *, scheduler: str = DEFAULT_SCHEDULER) -> list[str]:
    """Keys of the pods that wait, in queue order.

    1. Higher priority.
    2. Earlier arrival (creation); a pod without creation time counts as arriving now.
    3. Namespace and name.
    """
    rows = np.flatnonzero((snapshot.node < 0) & ~snapshot.column(TERMINATING)).tolist()
    priority = snapshot.column(PRIORITY)
    found = []
    for row in rows:
        pod = snapshot.pods[row]
        if pod is not None and waiting(pod, scheduler=scheduler):
            arrival = arrival_ms(pod, now_ms=snapshot.now_ms)
            found.append((-int(priority[row]), arrival, int(snapshot.rank[row]), row))
    return [snapshot.keys[row] for *_, row in sorted(found)]
