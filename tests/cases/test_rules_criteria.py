"""What the values of ranking criteria are, read from the text of a rule set."""

from __future__ import annotations

import json

import pytest

from policy.cluster import canonical
from policy.rules import RulesError, RuleSet
from policy.rules.criteria import instant_criteria


def ranked_by(*criteria: dict[str, str]) -> str:
    """The canonical text of a rule set with these criteria."""
    text = json.loads(RuleSet.load("kube-1.35").canonical)
    text["spec"]["ranking"] = [{"id": f"c{i}", **one} for i, one in enumerate(criteria)]
    return canonical.text(text)


@pytest.mark.parametrize(
    ("criteria", "instants"),
    [
        (({"minimize": "candidate.topPriority"}, {"pick": "first-by-name"}), set()),
        (
            (
                {"maximize": "candidate.earliestStartOfTopPriority"},
                {"minimize": "candidate.victimCount"},
                {"pick": "first-by-name"},
            ),
            {"c0"},
        ),
        (
            (
                {"minimize": "candidate.victimCount + 1"},
                {"maximize": "candidate.earliestStartOfTopPriority + duration('1h')"},
                {"pick": "first-by-name"},
            ),
            {"c1"},
        ),
    ],
    ids=["numbers", "a variable", "a computation"],
)
def test_criteria_that_are_instants(
    criteria: tuple[dict[str, str], ...], instants: set[str]
) -> None:
    """A criterion is an instant where its expression is one: a variable, or what it computes."""
    assert instant_criteria(ranked_by(*criteria)) == instants


def test_every_shipped_rule_set_has_the_instants_of_its_compiled_form() -> None:
    """The text of a rule set says the same of its criteria as its compiled expressions do."""
    names = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
    compiled = {name: RuleSet.load(name) for name in names}
    expected = {
        name: {c.id for c in rules.ranking if c.expression and c.expression.type == "timestamp"}
        for name, rules in compiled.items()
    }
    assert {n: instant_criteria(r.canonical) for n, r in compiled.items()} == expected


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"spec": {"ranking": [1]}}'])
def test_a_text_that_is_no_rule_set_is_refused(text: str) -> None:
    """A stored text that was damaged is reported as any other rule set that cannot be read."""
    with pytest.raises(RulesError):
        instant_criteria(text)
