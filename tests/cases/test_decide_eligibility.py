"""Section 4 of the specification: may the pod preempt at all?"""

from __future__ import annotations

from typing import Any

import pytest

from policy.decision.model import Decision
from tests.support.builders import (
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pod,
    decided,
    result,
)

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = a_pod("high").priority(10).cpu(2)
ROOMY = a_node("n2").cpu(2).running(a_pod("other").priority(1).cpu(2))


def nominated_node(low: PodBuilder) -> NodeBuilder:
    return a_node("n1").cpu(2).running(low)


def eligibility(decision: Decision) -> tuple[str, bool]:
    """Rule that decided, and its verdict."""
    [fired] = [r for r in decision.trace.rules if r.section == "eligibility"]
    return fired.rule, decision.trace.eligible


LEAVING = a_pod("low").priority(1).cpu(2).terminating()
PREEMPTED = a_pod("low").priority(1).cpu(2).terminating_by_preemption()
OTHERWISE: tuple[str, bool] = ("otherwise", True)
WAITS: tuple[str, bool] = ("victims-still-leaving", False)


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_that_never_preempts(name: str) -> None:
    """preemptionPolicy Never denies, but for 1.14, which does not know it."""
    decision = decided(nominated_node(a_pod("low").cpu(2)), HIGH.never_preempting(), rules=name)
    wanted = OTHERWISE if name == "kube-1.14" else ("policy-never", False)
    assert eligibility(decision) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kube-1.14", WAITS),
        ("kube-1.20", WAITS),
        ("kube-1.27", OTHERWISE),
        ("kube-1.28", OTHERWISE),
        ("kube-1.35", OTHERWISE),
    ],
)
def test_a_pod_that_leaves_for_another_reason(name: str, wanted: tuple[str, bool]) -> None:
    """Up to 1.26 any terminating lower-priority pod on the nominated node blocks."""
    decision = decided(nominated_node(LEAVING), ROOMY, HIGH.nominated_to("n1"), rules=name)
    assert eligibility(decision) == wanted


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_victim_that_still_leaves(name: str) -> None:
    """A pod that a scheduler preempted on the nominated node blocks in every generation."""
    decision = decided(nominated_node(PREEMPTED), ROOMY, HIGH.nominated_to("n1"), rules=name)
    assert (eligibility(decision), result(decision)) == (WAITS, ("not-eligible", None, []))


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_leaving_pod_of_equal_priority(name: str) -> None:
    """Only pods of lower priority count as room being made."""
    equal = PREEMPTED.priority(10)
    decision = decided(nominated_node(equal), ROOMY, HIGH.nominated_to("n1"), rules=name)
    assert eligibility(decision) == OTHERWISE


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_leaving_pod_on_another_node(name: str) -> None:
    """Only the nominated node is looked at."""
    nodes = nominated_node(a_pod("stays").priority(1).cpu(2)), a_node("n3").running(PREEMPTED)
    decision = decided(*nodes, HIGH.nominated_to("n1"), rules=name)
    assert eligibility(decision) == OTHERWISE


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_nominated_node_that_is_gone(name: str) -> None:
    """A nominated node that no longer exists blocks nothing."""
    decision = decided(nominated_node(PREEMPTED), ROOMY, HIGH.nominated_to("n9"), rules=name)
    assert eligibility(decision) == OTHERWISE


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_nominated_node_that_is_lost(name: str) -> None:
    """Where the nominated node became unresolvable the pod looks elsewhere (not in 1.14)."""
    lost = nominated_node(PREEMPTED).cordoned()
    decision = decided(lost, ROOMY, HIGH.nominated_to("n1"), rules=name)
    wanted = WAITS if name == "kube-1.14" else ("nominated-node-lost", True)
    assert eligibility(decision) == wanted


@pytest.mark.parametrize(
    "pod",
    [
        LEAVING.condition("DisruptionTarget", "False", "PreemptionByScheduler"),
        LEAVING.condition("DisruptionTarget", "True", "EvictionByEvictionAPI"),
        LEAVING.condition("DisruptionTarget", "True", "EvictionByEvictionAPI").condition(
            "DisruptionTarget", "True", "PreemptionByScheduler"
        ),
        a_pod("low").cpu(2).condition("DisruptionTarget", "True", "PreemptionByScheduler"),
    ],
    ids=["condition-false", "other-reason", "first-condition-counts", "not-terminating"],
)
def test_what_does_not_count_as_preempted(pod: PodBuilder) -> None:
    """1.27 and later want a deletion timestamp, and the first condition True with the reason."""
    decision = decided(nominated_node(pod), ROOMY, HIGH.nominated_to("n1"))
    assert eligibility(decision) == OTHERWISE


def test_a_leaving_pod_that_is_no_allowed_victim() -> None:
    """In 1.35 the terminating pod must be an allowed victim, whatever its priority."""
    from policy.rules import RuleSet

    lower = {"id": "lower", "when": "victim.priority < preemptor.priority", "verdict": "allow"}
    gold = {"id": "gold", "when": "'gold' in victim.labels", "verdict": "deny", "reason": "gold"}
    rules = {
        name: RuleSet.load(name, overrides={"victims": {"eligible": [gold, lower]}})
        for name in ("kube-1.28", "kube-1.35")
    }
    parts: list[Any] = [nominated_node(PREEMPTED.labelled(gold="")), ROOMY, HIGH.nominated_to("n1")]
    found = {name: eligibility(decided(*parts, rules=r)) for name, r in rules.items()}
    assert found == {"kube-1.28": WAITS, "kube-1.35": OTHERWISE}
