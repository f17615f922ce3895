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
        pods[key] = _disrupted(current(key), decision)
    for key in effects.evict:
        pods[key] = _leaving(current(key), decision)
    for key in effects.clear_nominations:
        pods[key] = _nominated(current(key), "")
    preemptor = current(decision.preemptor)
    if effects.bind:
        preemptor = _placed(preemptor, effects.bind, decision)
    elif decision.outcome is not Outcome.ERROR:
        preemptor = _unschedulable(preemptor, decision)
        if effects.nomination is NominationChange.SET:
            preemptor = _nominated(preemptor, decision.node or "")
        elif effects.nomination is NominationChange.CLEAR:
            preemptor = _nominated(preemptor, "")
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


def _disrupted(pod: Pod, decision: Decision) -> Pod:
    return _with_condition(
        pod,
        Condition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            last_transition_time=times.to_text(decision.now_ms),
        ),
    )


def _leaving(pod: Pod, decision: Decision) -> Pod:
    if pod.metadata.deletion_timestamp:
        return pod
    # The API server stamps a graceful deletion with the time at which it will be forced.
    gone = deletion_time(pod, now_ms=decision.now_ms)
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=gone))


def _nominated(pod: Pod, node: str) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _placed(pod: Pod, node: str, decision: Decision) -> Pod:
    """Binding also clears the nomination; the pod starts when its kubelet says so."""
    bound = replace(pod, spec=replace(pod.spec, node_name=node))
    return _with_condition(
        _nominated(bound, ""),
        Condition(
            type="PodScheduled",
            status="True",
            last_transition_time=times.to_text(decision.now_ms),
        ),
    )


def _unschedulable(pod: Pod, decision: Decision) -> Pod:
    return _with_condition(
        pod,
        Condition(
            type="PodScheduled",
            status="False",
            reason="Unschedulable",
            last_transition_time=times.to_text(decision.now_ms),
        ),
    )
