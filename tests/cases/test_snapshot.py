"""Snapshots: what they hold, what their digests cover, how they follow changes."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from policy import Snapshot
from policy.cluster import times
from policy.cluster.objects import Pod, encode, key_of
from policy.cluster.occupancy import Occupancy
from policy.cluster.sharing import Sharing
from policy.cluster.tables import (
    ANTI_AFFINITY,
    HOST_PORTS,
    LABELS,
    NODE_NAME,
    NOMINATED_NAME,
    SCHEDULER,
    STANDARD,
    PodColumn,
)
from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.support.builders import (
    NOW,
    NOW_MS,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    decided,
    objects,
    rule_set,
    snapshot,
)

LOW = a_pod("low").priority(1).cpu(2).started(5)
HIGH = a_pod("high").priority(10).cpu(2)
PARTS = (a_node("n1").cpu(2).running(LOW), HIGH, a_pdb("p"), a_namespace("default"))


def keys(found: Snapshot) -> list[str]:
    return sorted(key for key, pod in zip(found.keys, found.pods, strict=True) if pod is not None)


# --- digests -----------------------------------------------------------------------------------


def test_the_digest_covers_state_and_now() -> None:
    """Another object, another instant or other history figures: another digest."""
    same = [snapshot(*PARTS).digest, snapshot(*reversed(PARTS)).digest]
    others = [
        snapshot(*PARTS, a_node("n2")).digest,
        snapshot(*PARTS).at(NOW_MS + 1).digest,
        snapshot(*PARTS).at(NOW_MS, history={"preemptedCount/3600": {"a": 1}}).digest,
    ]
    assert (len(set(same)), len({*same, *others})) == (1, 4)


def test_the_digest_of_changes_is_chained() -> None:
    """Changing a pod and changing it back is a history of its own."""
    first = snapshot(*PARTS)
    there = first.apply([("Pod", "default/low", LOW.priority(2).on("n1").pod)])
    back = there.apply([("Pod", "default/low", LOW.on("n1").pod)])
    assert len({first.digest, there.digest, back.digest}) == 3


def test_no_changes_are_no_revision() -> None:
    """The snapshot itself is what follows from nothing."""
    first = snapshot(*PARTS)
    assert first.apply([]) is first


def test_a_decision_names_the_snapshot_it_was_made_on() -> None:
    """By the digest that covers its state and instant."""
    cluster = snapshot(*PARTS)
    decision = decide(cluster, rule_set("kube-1.35"), "default/high")
    assert (decision.snapshot_digest, decision.now_ms) == (cluster.digest, NOW_MS)


# --- what it holds -----------------------------------------------------------------------------


def test_of_two_objects_with_one_key_the_last_counts() -> None:
    """As in a dump that lists an object twice."""
    found = snapshot(LOW, LOW.priority(7))
    assert [p.spec.priority for p in found.pods if p] == [7]


def test_a_namespace_that_is_not_named_is_default() -> None:
    """The key says so, and the pod is found by it."""
    found = snapshot(LOW.in_namespace(""))
    assert (found.keys.tolist(), found.pod("default/low")) == (
        ["default/low"],
        LOW.in_namespace("").pod,
    )


def test_pods_of_unknown_nodes_are_nowhere() -> None:
    """They are kept, but occupy nothing until their node appears."""
    before = snapshot(a_node("n1").cpu(9), LOW.on("n2"))
    after = before.apply([("Node", "n2", a_node("n2").cpu(2).node)])
    counts = [Occupancy.of(s).pods.tolist() for s in (before, after)]
    assert counts == [[0], [0, 1]]


def test_objects_come_back_out() -> None:
    """All of them, whatever became of them in the snapshot."""
    found = snapshot(*PARTS).objects()
    assert {repr(o) for o in found} == {repr(o) for o in objects(*PARTS)}


def test_a_naive_now_is_refused() -> None:
    """An instant without a time zone is no instant."""
    with pytest.raises(times.TimeError):
        Snapshot.from_manifests([], now=datetime(2026, 11, 21))  # noqa: DTZ001  # the point


def test_a_snapshot_of_manifests_is_one_of_objects() -> None:
    """Dicts as in a kubectl List give the same state as the objects they describe."""
    manifest = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "low", "namespace": "default"},
        "spec": {"containers": [{"name": "main"}], "priority": 1},
    }
    found = Snapshot.from_manifests([manifest], now=NOW.astimezone(UTC))
    [pod] = [p for p in found.pods if p]
    assert (pod.metadata.name, pod.spec.priority, found.now_ms) == ("low", 1, NOW_MS)


# --- how it follows changes --------------------------------------------------------------------


def test_pods_come_and_go() -> None:
    """A removed pod is gone, also when it comes back and goes again."""
    first = snapshot(*PARTS)
    gone = first.apply([("Pod", "default/low", None)])
    back = gone.apply([("Pod", "default/low", LOW.on("n1").pod)])
    again = back.apply([("Pod", "default/low", None), ("Pod", "default/nobody", None)])
    assert [keys(s) for s in (first, gone, back, again)] == [
        ["default/high", "default/low"],
        ["default/high"],
        ["default/high", "default/low"],
        ["default/high"],
    ]


def test_the_last_change_of_an_object_counts() -> None:
    """Within one revision, too."""
    moved = [("Pod", "default/low", LOW.on(n).pod) for n in ("n3", "n2")]
    after = snapshot(*PARTS, a_node("n2"), a_node("n3")).apply(moved)
    pod = after.pod("default/low")
    assert isinstance(pod, Pod)
    assert (pod.spec.node_name, Occupancy.of(after).pods.tolist()) == ("n2", [0, 1, 0])


@pytest.mark.parametrize("came", [0, 1, 2])
def test_two_futures_of_one_snapshot_do_not_meet(came: int) -> None:
    """Pods added in one of them have the same row in the other, and are other pods.

    Also where rows are free for them, because others came before.
    """
    first = snapshot(*PARTS)
    for name in ("one", "two")[:came]:
        first = first.apply([("Pod", f"default/{name}", a_pod(name).pod)])
    left = first.apply([("Pod", "default/left", a_pod("left").pod)])
    right = first.apply([("Pod", "default/right", a_pod("right").pod)])
    known = [
        [name for name in ("left", "right") if s.pod(f"default/{name}")]
        for s in (first, left, right)
    ]
    assert known == [[], ["left"], ["right"]]
    orders = [[key.partition("/")[2] for _, key, _ in s.in_order()] for s in (first, left, right)]
    others = ["high", "low", "one", "two"][: 2 + came]
    assert orders == [others, sorted([*others, "left"]), sorted([*others, "right"])]


def test_the_order_of_importance_follows_changes_of_pods() -> None:
    """A pod that changes its priority or start where it is changes its place among the others."""
    pods = [a_pod(n).priority(1).cpu(1).started(60) for n in ("a", "b")]
    rules = rule_set("kube-1.35")
    first = snapshot(a_node("n1").cpu(2).running(*pods), HIGH.cpu(1))
    higher = pods[1].priority(2).on("n1").pod
    earlier = pods[1].started(90).on("n1").pod
    victims = [decide(first, rules, "default/high").effects.evict]  # keeps the order
    victims += [
        decide(first.apply([("Pod", "default/b", pod)]), rules, "default/high").effects.evict
        for pod in (higher, earlier)
    ]
    assert victims == [("default/b",), ("default/a",), ("default/a",)]


def test_an_order_by_a_text_follows_values_that_come_in_between() -> None:
    """A text that is new to the cluster may take the rank that another one had before."""
    rules = rule_set(
        "kube-1.35",
        """{"victims": {"importance": [
            {"id": "tier", "ascending": "victim.labels['tier']"}, {"ascending": "victim.key"}]}}""",
    )
    pods = [a_pod(n).priority(1).cpu(1).labelled(tier="c") for n in ("a", "x")]
    first = snapshot(a_node("n1").cpu(2).running(*pods), HIGH.cpu(1))
    between = pods[1].labelled(tier="b").on("n1").pod
    before = decide(first, rules, "default/high").effects.evict  # keeps the order
    after = decide(first.apply([("Pod", "default/x", between)]), rules, "default/high")
    assert (before, after.effects.evict) == (("default/x",), ("default/a",))


def test_a_new_resource_widens_the_columns() -> None:
    """A resource that nobody named before is compared as soon as somebody does."""
    gpu = {"example.com/gpu": 1}
    first = snapshot(a_node("n1").cpu(9).running(LOW), HIGH.requesting(gpu))
    assert decide(first, rule_set("kube-1.35"), "default/high").outcome.value == "no-candidate"
    node = a_node("n1").cpu(9).allocatable(gpu).node
    after = first.apply([("Node", "n1", node)])
    assert decide(after, rule_set("kube-1.35"), "default/high").outcome.value == "bind"


def test_snapshot_order_is_namespace_then_name() -> None:
    """A dash sorts before a slash, yet namespace `a` comes before `a-b`."""
    pods = [
        a_pod("z").in_namespace("a").cpu(1).started(5),
        a_pod("y").in_namespace("a-b").cpu(1).started(5),
    ]
    decision = decided(a_node("n1").cpu(2).running(*pods), HIGH.cpu(1))
    assert decision.effects.evict == ("a-b/y",)


@pytest.mark.parametrize("read", [False, True], ids=["at once", "step by step"])
def test_pods_that_come_keep_the_order(read: bool) -> None:
    """Pods that arrive before, between and after the others, some together, stand in order."""
    names = ["m", "c", "t", "a", "z", "n", "b", "s"]
    followed = snapshot(*(a_pod(n) for n in names[:2]))
    apart = [a_pod("x").in_namespace("a-b"), a_pod("y").in_namespace("a"), a_pod("zz")]
    some = [[a_pod(n) for n in names[i:j]] for i, j in ((2, 3), (3, 6), (6, 8))]
    for came in (*some, *([one] for one in apart)):
        pods = [one.pod for one in came]
        followed = followed.apply([("Pod", key_of(pod), pod) for pod in pods])
        if read:
            assert sorted(followed.rank.tolist()) == list(range(len(followed.pods)))
    order = [key for _, key, _ in followed.in_order()]
    assert order == ["a/y", "a-b/x", *(f"default/{n}" for n in sorted([*names, "zz"]))]
    assert followed.rank[followed.row("default/a")] == 2


def test_many_changes_of_a_long_list_are_all_seen() -> None:
    """Beyond what is kept beside the list of pods, in whatever order they came."""
    size = 2100
    found = snapshot(*(a_pod(f"p{i}") for i in range(size)))
    for start in (0, 700, 1400):
        found = found.apply(
            [(
                "Pod", f"default/p{i}", None if i % 2 else a_pod(f"p{i}").priority(i).pod
            ) for i in range(start, start + 700)]
        )  # fmt: skip
    kept = {key: pod.spec.priority for _, key, pod in found.in_order()}
    assert kept == {f"default/p{i}": i for i in range(0, size, 2)}
    with pytest.raises(IndexError):
        found.pods[size]


# --- packing -----------------------------------------------------------------------------------


def test_the_pools_hold_what_columns_that_follow_later_hold() -> None:
    """Answers are made for every label set that is there, and then looked up by pod."""
    before = snapshot(*PARTS)
    before.column(LABELS)
    [other] = objects(a_pod("other").labelled({"new": "label"}))
    after = before.apply([("Pod", "default/other", other)])
    sets = len(after.pools.labels)
    assert sets == after.column(LABELS).max() + 1


def test_packing_leaves_no_trace_of_removed_pods() -> None:
    """Rows and interned labels are those of the pods that are there."""
    found = snapshot(*PARTS)
    for i in range(5):
        pod = a_pod(f"gone{i}").labelled(run=str(i)).pod
        found = found.apply([("Pod", f"default/gone{i}", pod)])
        found.column(LABELS)
        found = found.apply([("Pod", f"default/gone{i}", None)])
    packed = found.packed(tolerated=0)
    assert [(len(s.pods), len(s.pools.labels)) for s in (found, packed)] == [(7, 6), (2, 1)]


def test_packing_changes_nothing_that_is_read() -> None:
    """State, instant, history figures and with them the digest stay; so does every object."""
    found = snapshot(*PARTS).apply([("Pod", "default/new", a_pod("new").pod)])
    found = found.at(NOW_MS + 5, history={"preemptedCount/3600": {"a": 1}})
    packed = found.packed(tolerated=0)
    assert packed is not found
    assert (packed.digest, packed.now_ms, packed.history) == (
        found.digest,
        found.now_ms,
        found.history,
    )
    assert {repr(o) for o in packed.objects()} == {repr(o) for o in found.objects()}


def test_a_packed_snapshot_reads_like_one_that_is_made_anew() -> None:
    """Every pod has the columns, the requests and the place in the order that its object gives."""
    ports = a_pod("new").on("n1").host_port(80).requesting({"example.com/gpu": 1}).priority(3)
    found = snapshot(*PARTS, a_pod("waits").nominated_to("n1")).apply(
        [("Pod", f"default/gone{i}", a_pod(f"gone{i}").labelled(run=str(i)).pod) for i in range(3)]
    )
    found.column(LABELS)
    found = found.apply(
        [
            *(("Pod", f"default/gone{i}", None) for i in range(3)),
            ("Pod", "default/new", ports.labelled(run="new").pod),
            ("Pod", "default/low", LOW.labelled(app="low").started(7).on("n1").pod),
        ]
    )
    packed = found.packed(tolerated=0)
    assert len(packed.pods) == len(packed.pools.labels) + 1 == 4
    assert read(packed) == read(found.made_anew()) == read(found)


def read(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
    """What the columns say of each pod, in snapshot order."""
    pools = snapshot.pools
    interned = {
        NODE_NAME: pools.names,
        NOMINATED_NAME: pools.names,
        SCHEDULER: pools.names,
        LABELS: pools.labels,
        HOST_PORTS: pools.ports,
        ANTI_AFFINITY: pools.terms,
    }

    def value(column: PodColumn, row: int) -> object:
        plain = snapshot.column(column)[row].item()
        pool = interned.get(column)
        return plain if pool is None or plain < 0 else pool.values[plain]

    names = pools.resources.values
    return {
        key: (
            snapshot.row(key) == row,
            int(snapshot.node[row]),
            int(snapshot.nominated[row]),
            {n: v for n, v in zip(names, snapshot.requests()[row].tolist(), strict=True) if v},
            *(value(column, row) for column in STANDARD),
        )
        for row, key, _ in snapshot.in_order()
    }


def test_a_snapshot_with_few_changes_is_not_packed() -> None:
    """What was derived is computed again afterwards: it is worth it after many changes only."""
    found = snapshot(*PARTS).apply([("Pod", "default/low", None)])
    assert found.packed() is found


def test_the_last_values_of_a_name_are_remembered() -> None:
    """Eight of them, through changes, too; the one that was not used for longest is lost first."""
    built: list[int] = []

    def remembered(found: Snapshot, number: int) -> None:
        found.remembered("squares", (np.array([number]),), lambda: built.append(number))

    first = snapshot(*PARTS)
    for number in range(8):
        remembered(first, number)
    remembered(first, 0)
    after = first.apply([("Pod", "default/low", None)])
    remembered(after, 8)
    for number in (0, 8, 2, 1):
        remembered(after, number)
    assert built == [0, 1, 2, 3, 4, 5, 6, 7, 8, 1]


def test_shared_parts_leave_every_column_as_it_is() -> None:
    """A snapshot of pods that share equal parts reads like one of pods that share nothing."""
    running = [a_pod(f"p{i}").priority(i % 3).cpu(1 + i % 2).started(i) for i in range(20)]
    made = objects(*PARTS[1:], a_node("n1").cpu(40).running(*running))
    sharing = Sharing()
    shared = [msgspec.json.decode(encode(obj), type=type(obj)) for obj in made]
    for obj in shared:
        if isinstance(obj, Pod):
            sharing.pod(obj)
    one, other = (Snapshot.from_objects(found, now_ms=1) for found in (made, shared))
    assert tuple(shared) == tuple(made)
    assert {c.name: one.column(c).tolist() for c in STANDARD} == {
        c.name: other.column(c).tolist() for c in STANDARD
    }
    assert one.requests().tolist() == other.requests().tolist()
    assert (one.keys.tolist(), one.rank.tolist()) == (other.keys.tolist(), other.rank.tolist())


def test_states_that_are_done_with_are_freed() -> None:
    """What decisions remember for later states holds none of those that came before.

    Where a pod starts at that instant or, by its node's clock, later, the order of pods holds for
    the instant alone.
    """
    running = [a_pod(f"p{number}").cpu(1).started(-1) for number in range(4)]
    state = snapshot(a_node("n1").cpu(4).running(*running))
    rules = RuleSet.load("kube-1.35")
    states = []
    for number in range(6):
        high = a_pod(f"high-{number}").priority(100).cpu(1).pod
        name = f"default/high-{number}"
        state = state.apply([("Pod", name, high)]).at(NOW_MS + number)
        assert decide(state, rules, name).victims
        states.append(weakref.ref(state))
    gc.collect()
    assert [one() is None for one in states] == [True] * 5 + [False]
