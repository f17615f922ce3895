"""Classes of equal pods: who takes part, and when the findings of a class are forgotten."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from policy.cluster.digest import Change
from policy.cluster.objects import (
    PersistentVolumeClaimSource,
    PodAffinityTerm,
    TopologySpreadConstraint,
    Volume,
)
from policy.cluster.snapshot import Snapshot
from policy.decision.record import record_of
from policy.filters.base import Incoming
from policy.preemption import classes
from policy.preemption.classes import class_of
from policy.preemption.context import DecisionContext
from policy.preemption.decide import decide
from policy.preemption.importance import Importance
from policy.rules import RuleSet
from tests.support.builders import (
    HOSTNAME,
    NOW_MS,
    Builder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    objects,
    selector,
)

ALL = {"candidates": {"minPercentage": 100}}
RULES = RuleSet.load("kube-1.36", ALL)
TERM = PodAffinityTerm(label_selector=selector(app="web"), topology_key=HOSTNAME)


def waiting(name: str) -> PodBuilder:
    return a_pod(name).priority(10).cpu(2)


def cluster(*more: Builder, high: PodBuilder | None = None) -> Snapshot:
    """Three full nodes and a pod that waits, with other things."""
    nodes = [
        a_node(f"n{i}")
        .cpu(4)
        .running(*(a_pod(f"low-{i}-{j}").labelled(app="web").priority(j).cpu(1) for j in range(4)))
        for i in range(3)
    ]
    parts = objects(*nodes, high or waiting("high"), *more)
    return Snapshot.from_objects(parts, now_ms=NOW_MS)


def shares(snapshot: Snapshot, rules: RuleSet = RULES) -> tuple[bool, bool]:
    """Do the filters and the dry run of `high` use what was found for equal pods?"""
    row, pod = snapshot.row("default/high"), snapshot.pod("default/high")
    assert row is not None
    assert pod is not None
    context = DecisionContext(
        incoming=Incoming(snapshot=snapshot, pod=pod, key="default/high", row=row),
        rules=rules,
        seed=0,
        importance=Importance,
        class_of=class_of,
    )
    return context.shared is not None, context.shared_victims is not None


def test_a_plain_pod_has_a_class() -> None:
    """Nothing about it looks beyond a node."""
    assert shares(cluster()) == (True, True)


def with_volume(volume: Volume) -> PodBuilder:
    return waiting("high")._spec(volumes=[volume])


CLAIM = PersistentVolumeClaimSource(claim_name="data")
SPREAD = TopologySpreadConstraint(
    max_skew=1,
    topology_key=HOSTNAME,
    when_unsatisfiable="DoNotSchedule",
    label_selector=selector(app="web"),
)


@pytest.mark.parametrize(
    ("snapshot", "shared"),
    [
        pytest.param(
            lambda: cluster(high=waiting("high").spread(SPREAD)), False, id="topology spread"
        ),
        pytest.param(lambda: cluster(high=waiting("high").affine_to(TERM)), False, id="affinity"),
        pytest.param(
            lambda: cluster(high=waiting("high").anti_affine_to(TERM)), False, id="anti-affinity"
        ),
        pytest.param(
            lambda: cluster(
                a_pod("alone").on("n0").anti_affine_to(TERM).cpu(0),
                high=waiting("high").labelled(app="web"),
            ),
            False,
            id="another pod's anti-affinity",
        ),
        pytest.param(
            lambda: cluster(high=waiting("high").nominated_to("n1")), True, id="own nomination"
        ),
        pytest.param(
            lambda: cluster(high=with_volume(Volume(name="v", persistent_volume_claim=CLAIM))),
            False,
            id="claim",
        ),
        pytest.param(
            lambda: cluster(high=with_volume(Volume(name="kube-api-access-x2x8f"))),
            True,
            id="volume that nothing reads",
        ),
    ],
)
def test_filters_that_look_beyond_a_node_take_the_full_path(snapshot: Any, shared: bool) -> None:
    """What is found about a node then depends on others, or on the pod itself."""
    assert shares(snapshot()) == (shared, shared)


FORBID = [{"id": "never-violate", "when": "victim.pdbViolating"}]
PARTLY = [{"descending": "victim.priority / (victim.priority - 1)"}]


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"victims": {"forbid": FORBID}}, id="forbid"),
        pytest.param({"victims": {"importance": PARTLY}}, id="key without a value"),
        pytest.param(
            {
                "victims": {
                    "eligible": {
                        "insert": [
                            {
                                "at": "start",
                                "rule": {
                                    "id": "odd",
                                    "when": "10 / victim.priority > 20",
                                    "verdict": "deny",
                                },
                            }
                        ]
                    }
                }
            },
            id="condition without a value",
        ),
    ],
)
def test_rules_that_are_told_pod_by_pod_take_the_full_dry_run(overrides: Mapping[str, Any]) -> None:
    """How many pods such a rule met is reported of the nodes that were examined."""
    assert shares(cluster(), RuleSet.load("kube-1.36", {**ALL, **overrides})) == (True, False)


def test_an_order_that_depends_on_the_instant_takes_the_full_dry_run() -> None:
    """A pod that starts in the future stands behind pods that have not started."""
    assert shares(cluster(a_pod("late").on("n0").cpu(0).started(-10))) == (True, False)


def test_another_order_than_the_rule_sets_takes_the_full_dry_run() -> None:
    """What is found with it is not what the class knows."""

    class Other(Importance):
        pass

    snapshot = cluster()
    pod, row = snapshot.pod("default/high"), snapshot.row("default/high")
    assert pod is not None
    assert row is not None
    context = DecisionContext(
        incoming=Incoming(snapshot=snapshot, pod=pod, key="default/high", row=row),
        rules=RULES,
        seed=0,
        importance=Other,
        class_of=class_of,
    )
    assert context.shared_victims is None


# --- what is forgotten -------------------------------------------------------------------------


def equal_to_the_full_path(snapshot: Snapshot, *pods: str) -> None:
    """Each decision by class is the one on the full path, on the state made anew."""
    for pod in pods:
        shared = decide(snapshot, RULES, f"default/{pod}", by_class=True)
        full = decide(snapshot.made_anew(), RULES, f"default/{pod}")
        assert shared.canonical == full.canonical


def moved(name: str, node: str) -> list[Change]:
    return [("Pod", f"default/{name}", a_pod(name).priority(0).cpu(1).on(node).pod)]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([("Pod", "default/low-1-3", None)], id="a pod goes"),
        pytest.param(moved("new", "n1"), id="a pod comes"),
        pytest.param(moved("low-1-3", "n2"), id="a pod moves"),
        pytest.param(
            [("Pod", "default/other", waiting("other").priority(20).nominated_to("n0").pod)],
            id="a nomination",
        ),
        pytest.param(
            [("PodDisruptionBudget", "default/web", a_pdb("web").by(selector(app="web")).budget)],
            id="a budget",
        ),
        pytest.param([("Node", "n0", a_node("n0").cpu(4).cordoned().node)], id="a node"),
        pytest.param([("Namespace", "default", a_namespace("default", team="a"))], id="another"),
    ],
)
def test_what_happened_on_a_node_is_found_again(changes: Sequence[Change]) -> None:
    """Before and after, every pod of the class gets the decision of the full path."""
    snapshot = cluster(waiting("higher"))
    equal_to_the_full_path(snapshot, "high", "higher")
    equal_to_the_full_path(snapshot.apply(changes), "higher", "high")
    equal_to_the_full_path(snapshot, "high")


def test_a_snapshot_before_keeps_its_findings() -> None:
    """Two snapshots that follow from one have what was found on it, and each its own changes."""
    snapshot = cluster(waiting("higher"))
    equal_to_the_full_path(snapshot, "high")
    one, other = snapshot.apply(moved("new", "n1")), snapshot.apply(moved("new", "n2"))
    equal_to_the_full_path(one, "high")
    equal_to_the_full_path(other, "higher", "high")
    equal_to_the_full_path(one, "higher")
    equal_to_the_full_path(snapshot, "higher")


@pytest.mark.parametrize("deltas", [1, 2, 3, 4])
def test_a_class_that_waited_catches_up_or_is_given_up(
    monkeypatch: pytest.MonkeyPatch, deltas: int
) -> None:
    """What happened since it was asked for last is forgotten, also where that is not all noted."""
    monkeypatch.setattr(classes, "_FOLLOWED_DELTAS", 3)
    snapshot = cluster(waiting("higher"))
    equal_to_the_full_path(snapshot, "high")
    snapshot = snapshot.apply([("Pod", "default/low-1-0", None)])
    for number in range(1, deltas):
        snapshot = snapshot.apply(moved(f"new-{number}", "n2"))
    equal_to_the_full_path(snapshot, "higher", "high")


def test_pods_that_differ_have_different_classes() -> None:
    """By what their specs and namespaces say, and by the rule set."""
    snapshot = cluster(
        waiting("bigger").cpu(3), waiting("lower").priority(2), waiting("far").in_namespace("shop")
    )
    equal_to_the_full_path(snapshot, "high", "bigger", "lower")
    decide(snapshot, RULES, "shop/far", by_class=True)
    decide(snapshot, RuleSet.load("kube-1.35", ALL), "default/high", by_class=True)
    kept = snapshot.derived("classes", lambda _: pytest.fail("they are kept"))
    assert len(kept.by_key) == 5


def test_few_classes_are_kept() -> None:
    """Pods of which no two are equal do not fill the memory."""
    snapshot = cluster(*(waiting(f"w{i}").cpu(f"{1000 + i}m") for i in range(40)))
    equal_to_the_full_path(snapshot, *(f"w{i}" for i in range(40)))
    kept = snapshot.derived("classes", lambda _: pytest.fail("they are kept"))
    assert len(kept.by_key) == 32


def test_a_pod_is_not_in_its_own_way_on_the_node_that_it_is_nominated_to() -> None:
    """An equal pod found the node as full as another one; that holds for the equal pod alone."""
    full = a_node("full").cpu(2).running(a_pod("kept").priority(20).cpu(1))
    pods = (waiting("high").nominated_to("held"), waiting("twin"))
    parts = objects(full, a_node("held").cpu(2), *pods)
    snapshot = Snapshot.from_objects(parts, now_ms=NOW_MS)
    names = ("twin", "high", "twin")
    twin, high, again = (
        decide(snapshot, RULES, f"default/{name}", by_class=True) for name in names
    )
    assert high == decide(snapshot, RULES, "default/high")
    assert (high.outcome, high.node) == ("bind", "held")
    assert twin == again == decide(snapshot, RULES, "default/twin")
    assert twin.outcome == "no-candidate"


def test_what_a_decision_read_goes_with_it() -> None:
    """No cycle holds it, so that a stream of decisions need not wait for the collector."""
    gc.collect()
    gc.disable()
    try:
        snapshot = cluster()
        decision = decide(snapshot, RULES, "default/high", by_class=True)
        record = record_of(decision, keep=1)
        read = weakref.ref(snapshot)
        del snapshot, decision
        assert (record.outcome.value, read()) == ("preempt", None)
    finally:
        gc.enable()
