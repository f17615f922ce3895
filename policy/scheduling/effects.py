"""What a decision does to the cluster's objects.

The same writes as kube-scheduler's, seen from the API server: a victim gets its condition and a
deletion timestamp (it leaves when its grace period is over), nominations are set and cleared, a
placed pod gets its node.
"""

from __future__ import annotations

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.leaving import deletion_time
from policy.cluster.objects import Condition, Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, NominationChange, Outcome


def changes_of(snapshot: Snapshot, decision: Decision) -> tuple[Change, ...]:
    """The objects as they are after the decision, in the order in which they are written.

    Objects that the decision leaves as they are do not appear.
    """
    pods: dict[str, Pod] = {}

    def current(key: str) -> Pod:
        pod = pods.get(key) or snapshot.pod(key)
        assert pod is not None  # decisions name pods of their own snapshot
        return pod

    effects = decision.effects
    for key in effects.mark_disrupted:
        pods[key] = disrupted(current(key), decision.now_ms)
    for key in effects.evict:
        pods[key] = leaving(current(key), decision.now_ms)
    for key in effects.clear_nominations:
        pods[key] = nominated(current(key), "")
    preemptor = current(decision.preemptor)
    if effects.bind:
        preemptor = placed(preemptor, effects.bind, decision.now_ms)
    elif decision.outcome is not Outcome.ERROR:
        preemptor = unschedulable(preemptor, decision.now_ms)
        if effects.nomination is NominationChange.SET:
            preemptor = nominated(preemptor, decision.node or "")
        elif effects.nomination is NominationChange.CLEAR:
            preemptor = nominated(preemptor, "")
    pods[decision.preemptor] = preemptor
    return tuple(("Pod", key, pod) for key, pod in pods.items() if pod != snapshot.pod(key))


def _with_condition(pod: Pod, condition: Condition) -> Pod:
    """The pod with the condition added, or put in place of the one of its type.

    A condition that says the same as before keeps the time of its last transition.
    """
    conditions = list(pod.status.conditions or ())
    for i, old in enumerate(conditions):
        if old.type == condition.type:
            if old.status == condition.status:
                condition = replace(condition, last_transition_time=old.last_transition_time)
            conditions[i] = condition
            break
    else:
        conditions.append(condition)
    return replace(pod, status=replace(pod.status, conditions=conditions))


def disrupted(pod: Pod, now_ms: int) -> Pod:
    """A victim with the condition that says why it goes."""
    return _with_condition(
        pod,
        Condition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            last_transition_time=times.to_text(now_ms),
        ),
    )


def leaving(pod: Pod, now_ms: int) -> Pod:
    """A deleted pod during its grace period."""
    if pod.metadata.deletion_timestamp:
        return pod
    # The API server stamps a graceful deletion with the time at which it will be forced.
    gone = deletion_time(pod, now_ms=now_ms)
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=gone))


def nominated(pod: Pod, node: str) -> Pod:
    """The pod nominated to the node; to none where it is ""."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def placed(pod: Pod, node: str, now_ms: int) -> Pod:
    """Binding also clears the nomination; the pod starts when its kubelet says so."""
    bound = replace(pod, spec=replace(pod.spec, node_name=node))
    return _with_condition(
        nominated(bound, ""),
        Condition(
            type="PodScheduled",
            status="True",
            last_transition_time=times.to_text(now_ms),
        ),
    )


def unschedulable(pod: Pod, now_ms: int, *, reason: str = "Unschedulable") -> Pod:
    """The pod after a cycle that found no node for it."""
    return _with_condition(
        pod,
        Condition(
            type="PodScheduled",
            status="False",
            reason=reason,
            last_transition_time=times.to_text(now_ms),
        ),
    )
