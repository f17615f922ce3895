"""The scorer `rule`: where a pod goes that fits, by an expression of the rule file."""

from __future__ import annotations

from typing import Any

import pytest

from policy import RuleSet, decide
from policy.rules.problems import RulesError
from tests.support.builders import NodeBuilder, a_node, a_pod, snapshot

POOL = "node.labels['pool']"


def rules(*scorers: dict[str, Any]) -> RuleSet:
    spec = {"scoring": {"insert": [{"at": "end", "rule": one} for one in scorers]}}
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "ours"},
            "extends": "kube-1.36",
            "spec": spec,
        }
    )


def nodes() -> list[NodeBuilder]:
    return [
        a_node("n1").cpu(8).labelled(pool="steady"),
        a_node("n2").cpu(8).labelled(pool="spot").running(a_pod("other").cpu(4)),
        a_node("n3").cpu(8).labelled(pool="spot").running(a_pod("more").cpu(5)),
    ]


def scored(found: RuleSet) -> tuple[str | None, dict[str, tuple[int, int]]]:
    made = decide(snapshot(*nodes(), a_pod("p").cpu(1)), found, "default/p", seed=0)
    return made.node, {name: (weight, value) for name, weight, value in made.trace.scores}


def test_a_condition_prefers_the_nodes_where_it_holds() -> None:
    """True is 100, false is 0; of the spot nodes the emptier one is taken."""
    node, scores = scored(rules({"scorer": "rule", "score": f"{POOL} == 'spot'", "weight": 5}))
    assert (node, scores["rule"]) == ("n2", (5, 100))


def test_several_rules_have_names_of_their_own() -> None:
    """Their values are summed by their weights, and a number is limited to 0 to 100."""
    found = rules(
        {"scorer": "rule/prefer-spot", "score": f"{POOL} == 'spot' ? 50 : -7", "weight": 3},
        {"scorer": "rule/pack", "score": "node.podCount * 1000", "weight": 2},
        {"scorer": "rule/of-the-pod", "score": "preemptor.cpuMilli / 100"},
    )
    node, scores = scored(found)
    named = {name: value for name, value in scores.items() if name.startswith("rule/")}
    assert (node, named) == (
        "n2",
        {"rule/prefer-spot": (3, 50), "rule/pack": (2, 100), "rule/of-the-pod": (1, 10)},
    )


def test_a_node_without_a_value_gets_the_lowest_score() -> None:
    """And the trace says on how many nodes, on which first, and why."""
    found = rules({"scorer": "rule", "score": "100 / node.podCount", "weight": 9})
    made = decide(snapshot(*nodes(), a_pod("p").cpu(1)), found, "default/p", seed=0)
    last = made.trace.rules[-1]
    assert (made.node, last.section, last.rule, last.verdict, last.reason, last.inputs) == (
        "n2",
        "scoring",
        "rule",
        "no-value",
        "division by zero",
        {"nodes": 1, "first": "n1"},
    )


def test_the_stored_rule_set_is_the_same() -> None:
    """Its canonical text says the expression and leaves out why."""
    one = {"scorer": "rule/a", "score": f" {POOL} == 'spot' ", "why": "spot is cheap"}
    found = rules(one)
    again = RuleSet.from_canonical(found.canonical)
    assert (again.digest, again.scoring[-1].expression) == (
        rules({"scorer": "rule/a", "score": f"{POOL} == 'spot'"}).digest,
        found.scoring[-1].expression,
    )
    assert (found.scoring[-1].why, scored(again)) == ("spot is cheap", scored(found))


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ({"scorer": "rule"}, "missing key `score`"),
        ({"scorer": "rule", "score": "victim.priority"}, "`victim.priority` is not available"),
        (
            {"scorer": "rule", "score": "history.namespacePreemptions('a', duration('1h'))"},
            "`history` is not available in a score",
        ),
        (
            {"scorer": "rule", "score": "node.name"},
            "bool or int is needed",
        ),
        ({"scorer": "rule/", "score": "true"}, "unknown scorer `rule/`"),
        ({"scorer": "rule", "score": "true", "heavy": 3}, "`rule` has no parameter `heavy`"),
    ],
)
def test_what_is_no_score_is_refused(scorer: dict[str, Any], message: str) -> None:
    """By a message at its place, when the file is loaded."""
    with pytest.raises(RulesError) as raised:
        rules(scorer)
    assert message in str(raised.value)
