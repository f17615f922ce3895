"""Law: one more node in a topology of its own never makes the best candidate worse.

Holds where all potential nodes are examined. It does not hold with topology spread (an empty
domain lowers the minimum that all others are measured by), nor with an affinity of the preemptor's
own (the first of a group may go anywhere, but a pod on the new node may make it the second). Names
of nodes that do not exist end a cycle of 1.24 to 1.31, so no `matchFields` name the new node.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.decision.model import Decision
from policy.rules import RuleSet
from policy.rules.ruleset import Direction
from tests.support.builders import ZONE, NodeBuilder, a_node, a_pod, objects, rule_set
from tests.support.clusters import Example, clusters


def best(decision: Decision, rules: RuleSet) -> tuple[int, ...] | None:
    """The best candidate's values, so that less is better; None without candidates."""
    if not len(decision.candidates):
        return None
    values = decision.candidates[0].values
    return tuple(
        -values[c.id] if c.direction is Direction.MAXIMIZE else values[c.id]
        for c in rules.ranking
        if c.direction is not Direction.PICK
    )


@st.composite
def new_nodes(draw: st.DrawFn) -> NodeBuilder:
    pods = [
        a_pod(f"new{i}")
        .priority(draw(st.sampled_from([0, 1, 5, 50])))
        .cpu(draw(st.sampled_from(["500m", 1, 2])))
        .started(draw(st.sampled_from([None, 1, 100])))
        for i in range(draw(st.integers(0, 4)))
    ]
    node = a_node(draw(st.sampled_from(["a0", "n0x", "z9"]))).cpu(draw(st.integers(0, 5)))
    return node.memory("4Gi").labelled(rack="own").labelled({ZONE: "own"}).running(*pods)


@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.20", "kube-1.28", "kube-1.35"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=clusters(without=["spread", "affinity"]), node=new_nodes())
def test_one_more_node_never_hurts(name: str, case: Example, node: NodeBuilder) -> None:
    """Criterion by criterion, the best candidate is as good as before or better."""
    rules = rule_set(name, '{"candidates": {"minPercentage": 100}}')
    larger = Example((*case.objects, *objects(node)), case.pod, case.seed)
    before = best(case.decided(rules, evaluate_all=True), rules)
    after = best(larger.decided(rules, evaluate_all=True), rules)
    assert before is None or (after is not None and after <= before)
