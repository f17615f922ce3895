"""What a group's decision does to the cluster's objects, seen from the API server."""

from __future__ import annotations

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.members import groups_of
from policy.cluster.objects import GroupCondition, SchedulingPodGroup
from policy.cluster.pod_groups import KIND
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupConditionChange, GroupDecision
from policy.scheduling import effects


def changes_of_group(snapshot: Snapshot, decision: GroupDecision) -> tuple[Change, ...]:
    """The objects as they are after the decision, in the order in which they are written.

    Objects that the decision leaves as they are do not appear.
    """
    pods, done, now_ms = effects.ChangedPods(snapshot), decision.effects, decision.now_ms
    pods.make_room(
        mark_disrupted=done.mark_disrupted,
        evict=done.evict,
        clear_nominations=done.clear_nominations,
        now_ms=now_ms,
    )
    for member in decision.members:
        pod = pods[member.pod]
        if member.bound:
            pods[member.pod] = effects.placed(pod, done.bind[member.pod], now_ms)
            continue
        pod = effects.unschedulable(pod, now_ms, reason=member.reason)
        if member.pod in done.nominate:
            pod = effects.nominated(pod, done.nominate[member.pod])
        pods[member.pod] = pod
    found = pods.changes()
    group = groups_of(snapshot).get(decision.group)
    if done.condition is not None and group is not None:
        found.append((KIND, decision.group, _with_condition(group, done.condition, now_ms)))
    return tuple(found)


def _with_condition(
    group: SchedulingPodGroup, change: GroupConditionChange, now_ms: int
) -> SchedulingPodGroup:
    new = GroupCondition(
        type="PodGroupScheduled",
        status=change.status,
        reason=change.reason,
        message=change.message,
        observed_generation=group.metadata.generation or None,
        last_transition_time=times.to_text(now_ms),
    )
    conditions = effects.with_condition(group.status.conditions, new)
    return replace(group, status=replace(group.status, conditions=conditions))
