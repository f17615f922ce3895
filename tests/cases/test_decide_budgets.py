"""Section 6 of the specification: which victims violate a disruption budget?"""

from __future__ import annotations

from typing import TypeAlias

import pytest

from policy.cluster.objects import LabelSelector, LabelSelectorRequirement
from tests.support.builders import (
    BudgetBuilder,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    decided,
    selector,
    short,
)

WEB = a_pod("web").labelled(app="web").priority(1).cpu(1).started(5)
Checks: TypeAlias = list[tuple[str, bool]]


def violating(*budgets: BudgetBuilder, pods: tuple[PodBuilder, ...], rules: str) -> Checks:
    """The pods of one node in the order of their reprieve, and whether each violates a budget."""
    node = a_node("n1").cpu(len(pods)).running(*pods)
    high = a_pod("high").priority(10).cpu(len(pods))
    decision = decided(node, *budgets, high, rules=rules)
    assert [c.pdb_violations for c in decision.candidates] == [
        sum(c.pdb_violating for c in decision.trace.checks)
    ]
    return [(short(c.pod), c.pdb_violating) for c in decision.trace.checks]


def named(*names: str, **fields: str) -> tuple[PodBuilder, ...]:
    return tuple(a_pod(n).labelled(app="web", **fields).priority(1).cpu(1) for n in names)


def test_a_budget_runs_out_in_importance_order() -> None:
    """From 1.20 on the first pods use the budget up, and those after them violate it."""
    found = violating(
        a_pdb("p").selecting(app="web").allowing(2), pods=named("a", "b", "c"), rules="kube-1.35"
    )
    assert found == [("c", True), ("a", False), ("b", False)]


def test_a_budget_of_1_14_never_runs_out() -> None:
    """1.14 decrements nothing: a budget that allows one disruption allows all of them."""
    found = violating(
        a_pdb("p").selecting(app="web").allowing(1), pods=named("a", "b", "c"), rules="kube-1.14"
    )
    assert found == [("a", False), ("b", False), ("c", False)]


@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.35"])
@pytest.mark.parametrize("allowed", [0, -1])
def test_a_budget_that_allows_nothing(name: str, allowed: int) -> None:
    """Every pod of a budget without allowed disruptions violates it."""
    budget = a_pdb("p").selecting(app="web").allowing(allowed)
    found = violating(budget, pods=named("a", "b"), rules=name)
    assert found == [("a", True), ("b", True)]


def test_every_budget_of_a_pod_is_counted() -> None:
    """A pod uses up all budgets that select it, and violates where any of them is exceeded."""
    budgets = (
        a_pdb("all").selecting(app="web").allowing(2),
        a_pdb("gold").selecting(tier="gold").allowing(1),
    )
    pods = (*named("a", "b", tier="gold"), *named("c"))
    assert violating(*budgets, pods=pods, rules="kube-1.35") == [
        ("b", True),
        ("c", True),
        ("a", False),
    ]


@pytest.mark.parametrize(
    ("name", "wanted"), [("kube-1.14", [True, True]), ("kube-1.20", [False, True])]
)
def test_a_pod_whose_disruption_is_counted_already(name: str, wanted: list[bool]) -> None:
    """From 1.20 on a pod in disruptedPods neither uses the budget up nor violates it."""
    budget = a_pdb("p").selecting(app="web").allowing(0).disrupted("a")
    found = violating(budget, pods=named("a", "b"), rules=name)
    assert [flag for _, flag in sorted(found)] == wanted


@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.35"])
@pytest.mark.parametrize(
    "chosen",
    [
        None,
        selector(),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="In")]),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="NotIn")]),
        LabelSelector(
            match_expressions=[
                LabelSelectorRequirement(key="app", operator="Exists", values=["web"])
            ]
        ),
        selector({"app": "not a value"}),
        selector({"not a key": "web"}),
    ],
    ids=["nil", "empty", "in", "not-in", "exists", "bad-value", "bad-key"],
)
def test_selectors_that_select_nothing(name: str, chosen: LabelSelector | None) -> None:
    """Nil, empty and invalid selectors match no pod."""
    found = violating(a_pdb("p").by(chosen), pods=named("a"), rules=name)
    assert found == [("a", False)]


def test_a_pod_without_labels_matches_no_budget() -> None:
    """Not even one that asks for the absence of a label."""
    absent = LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="x", operator="DoesNotExist")]
    )
    bare = a_pod("bare").priority(1).cpu(1)
    found = violating(a_pdb("p").by(absent), pods=(bare, *named("web")), rules="kube-1.35")
    assert sorted(found) == [("bare", False), ("web", True)]


def test_a_budget_of_another_namespace() -> None:
    """A budget selects pods of its own namespace only."""
    budget = a_pdb("p").selecting(app="web").in_namespace("shop")
    found = violating(budget, pods=named("a"), rules="kube-1.35")
    assert found == [("a", False)]


def test_each_node_starts_from_the_budget_as_it_is() -> None:
    """What one node's victims would use up is not missing on the next node."""
    high = a_pod("high").priority(10).cpu(1)
    nodes = [a_node(f"n{i}").cpu(1).running(*named(f"w{i}")) for i in (1, 2)]
    decision = decided(*nodes, a_pdb("p").selecting(app="web").allowing(1), high)
    assert [(c.node, c.pdb_violations) for c in decision.candidates] == [("n1", 0), ("n2", 0)]


def test_violating_pods_are_reprieved_first() -> None:
    """Where one of two has to go, it is the one that violates no budget, important or not."""
    node = (
        a_node("n1")
        .cpu(2)
        .running(a_pod("important").priority(5).cpu(1), a_pod("guarded").labelled(app="web").cpu(1))
    )
    decision = decided(node, a_pdb("p").selecting(app="web"), a_pod("high").priority(10).cpu(1))
    assert [c.victims for c in decision.candidates] == [("default/important",)]


def test_a_reprieved_pod_violates_nothing() -> None:
    """Only violating pods that stay victims count; the budget itself forbids nothing."""
    node = a_node("n1").cpu(3).running(*named("a", "b", "c"))
    budget = a_pdb("p").selecting(app="web").allowing(0)
    decision = decided(node, budget, a_pod("high").priority(10).cpu(1))
    assert [(c.victims, c.pdb_violations) for c in decision.candidates] == [(("default/c",), 1)]


def test_terminating_pods_use_budgets_up_like_others() -> None:
    """A pod that is leaving already is counted as if it left now."""
    leaving, staying = named("a", "b")
    budget = a_pdb("p").selecting(app="web").allowing(1)
    found = violating(budget, pods=(leaving.terminating(), staying), rules="kube-1.35")
    assert found == [("b", True), ("a", False)]
