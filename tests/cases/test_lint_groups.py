"""Lint and cases of the section `groups`."""

from __future__ import annotations

import pytest

from policy.cases.finding import beside
from policy.cases.reading import read_cases
from policy.cases.running import run, run_beside
from policy.rules import RuleSet
from policy.rules.lint import lint
from policy.rules.problems import RulesError

SHIPPED = ("kube-1.36-groups", "groups-safe", "kube-1.37-groups")
RULE = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {{name: own, description: own}}
extends: kube-1.36-groups
spec:
  groups:
    victims:
      eligible:
        insert:
          - at: start
            rule: {{id: own-rule, {rule}}}
"""


@pytest.mark.parametrize(
    ("rule", "finding"),
    [
        ("when: unit.priority <= group.priority, verdict: allow, why: x", "not-lower"),
        ("when: unit.pods < 0 && unit.pods > 0, verdict: deny, reason: r, why: x", "never-holds"),
        ("when: unit.pods > 3, verdict: deny, why: x", "no-reason"),
        ("when: unit.pods > 3, verdict: deny, reason: r", "no-why"),
    ],
)
def test_lint_reads_the_rules_of_groups(rule: str, finding: str) -> None:
    found = lint(RuleSet.load(RULE.format(rule=rule)))
    assert [(w.finding, w.rule) for w in found] == [(finding, "own-rule")]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_rules_for_groups_hold_their_cases(name: str) -> None:
    assert beside(name) is not None
    assert run_beside(name) == []
    assert lint(RuleSet.load(name)) == ()


CASE = """
- note: a case
  nodes: {{n1: {{cpu: 4}}}}
  groups: {{train: {{priority: 100, minCount: 1}}}}
  pods:
    low: {{node: n1, priority: 1, cpu: 4}}
    m0: {{group: {group}, priority: 50, cpu: 4}}
  want: {want}
"""


def test_a_case_says_what_differs() -> None:
    """Outcome, victims, bound and nominated members are compared where they are given."""
    want = "{outcome: scheduled, victims: [], binds: {m0: n1}, nominated: {}}"
    (case,) = read_cases(CASE.format(group="train", want=want), "cases.yaml")
    failed = run(case, RuleSet.load("groups-safe"))
    assert failed is not None
    assert failed.differences == (
        "outcome: wanted `scheduled`, got `preempting`",
        "victims: wanted none, got `default/low`",
        "binds: wanted `default/m0` on `n1`, got none",
        "nominated: wanted none, got `default/m0` on `n1`",
    )
    without = run(case, RuleSet.load("kube-1.36"))
    assert without is not None
    assert without.differences == ("rule set `kube-1.36` does not schedule pod groups",)


@pytest.mark.parametrize(
    ("group", "want", "message"),
    [
        ("trainz", "{outcome: scheduled}", "no group `default/trainz` in this case"),
        ("train", "{outcome: bind}", "unknown `outcome` `bind`"),
        ("train", "{node: n1}", "unknown key `node` in `want`"),
    ],
)
def test_a_wrong_case_is_refused_with_its_place(group: str, want: str, message: str) -> None:
    with pytest.raises(RulesError) as raised:
        read_cases(CASE.format(group=group, want=want), "cases.yaml")
    assert message in str(raised.value)


WHOLE = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: own, description: own}
extends: groups-safe
spec:
  %s
"""


def test_lint_names_a_unit_rule_that_decides_nothing() -> None:
    found = lint(RuleSet.load(WHOLE % "groups: {units: {wholeGroups: false}}"))
    assert [(w.finding, w.rule) for w in found] == [("cannot-decide", "units")]


def test_extenders_cannot_keep_groups_whole() -> None:
    extenders = "extenders: [{id: one, urlPrefix: 'http://one.example', preemptVerb: preempt}]"
    with pytest.raises(RulesError, match="cannot be kept where extenders change the victims"):
        RuleSet.load(WHOLE % extenders)


def test_lint_names_a_unit_rule_that_is_never_reached() -> None:
    rule = "when: unit.priority < group.priority && unit.pods > 3, verdict: allow, why: x"
    text = RULE.format(rule=rule).replace("at: start", "after: lower-than-the-group")
    found = [(w.finding, w.rule) for w in lint(RuleSet.load(text))]
    assert found == [("unreachable", "own-rule")]
