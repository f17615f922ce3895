"""Law: a waiting pod that fits after one change of the cluster is tried again for that change.

It does not hold where a placed pod begins to leave: topology spread counts it no more, and
kube-scheduler moves a pod for it when it is gone.
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Node, Pod, kind_of
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Outcome
from policy.preemption.decide import decide
from policy.rules.ruleset import QueueKind, QueueOrder, QueueRules
from policy.scheduling.events import QueueFeed
from policy.scheduling.state import Transition
from tests.support.builders import NOW_MS, rule_set
from tests.support.clusters import Example, clusters

KUBE = rule_set("kube-1.36")
AT_ONCE = QueueRules(
    kind=QueueKind.PRIORITY,
    order=QueueOrder.ARRIVAL,
    initial_backoff_seconds=0,
    max_backoff_seconds=0,
    unschedulable_seconds=300,
)


def key_of(one: ClusterObject) -> str:
    meta = one.metadata
    return meta.name if isinstance(one, Node) else f"{meta.namespace or 'default'}/{meta.name}"


def preempting_nobody(example: Example) -> Snapshot:
    """The cluster, in which the pod that waits may evict no pod: room is all that helps it."""
    snapshot = example.snapshot()
    pod = snapshot.pod(example.pod)
    assert pod is not None
    modest = replace(pod, spec=replace(pod.spec, preemption_policy="Never"))
    return snapshot.apply([("Pod", example.pod, modest)])


def changed(mine: Example, theirs: Example, dice: Random) -> Change:
    """One pod, node or budget removed, or made like one of another cluster in part or whole."""
    kinds = ("Pod", "Node", "PodDisruptionBudget")
    one = dice.choice([o for o in mine.objects if kind_of(o) in kinds and key_of(o) != mine.pod])
    like = [o for o in theirs.objects if type(o) is type(one) and key_of(o) != theirs.pod]
    new: ClusterObject | None = None
    if like and dice.random() < 0.75:
        other = dice.choice(like)
        meta = replace(one.metadata, labels=other.metadata.labels)
        new = dice.choice(
            [
                replace(one, metadata=meta),
                replace(one, status=other.status),
                replace(other, metadata=meta),
            ]
        )
    return kind_of(one), key_of(one), new


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=clusters(), theirs=clusters(), dice=st.randoms(use_true_random=False))
def test_what_fits_after_a_change_is_tried_again(
    mine: Example, theirs: Example, dice: Random
) -> None:
    """Whatever the change was: labels, room, taints, another pod of the name, a resize."""
    before = preempting_nobody(mine)
    failed = decide(before, KUBE, mine.pod, seed=mine.seed)
    change = changed(mine, theirs, dice)
    after = before.apply([change])
    if failed.outcome is Outcome.BIND or _begins_to_leave(before, change):
        return
    if decide(after, KUBE, mine.pod, seed=mine.seed).outcome is not Outcome.BIND:
        return
    pod = before.pod(mine.pod)
    assert pod is not None
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    feed = QueueFeed(AT_ONCE, scheduler=scheduler, clock=lambda: NOW_MS)
    feed.fill(before)
    while (popped := feed.pop()) != mine.pod:
        assert popped is not None
        feed.queue.delete(popped)
    feed.decided(failed)
    feed.follow(Transition(before=before, changes=(change,), after=after))
    assert mine.pod in iter(feed.pop, None)  # another one, made anew, may come before it


def _begins_to_leave(before: Snapshot, change: Change) -> bool:
    kind, key, new = change
    was = before.pod(key) if kind == "Pod" else None
    return (
        was is not None
        and isinstance(new, Pod)
        and bool(new.metadata.deletion_timestamp) > bool(was.metadata.deletion_timestamp)
    )
