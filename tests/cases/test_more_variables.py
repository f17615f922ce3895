"""QoS class, time of leaving, limits, the lowest priority of a node, truth values in ranking."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from policy.cluster.leaving import leaving_since_ms
from policy.cluster.objects import Container, Pod, ResourceRequirements
from policy.cluster.requests import qos_class
from policy.rules import RuleSet
from tests.support.builders import NOW_MS, a_node, a_pod, decided, result

Amounts = dict[str, Any]
BOTH: Amounts = {"cpu": "1", "memory": "1Gi"}


def of(*containers: tuple[Amounts, Amounts], status: str = "") -> Pod:
    """A pod of containers with these requests and limits."""
    made = [
        Container(name=f"c{i}", resources=ResourceRequirements(requests=requests, limits=limits))
        for i, (requests, limits) in enumerate(containers)
    ]
    pod = a_pod("p").pod
    spec = with_fields(pod.spec, containers=made)
    return with_fields(pod, spec=spec, status=with_fields(pod.status, qos_class=status))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (of(({}, {})), "BestEffort"),
        (of(({"nvidia.com/gpu": 1}, {})), "BestEffort"),
        (of((BOTH, BOTH)), "Guaranteed"),
        (of(({}, BOTH)), "Guaranteed"),
        (of(({"cpu": "1000m", "memory": "1Gi"}, BOTH)), "Guaranteed"),
        (of((BOTH, {})), "Burstable"),
        (of((BOTH, {"cpu": "1"})), "Burstable"),
        (of(({"cpu": "500m", "memory": "1Gi"}, BOTH)), "Burstable"),
        (of((BOTH, BOTH), ({}, {})), "Burstable"),
        (of((BOTH, {}), status="Guaranteed"), "Guaranteed"),
    ],
)
def test_the_qos_class_is_computed_as_an_api_server_would(pod: Pod, expected: str) -> None:
    """From requests and limits of cpu and memory, unless the status says it."""
    assert qos_class(pod) == expected


def rules(**victims: Any) -> RuleSet:
    return RuleSet.load("kube-1.36", overrides={"victims": victims})


def denying(when: str) -> RuleSet:
    rule = {"id": "mine", "when": when, "verdict": "deny"}
    return rules(eligible={"insert": [{"at": "start", "rule": rule}]})


HIGH = a_pod("high").priority(10).cpu(2)


@pytest.mark.parametrize(
    ("when", "stays"),
    [
        ("victim.qosClass == 'Burstable'", True),
        ("victim.qosClass == 'Guaranteed'", False),
        ("victim.terminatingSeconds == 0", True),
        ("victim.limits['cpu'] == 0", True),
        ("node.lowestPriority == 3", True),
        ("node.lowestPriority == 4", False),
    ],
)
def test_rules_read_them(when: str, stays: bool) -> None:
    """A pod of priority 3 with a request and no limit, alone on its node."""
    node = a_node("n1").cpu(2).running(a_pod("low").priority(3).cpu(2))
    decision = decided(node, HIGH, rules=denying(when))
    assert result(decision)[0] == ("no-candidate" if stays else "preempt")


def test_the_time_that_a_pod_is_leaving_counts_from_its_deletion() -> None:
    """The deletion timestamp is when it will be forced; the grace period lies before it."""
    leaving = a_pod("low").priority(3).cpu(2).terminating()
    assert leaving_since_ms(leaving.pod) == NOW_MS + 30_000
    node = a_node("n1").cpu(2).running(leaving)
    assert result(decided(node, HIGH, rules=denying("victim.terminatingSeconds > 0")))[0] == (
        "preempt"
    )


def test_a_truth_value_ranks_as_0_or_1() -> None:
    """Nodes that are not spot are kept for last."""
    spot = a_node("n2").labelled(spot="true").cpu(2).running(a_pod("b").priority(5).cpu(2))
    plain = a_node("n1").cpu(2).running(a_pod("a").priority(1).cpu(2))
    first = {"id": "spot", "maximize": "node.labels['spot'] == 'true'"}
    ranked = RuleSet.load(
        "kube-1.36", overrides={"ranking": {"insert": [{"at": "start", "rule": first}]}}
    )
    decision = decided(plain, spot, HIGH, rules=ranked)
    assert (decision.node, decision.candidates[0].values["spot"]) == ("n2", 1)
