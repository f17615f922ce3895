"""What a group's decision does to the cluster's objects, seen from the API server."""

from __future__ import annotations

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.members import groups_of
from policy.cluster.objects import GroupCondition, Pod, SchedulingPodGroup
from policy.cluster.pod_groups import KIND
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupConditionChange, GroupDecision
from policy.scheduling import effects


def changes_of_group(snapshot: Snapshot, decision: GroupDecision) -> tuple[Change, ...]:
    """The objects as they are after the decision, in the order in which they are written.

    Objects that the decision leaves as they are do not appear.
    """
    pods: dict[str, Pod] = {}

    def current(key: str) -> Pod:
        pod = pods.get(key) or snapshot.pod(key)
        assert pod is not None  # decisions name pods of their own snapshot
        return pod

    now_ms, done = decision.now_ms, decision.effects
    for key in done.mark_disrupted:
        pods[key] = effects.disrupted(current(key), now_ms)
    for key in done.evict:
        pods[key] = effects.leaving(current(key), now_ms)
    for key in done.clear_nominations:
        pods[key] = effects.nominated(current(key), "")
    for member in decision.members:
        pod = current(member.pod)
        if member.bound:
            pods[member.pod] = effects.placed(pod, done.bind[member.pod], now_ms)
            continue
        pod = effects.unschedulable(pod, now_ms, reason=member.reason)
        if member.pod in done.nominate:
            pod = effects.nominated(pod, done.nominate[member.pod])
        pods[member.pod] = pod
    found: list[Change] = [("Pod", k, pod) for k, pod in pods.items() if pod != snapshot.pod(k)]
    group = groups_of(snapshot).get(decision.group)
    if done.condition is not None and group is not None:
        found.append((KIND, decision.group, _with_condition(group, done.condition, now_ms)))
    return tuple(found)


def _with_condition(
    group: SchedulingPodGroup, change: GroupConditionChange, now_ms: int
) -> SchedulingPodGroup:
    conditions = list(group.status.conditions or ())
    new = GroupCondition(
        type="PodGroupScheduled",
        status=change.status,
        reason=change.reason,
        message=change.message,
        observed_generation=group.metadata.generation or None,
        last_transition_time=times.to_text(now_ms),
    )
    for i, old in enumerate(conditions):
        if old.type == new.type:
            if old.status == new.status:
                new = replace(new, last_transition_time=old.last_transition_time)
            conditions[i] = new
            break
    else:
        conditions.append(new)
    return replace(group, status=replace(group.status, conditions=conditions))
