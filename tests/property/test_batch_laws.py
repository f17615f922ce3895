"""Laws of sessions, each with the conditions under which it holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.heap import Heap
from policy.batch.recording import Operation, StepOutcome
from policy.batch.resources import (
    CPU_EPSILON,
    MEMORY_EPSILON,
    Amounts,
    Resource,
    difference,
    dominant_share,
    minimum,
    pod_requests,
)
from policy.cluster.objects import ClusterObject, Node, Pod, PodGroup, key_of
from policy.cluster.snapshot import Snapshot
from policy.scheduling.consequences import passed
from tests.support.batch import settled
from tests.support.batch_clusters import GROUP, cluster, configuration

many = settings(
    max_examples=int(os.environ.get("POLICY_PROPERTY_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
seeds = st.integers(0, 2**31)
SAFE = BatchRules.load("batch-safe")
SAMPLE = BatchRules.load("kube-batch-sample")


def snapshot_of(objects: list[ClusterObject]) -> Snapshot:
    return Snapshot.from_objects(objects, now_ms=1_795_219_200_000)


def pods_of(objects: list[ClusterObject]) -> dict[str, Pod]:
    return {key_of(o): o for o in objects if isinstance(o, Pod)}


def is_ready(pod: Pod) -> bool:
    """Counts towards the minimum of its gang."""
    if pod.status.phase == "Succeeded":
        return True
    placed = pod.status.phase == "Running" or (
        pod.status.phase == "Pending" and bool(pod.spec.node_name)
    )
    return placed and not pod.metadata.deletion_timestamp


# --- sessions ----------------------------------------------------------------------------------


@many
@given(seed=seeds)
def test_a_session_replays_to_itself(seed: int) -> None:
    """Same snapshot, same rules, same bytes; the order in which objects came does not matter."""
    dice = Random(seed)
    objects = cluster(dice)
    rules = BatchRules.load(configuration(dice))
    first = run_session(snapshot_of(objects), rules)
    dice.shuffle(objects)
    again = run_session(snapshot_of(objects), BatchRules.from_canonical(rules.canonical))
    # The digest covers the snapshot's, which is that of a set of objects.
    assert first.canonical == again.canonical
    assert first.digest == again.digest


@many
@given(seed=seeds)
def test_batch_safe_keeps_the_minimum_of_every_gang(seed: int) -> None:
    """A gang (minimum above 1) that has its minimum when the session starts has it at the end."""
    objects = cluster(Random(seed))
    pods = pods_of(objects)
    result = run_session(snapshot_of(objects), SAFE)
    broken = []
    for group in (o for o in objects if isinstance(o, PodGroup)):
        members = [
            key
            for key, pod in pods.items()
            if (pod.metadata.annotations or {}).get(GROUP) == group.metadata.name
        ]
        ready = sum(is_ready(pods[key]) for key in members)
        left = ready - len(set(members) & set(result.evicts))
        left += len(set(members) & result.binds.keys())
        least = group.spec.min_member
        if least > 1 and ready >= least > left:
            broken.append(group.metadata.name)
    assert broken == []


@many
@given(seed=seeds, ask=st.sampled_from(["proportion", "gang, proportion"]))
def test_no_queue_is_reclaimed_below_what_it_deserves(seed: int, ask: str) -> None:
    """Where proportion stands in the tier that decides, a queue that loses keeps its deserved."""
    objects = cluster(Random(seed))
    tiers = [{"plugins": [{"name": name.strip()} for name in ask.split(",")]}]
    rules = BatchRules.load({"actions": "reclaim, allocate, reclaim", "tiers": tiers})
    for chosen in (rules, SAFE):
        assert list(below_deserved(objects, run_session(snapshot_of(objects), chosen))) == []


def below_deserved(objects: list[ClusterObject], result: SessionResult) -> list[str]:
    """Tasks whose reclaim left their queue with less than it deserves."""
    pods = pods_of(objects)
    queue_of = {key_of(o): o.spec.queue or "default" for o in objects if isinstance(o, PodGroup)}
    has = {name: figures.allocated.copy() for name, figures in result.open.queues.items()}
    found = []
    for step in result.steps:
        queue = queue_of.get(step.job, "default")
        request = pod_requests(pods[step.task])[0]
        if step.outcome is not StepOutcome.DONE:
            continue
        if step.operation in {Operation.ALLOCATE, Operation.PIPELINE}:
            has[queue].add(request)
        elif step.operation is Operation.EVICT:
            has[queue].sub(request)
            deserved = result.open.queues[queue].deserved
            if step.action == "reclaim" and not deserved.less_equal(has[queue]):
                found.append(step.task)
    return found


@many
@given(seed=seeds)
def test_nodes_are_not_overfilled(seed: int) -> None:
    """Tasks that are sent fit: a node's requests pass its allocatable by less than a tolerance.

    Only of nodes that were not overfilled before, and without the original's error with tasks
    that keep the node of a discarded statement (no preempt before allocate).
    """
    objects = cluster(Random(seed), odd=False)
    rules = BatchRules.load({"actions": "reclaim, allocate, backfill", "tiers": []})
    for chosen in (rules, SAFE):
        snapshot = snapshot_of(objects)
        result = run_session(snapshot, chosen)
        for node in (o for o in objects if isinstance(o, Node)):
            before, after = (
                load_of(pods_of(objects), {}, node),
                load_of(pods_of(objects), result.binds, node),
            )
            limit = Resource(*(float(v) for v in allocatable(node)))
            if before.less_equal(limit):
                assert after.cpu < limit.cpu + CPU_EPSILON
                assert after.memory < limit.memory + MEMORY_EPSILON


def allocatable(node: Node) -> tuple[int, int]:
    from policy.cluster import quantities

    amounts = node.status.allocatable or {}
    return quantities.milli(amounts["cpu"]), quantities.units(amounts["memory"])


def load_of(pods: Mapping[str, Pod], binds: Mapping[str, str], node: Node) -> Resource:
    load = Resource()
    for key, pod in pods.items():
        over = pod.status.phase in {"Succeeded", "Failed"}
        # A pod that another scheduler has just placed is not seen before it runs.
        unseen = pod.status.phase == "Pending" and pod.spec.scheduler_name != "kube-batch"
        here = (binds.get(key) or pod.spec.node_name) == node.metadata.name
        if here and not over and not unseen:
            load.add(pod_requests(pod)[0])
    return load


@many
@given(seed=seeds)
def test_steps_tell_the_whole_result(seed: int) -> None:
    """Binds, evictions and promises are exactly the steps that took effect."""
    dice = Random(seed)
    objects = cluster(dice)
    result = run_session(snapshot_of(objects), BatchRules.load(configuration(dice)))
    done = [step for step in result.steps if step.outcome is StepOutcome.DONE]
    assert [s.task for s in done if s.operation is Operation.BIND] == list(result.binds)
    assert sorted(s.task for s in done if s.operation is Operation.EVICT) == sorted(result.evicts)
    promised = {s.task for s in result.steps if s.operation is Operation.PIPELINE}
    assert result.pipelined.keys() <= promised
    assert [step.position for step in result.steps] == list(range(len(result.steps)))


@many
@given(seed=seeds)
def test_a_discarded_statement_leaves_nothing_but_its_record(seed: int) -> None:
    """Of a discarded statement no step stays in effect, and of a committed one every step."""
    dice = Random(seed)
    objects = cluster(dice)
    result = run_session(snapshot_of(objects), BatchRules.load(configuration(dice)))
    for statement in result.statements:
        steps = [result.steps[i] for i in statement.steps]
        changing = {s.outcome for s in steps if s.operation is not Operation.REJECT}
        if statement.committed:
            assert StepOutcome.DISCARDED not in changing
        else:
            assert changing <= {StepOutcome.DISCARDED}
        assert {s.statement for s in steps} == {statement.id}


@many
@given(seed=seeds)
def test_batch_safe_holds_room_only_for_gangs_that_can_start(seed: int) -> None:
    """What batch-safe places without sending belongs to jobs that only wait for a release."""
    result = run_session(snapshot_of(cluster(Random(seed))), SAFE)
    pods = {step.task: step.job for step in result.steps}
    for pod in result.allocated:
        reason = result.reasons[pods[pod]]
        assert reason.ready + reason.waiting >= reason.minimum


@many
@given(seed=seeds)
def test_sessions_settle(seed: int) -> None:
    """Sessions one after the other come to an end: every round places or removes pods."""
    objects = cluster(Random(seed))
    rounds, after = settled(snapshot_of(objects), SAFE, limit=60)
    assert len(rounds) < 60
    last = rounds[-1]
    assert not last.result.binds
    assert not last.result.evicts
    assert not list(passed(after))


@many
@given(seed=seeds)
def test_nobody_is_evicted_twice_or_bound_and_evicted(seed: int) -> None:
    """A pod is evicted at most once, and never in the session that sends it."""
    dice = Random(seed)
    objects = cluster(dice)
    result = run_session(snapshot_of(objects), BatchRules.load(configuration(dice)))
    assert len(set(result.evicts)) == len(result.evicts)
    assert not set(result.evicts) & result.binds.keys()
    running = {key for key, pod in pods_of(objects).items() if pod.status.phase == "Running"}
    assert set(result.evicts) <= running


# --- the parts ---------------------------------------------------------------------------------

amounts = st.builds(
    Resource,
    st.integers(0, 20_000).map(float),
    st.integers(0, 2**34).map(float),
    st.none() | st.dictionaries(st.sampled_from(["a/x", "b/y"]), st.integers(0, 5_000).map(float)),
)


@given(left=amounts, right=amounts)
def test_adding_and_taking_back_changes_no_amount(left: Resource, right: Resource) -> None:
    """Sums of whole numbers are exact, so a step that is undone leaves no trace in them."""
    total = left.copy().add(right)
    assert total.sub(right)
    assert {n: total.get(n) for n in left.names()} == left.amounts()


@given(left=amounts, right=amounts)
def test_columns_compare_like_single_resources(left: Resource, right: Resource) -> None:
    """`Amounts.covering` of all nodes at once is `less_equal` of each."""
    columns = Amounts.zeros(2, ["a/x", "b/y"])
    columns.put(0, right)
    columns.put(1, left)
    expected = [left.less_equal(right), left.less_equal(left)]
    assert columns.covering(left).tolist() == expected
    assert [columns.covers(i, left) for i in range(2)] == expected
    for name in left.scalars or {}:
        assert columns.at(0).get(name) == right.get(name)


@given(left=amounts, right=amounts)
def test_a_difference_adds_up(left: Resource, right: Resource) -> None:
    """What is more and what is less explain the way from the one to the other."""
    more, less = difference(left, right)
    for name in left.names():
        assert right.get(name) + more.get(name) - less.get(name) == left.get(name)
        assert minimum(left, right).get(name) <= left.get(name)


@given(part=amounts, whole=amounts)
def test_a_share_grows_with_the_part(part: Resource, whole: Resource) -> None:
    """Nobody's dominant share shrinks by getting more; drf's hint rests on it."""
    assert dominant_share(part.copy().add(part), whole) >= dominant_share(part, whole) >= 0


@given(items=st.lists(st.integers(0, 30)))
def test_a_heap_sorts_what_does_not_change(items: list[int]) -> None:
    """With keys that stay as they are the heap gives its items in order."""
    heap: Heap[int] = Heap(lambda item: item)
    for item in items:
        heap.push(item)
    assert [heap.pop() for _ in range(len(items))] == sorted(items)
    assert not heap


def test_options_are_off_in_the_compatible_rules() -> None:
    """The shipped compatible rules decide as the original, with its errors."""
    plain = replace(SAMPLE, options=BatchRules.load("kube-batch").options)
    assert plain == SAMPLE
    assert not any(
        getattr(SAMPLE.options, name)
        for name in ("keep_gangs", "fit_first", "roll_back", "count_room")
    )
    assert np.all([getattr(SAFE.options, n) for n in ("keep_gangs", "fit_first", "roll_back")])
