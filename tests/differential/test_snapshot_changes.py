"""A snapshot that followed changes decides as one that is made from the resulting objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TypeAlias

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from policy.cluster.budgets import BudgetIndex
from policy.cluster.digest import Change
from policy.cluster.marked import NominatedByNode, with_anti_affinity
from policy.cluster.objects import ClusterObject, Node, Pod, PodDisruptionBudget, key_of, kind_of
from policy.cluster.occupancy import Occupancy, snapshot_order
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import LABELS
from policy.decision.model import Decision
from policy.preemption.decide import decide
from tests.support.builders import (
    NOW_MS,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    objects,
    rule_set,
    selector,
)
from tests.support.clusters import GPU, Example, clusters

EXAMPLES = int(os.environ.get("POLICY_DIFFERENTIAL_EXAMPLES", "800"))
GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = "default/high"

State: TypeAlias = dict[tuple[str, str], ClusterObject]
Dice: TypeAlias = Callable[[int], int]


def state_of(found: tuple[ClusterObject, ...]) -> State:
    return {(kind_of(o), key_of(o)): o for o in found}


# --- one change each; None where there is nothing to change -------------------------------------


def _some(state: State, dice: Dice, kind: str) -> ClusterObject | None:
    found = [o for (k, key), o in sorted(state.items()) if k == kind and key != HIGH]
    return found[dice(len(found))] if found else None


def _node_name(state: State, dice: Dice) -> str:
    node = _some(state, dice, "Node")
    return node.metadata.name if node is not None else "gone"


def pod_added(state: State, dice: Dice) -> ClusterObject:
    pod = a_pod(f"new{dice(4)}").priority(dice(6)).cpu((1, "500m", 2)[dice(3)])
    pod = pod.labelled(app=("web", "db")[dice(2)]).started((None, 30, 0)[dice(3)])
    if dice(3) == 0:
        pod = pod.requesting({f"example.com/new{dice(2)}": 1, GPU: 1})
    if dice(3) == 0:
        pod = pod.host_port(80)
    return pod.on(_node_name(state, dice)).pod


def pod_nominated(state: State, dice: Dice) -> ClusterObject:
    pod = a_pod(f"waits{dice(2)}").priority((20, 3)[dice(2)]).cpu(1)
    return pod.nominated_to(_node_name(state, dice)).pod


def pod_bound(state: State, dice: Dice) -> ClusterObject | None:
    waiting = [
        o
        for (kind, key), o in sorted(state.items())
        if kind == "Pod" and isinstance(o, Pod) and key != HIGH and not o.spec.node_name
    ]
    if not waiting:
        return None
    pod = PodBuilder(waiting[dice(len(waiting))])
    return pod.nominated_to("").on(_node_name(state, dice)).started(0).pod


def pod_moved(state: State, dice: Dice) -> ClusterObject | None:
    pod = _some(state, dice, "Pod")
    return PodBuilder(pod).on(_node_name(state, dice)).pod if isinstance(pod, Pod) else None


def pod_terminated(state: State, dice: Dice) -> ClusterObject | None:
    pod = _some(state, dice, "Pod")
    return PodBuilder(pod).terminating_by_preemption().pod if isinstance(pod, Pod) else None


def pod_ended(state: State, dice: Dice) -> ClusterObject | None:
    pod = _some(state, dice, "Pod")
    return PodBuilder(pod).ended().pod if isinstance(pod, Pod) else None


def pod_changed(state: State, dice: Dice) -> ClusterObject | None:
    pod = _some(state, dice, "Pod")
    if not isinstance(pod, Pod):
        return None
    built = PodBuilder(pod)
    match dice(4):
        case 0:
            return built.priority(dice(8)).pod
        case 1:
            return built.labelled(app=("web", "db", "other")[dice(3)]).pod
        case 2:
            return built.cpu(("500m", 3)[dice(2)]).pod
        case _:
            return built.started((None, 1, 600)[dice(3)]).pod


def node_added(state: State, dice: Dice) -> ClusterObject:
    # Before, between and after the nodes there are, so that indexes move.
    name = ("a0", "n0x", "z9", "gone")[dice(4)]
    return a_node(name).cpu((1, 3)[dice(2)]).labelled(zone=("a", "q")[dice(2)]).node


def node_changed(state: State, dice: Dice) -> ClusterObject | None:
    node = _some(state, dice, "Node")
    if not isinstance(node, Node):
        return None
    built = NodeBuilder(node)
    match dice(5):
        case 0:
            return built.cpu((1, 4, 9)[dice(3)]).node
        case 1:
            return built.tainted("maint").node
        case 2:
            return built.labelled(zone=("a", "b", "q")[dice(3)]).node
        case 3:
            return built.allocatable({GPU: dice(4), "pods": dice(9)}).node
        case _:
            return built.cordoned().node


def budget_changed(state: State, dice: Dice) -> ClusterObject:
    budget = a_pdb(f"pdb{dice(3)}").allowing(dice(3))
    return budget.by((selector(app="web"), selector(), selector(tier="gold"))[dice(3)]).budget


def budget_used(state: State, dice: Dice) -> ClusterObject | None:
    budget = _some(state, dice, "PodDisruptionBudget")
    if not isinstance(budget, PodDisruptionBudget):
        return None
    allowed = with_fields(budget.status, disruptions_allowed=dice(3) - 1)
    return with_fields(budget, status=allowed)


def namespace_changed(state: State, dice: Dice) -> ClusterObject:
    return a_namespace(("default", "shop")[dice(2)], team=("a", "b")[dice(2)])


PUTS: Mapping[str, Callable[[State, Dice], ClusterObject | None]] = {
    f.__name__: f
    for f in (
        pod_added,
        pod_nominated,
        pod_bound,
        pod_moved,
        pod_terminated,
        pod_ended,
        pod_changed,
        node_added,
        node_changed,
        budget_changed,
        budget_used,
        namespace_changed,
    )
}
REMOVED = ("Pod", "Pod", "Node", "PodDisruptionBudget", "Namespace")


def changes(state: State, what: str, dice: Dice) -> list[Change]:
    """The change by name, made on the state; `removed` takes any object but the waiting pod."""
    if what == "removed":
        gone = _some(state, dice, REMOVED[dice(len(REMOVED))])
        if gone is None:
            return []
        del state[kind_of(gone), key_of(gone)]
        return [(kind_of(gone), key_of(gone), None)]
    put = PUTS[what](state, dice)
    if put is None:
        return []
    state[kind_of(put), key_of(put)] = put
    return [(kind_of(put), key_of(put), put)]


# --- the comparison ----------------------------------------------------------------------------


def content(decision: Decision) -> bytes:
    """All of a decision but the digest of the snapshot."""
    return replace(decision, snapshot_digest="").canonical


def derived(snapshot: Snapshot) -> dict[str, object]:
    """What is derived from the snapshot, by names: rows and interned numbers may be others."""
    rows = np.array([row for row, _, _ in snapshot.in_order()], dtype=np.int64)
    keys, names, nodes = snapshot.keys, snapshot.pools.resources.values, snapshot.nodes.names
    index, taken = BudgetIndex.of(snapshot), Occupancy.of(snapshot)
    places, budgets = index.pairs(snapshot.column(LABELS)[rows].astype(np.int64))
    order, waiting = snapshot_order(snapshot), NominatedByNode.of(snapshot)
    on = np.repeat(np.arange(len(nodes)), np.diff(order.offsets)).tolist()
    return {
        "budgets": [asdict(budget) for budget in index.budgets],
        "selected": [
            (keys[rows[place]], index.budgets[budget].key)
            for place, budget in zip(places.tolist(), budgets.tolist(), strict=True)
        ],
        "pods": dict(zip(nodes, taken.pods.tolist(), strict=True)),
        "requested": [
            {name: amount for name, amount in zip(names, amounts, strict=True) if amount}
            for amounts in taken.requested.tolist()
        ],
        "order": [(nodes[n], keys[row]) for n, row in zip(on, order.rows.tolist(), strict=True)],
        "nominated": {
            (nodes[node], keys[row])
            for node, row in zip(waiting.nodes.tolist(), waiting.rows.tolist(), strict=True)
        },
        "anti-affinity": set(keys[with_anti_affinity(snapshot)]),
    }


Steps: TypeAlias = list[tuple[list[tuple[str, list[int]]], int, str, bool]]
"""Steps: changes (name and dice), by how many minutes the clock moves on, the rule set, and whether
the snapshot is packed after the changes."""


def steps(*kinds: str, changes_at_most: int) -> st.SearchStrategy[Steps]:
    throws = st.lists(st.integers(0, 63), min_size=5, max_size=5)
    one_step = st.tuples(
        st.lists(st.tuples(st.sampled_from(kinds), throws), min_size=1, max_size=changes_at_most),
        st.sampled_from([0, 0, 1, -20]),
        st.sampled_from(GENERATIONS),
        st.booleans(),
    )
    return st.lists(one_step, min_size=1, max_size=5)


ANYTHING = steps(*PUTS, "removed", "removed", changes_at_most=4)
#: nobody comes, goes or moves: what was computed before is kept or patched in place
QUIET = steps(
    "pod_changed",
    "pod_changed",
    "pod_terminated",
    "budget_changed",
    "budget_used",
    "namespace_changed",
    changes_at_most=2,
)
#: pods come, go and move among budgets: their order changes, and with it who breaks a budget
MOVING = steps("pod_moved", "pod_moved", "pod_bound", "pod_ended", "removed", changes_at_most=2)


def dice_of(throws: list[int]) -> Dice:
    left = list(throws)
    return lambda n: (left.pop() if left else 0) % n if n else 0


many = settings(
    max_examples=max(1, EXAMPLES // 2),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def follow(case: Example, history: Steps) -> None:
    """Compare decisions after every step."""
    state = state_of(case.objects)
    followed = case.snapshot()
    now_ms = case.now_ms
    for step, minutes, generation, packed in history:
        rules = rule_set(generation)
        # What this decision computes is what the next snapshot starts from.
        decide(followed, rules, HIGH, evaluate_all=True, by_class=True)
        now_ms += minutes * 60_000
        followed = followed.at(now_ms)
        for what, throws in step:  # read after all of them, so that they follow in one step
            followed = followed.apply(changes(state, what, dice_of(throws)))
        digest = followed.digest
        if packed:
            followed = followed.packed(tolerated=0)
        assert followed.digest == digest
        anew = Snapshot.from_objects(state.values(), now_ms=now_ms)
        got = decide(followed, rules, HIGH, seed=case.seed, evaluate_all=True)
        shared = decide(followed, rules, HIGH, seed=case.seed, evaluate_all=True, by_class=True)
        wanted = decide(anew, rules, HIGH, seed=case.seed, evaluate_all=True)
        assert content(got) == content(wanted)
        assert shared.canonical == got.canonical
        assert derived(followed) == derived(anew)


@many
@given(case=clusters(max_pods=15), history=ANYTHING)
def test_changes_lead_where_the_resulting_objects_lead(case: Example, history: Steps) -> None:
    """After any sequence of changes, decisions are those on a snapshot made anew."""
    follow(case, history)


@many
@given(
    case=clusters(always=["budgets"], without=["future", "lost-nodes", "invalid-terms"]),
    history=QUIET,
)
def test_changes_in_place_are_seen(case: Example, history: Steps) -> None:
    """Where every pod stays where it is, its new priority, start, labels and budgets count."""
    follow(case, history)


@many
@given(
    case=clusters(always=["budgets"], without=["future", "lost-nodes", "invalid-terms"]),
    history=MOVING,
)
def test_budgets_are_counted_where_pods_moved_to(case: Example, history: Steps) -> None:
    """A pod that comes, goes or moves uses up budgets on its new node only."""
    follow(case, history)


def test_a_snapshot_stays_as_it_is_when_it_is_changed() -> None:
    """What follows from a snapshot never reaches back into it."""
    low = a_pod("low").cpu(4).started(5)
    parts = objects(a_node("n1").cpu(4).running(low), a_pod("high").priority(10).cpu(2))
    before = Snapshot.from_objects(parts, now_ms=NOW_MS)
    first = decide(before, rule_set("kube-1.35"), HIGH).canonical
    other = a_pod("other").cpu(4).on("n1").pod
    before.apply([("Pod", "default/low", None), ("Pod", "default/other", other)])
    before.apply([("Node", "n1", None)])
    assert decide(before, rule_set("kube-1.35"), HIGH).canonical == first
