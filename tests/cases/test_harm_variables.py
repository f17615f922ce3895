"""Does the victim fit elsewhere, when was its budget hit, what does a node reprieve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.objects import PodAffinityTerm
from policy.filters.base import Incoming
from policy.preemption.columns import FrozenHistory, pod_variables, uses_of
from policy.preemption.context import DecisionContext
from policy.preemption.decide import decide
from policy.preemption.importance import Importance
from policy.rules import RuleSet
from policy.rules.expressions import CONDITION, Columns, compile_expression
from policy.rules.expressions.variables import Context as Place
from tests.support.builders import (
    Builder,
    a_node,
    a_pdb,
    a_pod,
    candidates,
    decided,
    result,
    rule_set,
    selector,
    snapshot,
)

HIGH = a_pod("high").priority(10).cpu(2)


def elsewhere(*parts: Builder) -> dict[str, bool]:
    """`victim.fitsElsewhere` of every pod on a node."""
    cluster = snapshot(*parts, HIGH)
    row = cluster.row("default/high")
    pod = cluster.pod("default/high")
    assert row is not None
    assert pod is not None
    incoming = Incoming(snapshot=cluster, pod=pod, key="default/high", row=row)
    variables = pod_variables(incoming, uses_of(rule_set("kube-1.36")))
    values: Any = variables["victim.fitsElsewhere"]
    return {
        cluster.keys[i].removeprefix("default/"): bool(fits)
        for i, fits in enumerate(values.values.tolist())
        if cluster.node[i] >= 0
    }


def apart(name: str) -> Any:
    """A pod that is alone among its kind in a zone."""
    term = PodAffinityTerm(topology_key="zone", label_selector=selector(app="apart"))
    return a_pod(name).labelled(app="apart").anti_affine_to(term).cpu("100m")


def test_a_pod_fits_elsewhere_by_requests_and_constraints() -> None:
    """Room, taints and node selectors of other nodes decide; its own node does not count."""
    assert elsewhere(
        a_node("n1").cpu(4).running(a_pod("small").cpu(1), a_pod("big").cpu(3)),
        a_node("n2").cpu(4).running(a_pod("two").cpu(2)).labelled(disk="ssd"),
        a_node("n3").cpu(8).tainted("team", "red"),
        a_node("n4").cpu(1).running(a_pod("ssd").cpu(1).node_selector(disk="ssd")),
        a_node("n5").cpu(1).running(a_pod("hdd").cpu(1).node_selector(disk="hdd")),
    ) == {"small": True, "big": False, "two": False, "ssd": True, "hdd": False}


def test_the_pod_itself_is_not_in_its_own_way() -> None:
    """Anti-affinity by zone: the other node of its zone is free once it has left."""
    assert elsewhere(
        a_node("n1").cpu(1).labelled(zone="a").running(apart("a")),
        a_node("n2").cpu(1).labelled(zone="a"),
        a_node("n3").cpu(1).labelled(zone="b").running(apart("b")),
    ) == {"a": True, "b": False}


def test_a_lone_node_leaves_no_other() -> None:
    assert elsewhere(a_node("n1").cpu(8).running(a_pod("a").cpu(1))) == {"a": False}


def denying(when: str) -> RuleSet:
    rule = {"id": "mine", "when": when, "verdict": "deny"}
    change = {"eligible": {"insert": [{"at": "start", "rule": rule}]}}
    return RuleSet.load("kube-1.36", overrides={"victims": change})


def test_rules_spare_who_fits_nowhere_else() -> None:
    """Both nodes would do; the pod that has a place to go leaves."""
    movable = a_pod("movable").priority(5).cpu(2).tolerating("only", value="movable")
    decision = decided(
        a_node("n1").cpu(2).running(a_pod("homeless").cpu(2)),
        a_node("n2").cpu(2).running(movable),
        a_node("n3").cpu(2).tainted("only", "movable"),
        HIGH,
        rules=denying("!victim.fitsElsewhere"),
    )
    assert result(decision) == ("preempt", "n2", ["movable"])


WEB = a_pdb("web").selecting(app="web").allowing(1)
HIT = {"secondsSinceLastPreempted": {"default/ReplicaSet/web": 600}}


def web(name: str, owner: str = "web") -> Any:
    return a_pod(name).labelled(app="web").owned_by("ReplicaSet", owner).cpu(2)


@pytest.mark.parametrize(
    ("when", "stays"),
    [
        ("victim.budgetLastEvictedSeconds < 601", True),
        ("victim.budgetLastEvictedSeconds < 600", False),
    ],
)
def test_a_budget_is_hit_by_any_pod_that_it_selects(when: str, stays: bool) -> None:
    """The victim's own workload was left alone; another of the same budget lost a pod."""
    cluster = snapshot(
        a_node("n1").cpu(2).running(web("canary-1", "canary")),
        a_node("n2").cpu(2).running(web("web-1").priority(20)),
        WEB,
        HIGH,
    )
    decision = decide(replace(cluster, history=HIT), denying(when), "default/high")
    assert decision.outcome.value == ("no-candidate" if stays else "preempt")


def test_without_a_budget_no_budget_was_hit() -> None:
    """2^53, as for a workload that was never preempted."""
    cluster = snapshot(a_node("n1").cpu(2).running(web("web-1")), HIGH)
    rules = denying("victim.budgetLastEvictedSeconds < 9007199254740992")
    decision = decide(replace(cluster, history=HIT), rules, "default/high")
    assert decision.outcome.value == "preempt"


def test_figures_that_are_missing_leave_no_value() -> None:
    """As with `history.*`: the rule holds, and the reason is named; array form and rows agree."""
    rules = denying("victim.budgetLastEvictedSeconds < 5")
    assert rules.history_needs == {("secondsSinceLastPreempted", None)}
    decision = decided(a_node("n1").cpu(2).running(web("web-1")), WEB, HIGH, rules=rules)
    fired = [rule for rule in decision.trace.rules if rule.verdict == "no-value"]
    assert (decision.outcome.value, [rule.reason for rule in fired]) == (
        "no-candidate",
        ["the snapshot does not have the history figures"],
    )
    cluster = snapshot(a_node("n1").cpu(2).running(web("web-1")), WEB, HIGH)
    row, pod = cluster.row("default/high"), cluster.pod("default/high")
    assert row is not None
    assert pod is not None
    incoming = Incoming(snapshot=cluster, pod=pod, key="default/high", row=row)
    context = DecisionContext(incoming=incoming, rules=rules, seed=0, importance=Importance)
    expression = compile_expression(
        "victim.budgetLastEvictedSeconds < 5", context=Place.VICTIMS, expected=CONDITION
    )
    columns = Columns(len(cluster.pods), context.variables, FrozenHistory({}))
    assert expression.evaluate_rows(columns).tolist() == [None, None]
    assert expression.evaluate(columns).broadcast(2).tolist() == [None, None]


def test_a_node_is_preferred_for_the_budgets_that_it_keeps() -> None:
    """Both nodes lose a pod without a budget; on n2 one whose budget would break comes back."""
    tight = a_pdb("tight").selecting(app="db").allowing(0)
    db = a_pod("db").labelled(app="db").cpu(2)
    first = {"id": "kept", "maximize": "candidate.reprievedViolations"}
    rules = RuleSet.load(
        "kube-1.36", overrides={"ranking": {"insert": [{"at": "start", "rule": first}]}}
    )
    parts = (
        a_node("n1").cpu(4).running(a_pod("a").cpu(2), a_pod("b").cpu(2)),
        a_node("n2").cpu(4).running(a_pod("c").cpu(2), db),
        tight,
        HIGH,
    )
    decision = decided(*parts, rules=rules)
    assert candidates(decision)["n2"] == ["c"]
    assert [c.values["kept"] for c in decision.candidates] == [1, 0]
    cluster = snapshot(*parts)
    for _ in range(2):  # the second one reads what the first found for pods of this class
        shared = decide(cluster, rules, "default/high", by_class=True)
        assert shared.candidates == decision.candidates
