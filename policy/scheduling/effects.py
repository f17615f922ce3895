"""What a decision does to the cluster's objects.

The same writes as kube-scheduler's, seen from the API server: a victim gets its condition and a
deletion timestamp (it leaves when its grace period is over), nominations are set and cleared, a
placed pod gets its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.leaving import deletion_time
from policy.cluster.objects import Condition, GroupCondition, Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, NominationChange, Outcome

AnyCondition = TypeVar("AnyCondition", bound=Condition | GroupCondition)


class ChangedPods:
    """Pods of a snapshot, as a decision on it leaves them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pods: dict[str, Pod] = {}

    def __getitem__(self, key: str) -> Pod:
        pod = self._pods.get(key) or self._snapshot.pod(key)
        assert pod is not None  # decisions name pods of their own snapshot
        return pod

    def __setitem__(self, key: str, pod: Pod) -> None:
        self._pods[key] = pod

    def make_room(
        self,
        *,
        mark_disrupted: Iterable[str],
        evict: Iterable[str],
        clear_nominations: Iterable[str],
        now_ms: int,
    ) -> None:
        """What becomes of the victims, and of pods that were nominated to the node before."""
        for key in mark_disrupted:
            self[key] = disrupted(self[key], now_ms)
        for key in evict:
            self[key] = leaving(self[key], now_ms)
        for key in clear_nominations:
            self[key] = nominated(self[key], "")

    def changes(self) -> list[Change]:
        """Those that are not as they were, in the order in which they were changed first."""
        pods = self._pods.items()
        return [("Pod", key, pod) for key, pod in pods if pod != self._snapshot.pod(key)]


def changes_of(snapshot: Snapshot, decision: Decision) -> tuple[Change, ...]:
    """The objects as they are after the decision, in the order in which they are written.

    Objects that the decision leaves as they are do not appear.
    """
    pods, effects = ChangedPods(snapshot), decision.effects
    pods.make_room(
        mark_disrupted=effects.mark_disrupted,
        evict=effects.evict,
        clear_nominations=effects.clear_nominations,
        now_ms=decision.now_ms,
    )
    preemptor = pods[decision.preemptor]
    if effects.bind:
        preemptor = placed(preemptor, effects.bind, decision.now_ms)
    elif decision.outcome is not Outcome.ERROR:
        preemptor = unschedulable(preemptor, decision.now_ms)
        if effects.nomination is NominationChange.SET:
            preemptor = nominated(preemptor, decision.node or "")
        elif effects.nomination is NominationChange.CLEAR:
            preemptor = nominated(preemptor, "")
    pods[decision.preemptor] = preemptor
    return tuple(pods.changes())


def with_condition(
    conditions: Sequence[AnyCondition] | None, new: AnyCondition
) -> list[AnyCondition]:
    """With one condition added, or put in place of the one of its type.

    A condition that says the same as before keeps the time of its last transition.
    """
    found = list(conditions or ())
    for i, old in enumerate(found):
        if old.type == new.type:
            if old.status == new.status:
                new = replace(new, last_transition_time=old.last_transition_time)
            found[i] = new
            return found
    return [*found, new]


def _with_condition(pod: Pod, condition: Condition) -> Pod:
    conditions = with_condition(pod.status.conditions, condition)
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
