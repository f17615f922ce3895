"""Law: no pod goes that a rule denies, and by default none of equal or higher priority.

Holds for every candidate, not only the chosen one, and under every cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.cluster.objects import Pod, key_of
from policy.rules import RuleSet
from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
DENIALS: Mapping[str, Callable[[Pod], bool]] = {
    "'tier' in victim.labels && victim.labels['tier'] == 'gold'": (
        lambda pod: (pod.metadata.labels or {}).get("tier") == "gold"
    ),
    "victim.namespace == 'shop'": lambda pod: pod.metadata.namespace == "shop",
    "'app' in victim.labels": lambda pod: "app" in (pod.metadata.labels or {}),
    "victim.terminating": lambda pod: bool(pod.metadata.deletion_timestamp),
    "!victim.started": lambda pod: not pod.status.start_time,
    "victim.cpuMilli >= 1500": lambda pod: asks_for(pod, {"1500m", 2}),
}
LOWER = {"id": "lower", "when": "victim.priority < preemptor.priority", "verdict": "allow"}


def asks_for(pod: Pod, amounts: set[str | int]) -> bool:
    [container] = pod.spec.containers or []
    requests = (container.resources and container.resources.requests) or {}
    return requests.get("cpu") in amounts


def denying(name: str, conditions: frozenset[str]) -> RuleSet:
    rules = [
        {"id": f"deny-{i}", "when": condition, "verdict": "deny", "reason": "denied"}
        for i, condition in enumerate(sorted(conditions))
    ]
    return rule_set(name, json.dumps({"victims": {"eligible": [*rules, LOWER]}}))


def victims_of(case: Example, rules: RuleSet) -> list[Pod]:
    """Victims on all candidates."""
    pods = {key_of(o): o for o in case.objects if isinstance(o, Pod)}
    decision = case.decided(rules, evaluate_all=True)
    return [pods[key] for candidate in decision.candidates for key in candidate.victims]


@pytest.mark.parametrize("name", GENERATIONS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=clusters())
def test_nobody_of_equal_or_higher_priority_goes(name: str, case: Example) -> None:
    """Every victim has a lower priority than the preemptor; none at all counts as 0."""
    own = next(o for o in case.objects if isinstance(o, Pod) and key_of(o) == case.pod)
    victims = victims_of(case, rule_set(name))
    assert [v for v in victims if (v.spec.priority or 0) >= (own.spec.priority or 0)] == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=clusters(without=["init", "pod-level", "overhead", "resize"]),
    name=st.sampled_from(GENERATIONS),
    conditions=st.frozensets(st.sampled_from(sorted(DENIALS)), min_size=1, max_size=2),
)
def test_nobody_goes_who_is_denied(case: Example, name: str, conditions: frozenset[str]) -> None:
    """Whatever is denied, no pod for which it holds is a victim on any candidate."""
    victims = victims_of(case, denying(name, conditions))
    assert [v for v in victims if any(DENIALS[c](v) for c in conditions)] == []
