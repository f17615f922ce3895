"""What a session does to the cluster, as changes of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Condition, Pod
from policy.cluster.snapshot import Snapshot


def carried_out(
    snapshot: Snapshot, *, binds: Mapping[str, str], evicts: Iterable[str]
) -> Iterator[Change]:
    """Pods as they are right after they were sent to nodes, or evicted.

    Serves a whole session as well as a single statement.
    """
    now = times.to_text(snapshot.now_ms) or ""
    for key, node in binds.items():
        pod = snapshot.pod(key)
        if pod is not None:
            yield "Pod", key, replace(pod, spec=replace(pod.spec, node_name=node))
    for key in evicts:
        pod = snapshot.pod(key)
        if pod is not None:
            yield "Pod", key, _evicted(pod, now)


def _evicted(pod: Pod, now: str) -> Pod:
    target = Condition(
        type="DisruptionTarget",
        status="True",
        reason="PreemptionByScheduler",
        last_transition_time=now,
    )
    others = [c for c in pod.status.conditions or () if c.type != target.type]
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=now),
        status=replace(pod.status, conditions=[*others, target]),
    )
