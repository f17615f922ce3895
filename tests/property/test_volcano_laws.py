"""Laws of Volcano's sessions, each with the conditions under which it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.recording import Operation, StepOutcome, TaskStep
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.resources import Amount
from policy.cluster.objects import ClusterObject, Pod, PodGroup, Queue, key_of
from policy.cluster.snapshot import Snapshot
from tests.support.batch_clusters import GROUP
from tests.support.volcano_clusters import cluster, configuration

many = settings(
    max_examples=int(os.environ.get("POLICY_PROPERTY_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
seeds = st.integers(0, 2**31)

PLACED = {Operation.ALLOCATE, Operation.PIPELINE}


def snapshot_of(objects: list[ClusterObject]) -> Snapshot:
    return Snapshot.from_objects(objects, now_ms=1_795_219_200_000)


def rules(*plugins: str, actions: str, **flags: Any) -> BatchRules:
    """All plugins in one tier, so that all of them have a say about victims."""
    uses = [{"name": name, **(flags if name == "capacity" else {})} for name in plugins]
    return BatchRules.load(
        {
            "apiVersion": "policy/v1",
            "kind": "BatchRules",
            "metadata": {"name": "laws"},
            "spec": {
                "semantics": "volcano",
                "actions": actions.split(", "),
                "tiers": [{"plugins": uses}],
            },
        }
    )


ALL = "enqueue, reclaim, preempt, allocate, backfill"


@many
@given(seed=seeds)
def test_a_session_replays_to_itself(seed: int) -> None:
    """Same snapshot, same rules, same bytes; the order in which objects came does not matter."""
    dice = Random(seed)
    objects = cluster(dice)
    chosen = BatchRules.load(configuration(dice))
    first = run_session(snapshot_of(objects), chosen)
    dice.shuffle(objects)
    again = run_session(snapshot_of(objects), BatchRules.from_canonical(chosen.canonical))
    assert first.canonical == again.canonical


@many
@given(seed=seeds, divides=st.sampled_from(["capacity", "proportion"]), tree=st.booleans())
@example(seed=2422, divides="proportion", tree=False)  # capability 1 cpu, guarantee 2 cpu
def test_no_queue_is_given_more_than_its_capability(seed: int, divides: str, tree: bool) -> None:
    """Whatever is placed or promised leaves its queue at or below what it can come to.

    Tasks without requests are placed by backfill, which looks at no queue. A guarantee above the
    capability, which Volcano's admission refuses, is what proportion gives all the same: what a
    queue deserves is cut to its capability first and raised to its guarantee last. capacity
    reserves the guarantee and keeps to the capability.
    """
    flags = {"enableHierarchy": tree} if divides == "capacity" else {}
    chosen = rules("priority", "gang", "drf", "predicates", divides, actions=ALL, **flags)
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    beyond = []
    for step, queue, used, request in usage(objects, result):
        if step.operation not in PLACED or resources.is_empty(request):
            continue
        limits = result.open.queues[queue].limits
        limit = limits["capability"].amounts()
        if divides == "proportion":
            limit = resources.highest(limit, limits["guarantee"].amounts())
        if not resources.within(used, limit, request):
            beyond.append((step.task, used, limit))
    assert beyond == []


@many
@given(seed=seeds, tree=st.booleans())
def test_reclaim_leaves_a_queue_what_it_is_guaranteed(seed: int, tree: bool) -> None:
    """Where capacity has the last word of its tier, a guarantee outlives every reclaim."""
    chosen = rules(
        "priority", "gang", "predicates", "capacity", actions="reclaim", enableHierarchy=tree
    )
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    for step, queue, used, _ in usage(objects, result):
        if step.operation is Operation.EVICT:
            guarantee = result.open.queues[queue].limits["guarantee"].amounts()
            assert resources.less_equal(guarantee, used)


@many
@given(seed=seeds)
def test_reclaim_leaves_queues_alone_that_hold_what_they_deserve(seed: int) -> None:
    """Under proportion a queue loses pods only while it holds more than it deserves.

    Said of queues that are promised nothing themselves, whose sums only shrink.
    """
    chosen = rules("priority", "gang", "predicates", "proportion", actions="reclaim")
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    done = list(usage(objects, result))
    growing = {queue for step, queue, _, _ in done if step.operation is Operation.PIPELINE}
    losing = {queue for step, queue, _, _ in done if step.operation is Operation.EVICT}
    for name in losing - growing:
        figures = result.open.queues[name]
        held, deserved = figures.allocated.amounts(), figures.deserved.amounts()
        assert not resources.less_equal(held, deserved)


@many
@given(seed=seeds)
def test_what_is_held_at_the_end_is_held_by_jobs_that_reach_their_minimum(seed: int) -> None:
    """A gang that falls short gives everything back: nothing is placed or promised between.

    Pods that ask for nothing are left out: backfill places them one by one, outside statements.
    So is preempt, which inside a job promises room task by task, whatever the job comes to.
    """
    actions = "enqueue, reclaim, allocate, backfill"
    chosen = rules("priority", "gang", "predicates", "proportion", actions=actions)
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
    idle = {key for key, pod in pods.items() if resources.is_empty(resources.of_pod(pod))}
    for key in (result.allocated.keys() | result.pipelined.keys()) - idle:
        job = _job(pods[key])
        reason = result.reasons[job]
        waiting = sum(_job(pods[k]) == job and not pods[k].spec.node_name for k in idle)
        assert reason.ready + reason.waiting + waiting >= reason.minimum


@many
@given(seed=seeds)
def test_queues_that_are_closed_or_not_reclaimable_are_left_alone(seed: int) -> None:
    """A closed queue gets nothing; from one that is not reclaimable nothing is reclaimed."""
    chosen = rules("priority", "gang", "predicates", "proportion", actions=ALL)
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    queues = {o.metadata.name: o for o in objects if isinstance(o, Queue)}
    for step, queue, _, request in usage(objects, result):
        found = queues.get(queue)
        if found is None:
            continue
        if step.operation in PLACED and not resources.is_empty(request):
            assert found.status.state in {"", "Open"}
        if step.action == "reclaim" and step.operation is Operation.EVICT:
            assert found.spec.reclaimable is not False


@many
@given(seed=seeds)
def test_a_gang_is_sent_as_a_whole_and_stays_whole(seed: int) -> None:
    """After every bind the gang has its minimum, and no eviction takes that away.

    Pods that wait and ask for nothing count towards it: backfill places them.
    """
    chosen = rules("priority", "gang", "predicates", "proportion", actions=ALL)
    objects = cluster(Random(seed))
    result = run_session(snapshot_of(objects), chosen)
    pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
    for group in (o for o in objects if isinstance(o, PodGroup)):
        uid, least = key_of(group), group.spec.min_member
        members = [k for k, pod in pods.items() if _job(pod) == uid]
        before = sum(_ready(pods[key]) for key in members)
        binds = sum(key in result.binds for key in members)
        lost = len(set(members) & set(result.evicts))
        idle = sum(
            not pods[key].spec.node_name and resources.is_empty(resources.of_pod(pods[key]))
            for key in members
        )
        if binds:
            assert before - lost + binds + idle >= least
        if lost and before >= least:
            assert before - lost >= least


@many
@given(seed=seeds)
def test_pods_that_are_marked_stay(seed: int) -> None:
    """A pod that is not preemptable is never evicted, whatever the configuration."""
    dice = Random(seed)
    objects = cluster(dice)
    result = run_session(snapshot_of(objects), BatchRules.load(configuration(dice)))
    pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
    labels = [pods[key].metadata.labels or {} for key in result.evicts]
    assert {of_pod.get("volcano.sh/preemptable") for of_pod in labels} <= {None, "true"}


# --- what queues hold along a session ------------------------------------------------------------


def usage(
    objects: list[ClusterObject], result: SessionResult
) -> Iterator[tuple[TaskStep, str, Amount, Amount]]:
    """Every step that took effect, the queue, what the queue holds afterwards, the request."""
    pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
    groups = {key_of(o): o for o in objects if isinstance(o, PodGroup)}
    held = {name: figures.allocated.amounts() for name, figures in result.open.queues.items()}
    for step in result.steps:
        if step.outcome is not StepOutcome.DONE or step.operation not in {*PLACED, Operation.EVICT}:
            continue
        queue = groups[step.job].spec.queue or "default"
        request = resources.of_pod(pods[step.task])
        change = resources.subtract if step.operation is Operation.EVICT else resources.add
        yield step, queue, change(held[queue], request), request


def _job(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{(pod.metadata.annotations or {}).get(GROUP)}"


def _ready(pod: Pod) -> bool:
    if pod.status.phase == "Succeeded":
        return True
    placed = pod.status.phase == "Running" or (
        pod.status.phase == "Pending" and bool(pod.spec.node_name)
    )
    return placed and not pod.metadata.deletion_timestamp
