"""What changes of the cluster mean for pods that failed: whom a change moves, whom it does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.objects import (
    ContainerStatus,
    PodAffinityTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.rules.ruleset import QueueKind, QueueOrder, QueueRules
from policy.scheduling.events import QueueFeed
from policy.scheduling.state import Transition
from tests.support.builders import (
    HOSTNAME,
    NOW_MS,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    rule_set,
    selector,
    snapshot,
)

NAME = "default-scheduler"
AT_ONCE = QueueRules(
    kind=QueueKind.PRIORITY,
    order=QueueOrder.ARRIVAL,
    initial_backoff_seconds=0,
    max_backoff_seconds=0,
    unschedulable_seconds=300,
)
BESIDE_DB = PodAffinityTerm(topology_key=HOSTNAME, label_selector=selector(app="db"))
BESIDE_WEB = PodAffinityTerm(topology_key=HOSTNAME, label_selector=selector(app="web"))
SPREAD_DB = TopologySpreadConstraint(
    max_skew=1,
    topology_key=HOSTNAME,
    when_unsatisfiable="DoNotSchedule",
    label_selector=selector(app="db"),
)
RUNS = a_pod("runs").cpu(1).labelled(app="web").on("n1")
PROMISED = a_pod("promised").nominated_to("n1")
BIG = a_pod("big").cpu(9)
BESIDE = a_pod("beside").cpu(1).affine_to(BESIDE_DB)
SPREAD = a_pod("spread").cpu(1).spread(SPREAD_DB)
WITHOUT = a_pod("without").cpu(1).anti_affine_to(BESIDE_WEB)
FAILED = (BIG, BESIDE, SPREAD, WITHOUT)
CLUSTER = snapshot(a_node("n1").cpu(2), RUNS, PROMISED, *FAILED, a_namespace("default"))


def put(pod: PodBuilder) -> Change:
    return "Pod", f"default/{pod.pod.metadata.name}", pod.pod


def moved_by(*changes: Change, cluster: Snapshot = CLUSTER) -> set[str]:
    """Which of the pods that failed are tried again after these changes."""
    feed = QueueFeed(AT_ONCE, scheduler=NAME, clock=lambda: NOW_MS)
    feed.fill(CLUSTER)
    while (key := feed.pop()) is not None:
        feed.queue.failed(key, priority=0, now_ms=NOW_MS)
    feed.queue.delete("default/promised")
    after = cluster.apply(changes)
    feed.follow(Transition(before=cluster, changes=changes, after=after))
    return {str(key).removeprefix("default/") for key in feed.queue.active()} & {
        pod.pod.metadata.name for pod in FAILED
    }


FULL = CLUSTER.apply([put(RUNS.cpu(2))])
ALL = {"big", "beside", "spread", "without"}
RESIZED = RUNS.cpu("100m")
ANOTHER = PodBuilder(replace(RUNS.pod, metadata=replace(RUNS.pod.metadata, uid="new")))


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        pytest.param(("Pod", "default/runs", None), ALL, id="a placed pod is deleted"),
        pytest.param(put(RUNS.ended()), ALL, id="a placed pod completes"),
        pytest.param(put(RUNS.ended("Failed")), ALL, id="a placed pod fails"),
        pytest.param(put(RESIZED), ALL, id="a placed pod asks for less"),
        pytest.param(put(ANOTHER), ALL, id="a placed pod is made anew under its name"),
        pytest.param(put(RUNS.terminating()), set(), id="a placed pod begins to leave"),
        pytest.param(put(RUNS.condition("Ready", "True", "")), set(), id="a placed pod is ready"),
        pytest.param(
            put(RUNS.labelled(app="db")),
            {"beside", "spread", "without"},
            id="it gets another label",
        ),
        pytest.param(put(RUNS.labelled(app="web", tier="x")), set(), id="a label that none reads"),
        pytest.param(
            put(a_pod("db").labelled(app="db").on("n1")),
            {"beside", "spread"},
            id="a pod is placed that a requirement selects",
        ),
        pytest.param(put(a_pod("other").on("n1")), set(), id="a pod is placed that none selects"),
        pytest.param(put(a_pod("more")), set(), id="another pod waits"),
        pytest.param(("Pod", "default/promised", None), ALL, id="a nominated pod is deleted"),
        pytest.param(("Node", "n2", a_node("n2").node), ALL, id="a node is added"),
        pytest.param(("Node", "n1", None), ALL, id="a node is removed"),
        pytest.param(
            ("PodDisruptionBudget", "default/b", a_pdb("b").budget), ALL, id="a budget changes"
        ),
    ],
)
def test_whom_a_change_moves(change: Change, moved: set[str]) -> None:
    """Room that is free moves every pod that failed; a placed pod those that require it."""
    assert moved_by(change) == moved


def holding(cpu: str) -> PodBuilder:
    """The placed pod, asked for little, that holds so much by its status."""
    held = ContainerStatus(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))
    pod = RESIZED.pod
    return PodBuilder(replace(pod, status=replace(pod.status, container_statuses=(held,))))


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        pytest.param("1", "100m", ALL, id="the kubelet has resized it"),
        pytest.param("1", "1", set(), id="it has not yet"),
        pytest.param("100m", "1", set(), id="it holds more"),
    ],
)
def test_a_resize_frees_room_when_it_is_done(before: str, after: str, moved: set[str]) -> None:
    """The status of a placed pod says what it holds, also where its spec stays as it is."""
    cluster = CLUSTER.apply([put(holding(before))])
    leaves = holding(after).condition("Ready", "True", "")
    assert moved_by(put(leaves), cluster=cluster) == moved


def test_a_resize_that_is_impossible_frees_what_the_spec_asks_for() -> None:
    """From then on the pod counts with what it was given, also where no status said so before."""
    cluster = CLUSTER.apply([put(RESIZED)])
    refused = holding("1m").condition("PodResizePending", "True", "Infeasible")
    assert moved_by(put(refused), cluster=cluster) == ALL


def a_feed(*, kind: QueueKind = QueueKind.PRIORITY) -> QueueFeed:
    feed = QueueFeed(rules_of(kind), scheduler=NAME, clock=lambda: NOW_MS)
    feed.fill(CLUSTER)
    return feed


def rules_of(kind: QueueKind) -> QueueRules:
    return QueueRules(
        kind=kind,
        order=QueueOrder.ARRIVAL,
        initial_backoff_seconds=0,
        max_backoff_seconds=0,
        unschedulable_seconds=300,
    )


def follow(feed: QueueFeed, *pods: PodBuilder) -> None:
    changes = tuple(put(pod) for pod in pods)
    feed.follow(Transition(before=CLUSTER, changes=changes, after=CLUSTER.apply(changes)))


def test_a_pod_that_others_tried_waits() -> None:
    """A pod in which another scheduler failed is not tried again for its own sake."""
    feed = a_feed()
    follow(feed, BIG.condition("PodScheduled", "False", "Unschedulable"))
    assert feed.queue.waiting() == ("default/big",)


def test_a_pod_that_others_placed_or_removed_leaves_the_queue() -> None:
    """Only pods that wait for the scheduler are in its queue."""
    feed = a_feed()
    follow(feed, BIG.on("n1"), BESIDE.scheduled_by("another"), SPREAD.terminating())
    assert feed.queue.pods() == ("default/promised", "default/without")


def test_those_that_come_at_once_stand_in_the_order_of_the_queue() -> None:
    """Higher priority first, then the earlier arrival, then namespace and name."""
    feed = QueueFeed(AT_ONCE, scheduler=NAME, clock=lambda: NOW_MS)
    late = a_pod("b").priority(1).created(1)
    follow(feed, late, a_pod("a").priority(1).created(1), a_pod("high").priority(9).created(0))
    assert [feed.pop() for _ in range(4)] == [
        "default/high",
        "default/a",
        "default/b",
        None,
    ]


def test_a_fifo_is_not_tried_in_a_circle() -> None:
    """A FIFO has failed pods back at once; they are tried again when time or something passed."""
    feed = a_feed(kind=QueueKind.FIFO)
    tried = []
    while (pod := feed.pop()) is not None:
        tried.append(pod)
        feed.decided(decide(FULL, rule_set("kube-1.35"), pod))
    assert (len(tried), feed.ready()) == (5, False)
    follow(feed, RUNS.ended())
    assert feed.ready()


def test_the_pod_in_its_cycle_is_not_queued_twice() -> None:
    """What others change about the popped pod is seen by its cycle, which begins anew."""
    feed = a_feed()
    popped = feed.pop()
    assert popped == "default/beside"
    follow(feed, BESIDE.labelled(more="labels"))
    assert (popped in feed.queue, feed.tried_elsewhere()) == (False, False)
    follow(feed, BESIDE.condition("PodScheduled", "False", "Unschedulable"))
    assert feed.tried_elsewhere()
    follow(feed, RUNS.ended())
    assert not feed.tried_elsewhere()
