"""Reviewing rule sets: warnings, differences, and the effective rules with their lines."""

from __future__ import annotations

from typing import Any

import pytest

from policy.rules import RuleSet
from policy.rules.diff import ChangeKind, compare
from policy.rules.explain import EffectiveRule, effective_rules
from policy.rules.expressions import implication
from policy.rules.expressions.checking import check
from policy.rules.lint import lint


def load(spec: dict[str, Any], name: str = "mine") -> RuleSet:
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": name},
            "extends": "kube-1.35",
            "spec": spec,
        }
    )


def a_rule(name: str, **more: str) -> dict[str, str]:
    return {"id": name, "verdict": "allow", "why": "test", **more}


EQUALS = {
    "id": "equals",
    "when": "victim.priority >= preemptor.priority",
    "verdict": "deny",
    "reason": "not less important",
    "why": "test",
}


def eligible(*rules: dict[str, str]) -> dict[str, Any]:
    """Rules behind one that leaves only victims of lower priority to them."""
    return {"victims": {"eligible": [EQUALS, *rules]}}


def first_eligible(*rules: dict[str, str]) -> dict[str, Any]:
    return {"victims": {"eligible": list(rules)}}


def importance(*keys: dict[str, str]) -> dict[str, Any]:
    return {"victims": {"importance": list(keys)}}


def ranking(*criteria: dict[str, str]) -> dict[str, Any]:
    last = {"id": "by-name", "pick": "first-by-name", "why": "test"}
    return {"ranking": [*({"why": "test", **criterion} for criterion in criteria), last]}


# -- lint ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RuleSet.names())
def test_shipped_rule_sets_have_no_warnings(name: str) -> None:
    """What we ship passes our own review."""
    assert lint(RuleSet.load(name)) == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            eligible(a_rule("all"), a_rule("more", when="victim.started")),
            [("unreachable", "more", "rule `more` is never reached: `all` decides before it")],
        ),
        (
            eligible(a_rule("all", when="1 < 2"), a_rule("more", when="victim.started")),
            [("unreachable", "more", "rule `more` is never reached: `all` decides before it")],
        ),
        (
            eligible(a_rule("a", when="victim.started"), a_rule("b", when="victim.started")),
            [("unreachable", "b", "rule `b` is never reached: `a` decides before it")],
        ),
        (
            eligible(
                a_rule("fresh", when="victim.started && victim.runtimeSeconds < 600"),
                a_rule("fresher", when="victim.runtimeSeconds < 300 && victim.started"),
            ),
            [
                (
                    "unreachable",
                    "fresher",
                    "rule `fresher` is never reached: `fresh` decides before it",
                )
            ],
        ),
        (
            eligible(
                a_rule("low", when="victim.priority < 3 && victim.priority > 5"), a_rule("all")
            ),
            [("never-holds", "low", "the condition of rule `low` never holds")],
        ),
        (
            eligible(a_rule("none", when="false"), a_rule("all")),
            [("never-holds", "none", "the condition of rule `none` never holds")],
        ),
        (
            first_eligible(a_rule("keep", verdict="deny", reason="no victims at all")),
            [("none-allowed", "keep", "no rule allows any pod to be a victim")],
        ),
        (
            eligible(a_rule("keep", when="victim.started", verdict="deny"), a_rule("all")),
            [("no-reason", "keep", "rule `keep` refuses without a `reason`")],
        ),
        (
            eligible({"id": "all", "verdict": "allow"}),
            [("no-why", "all", "rule `all` has no `why`")],
        ),
        (
            eligible(a_rule("web", when="victim.name.matches('^web-')")),
            [
                (
                    "row-by-row",
                    "web",
                    "`web` is evaluated row by row: `matches` on string, string, once per "
                    "distinct value of `victim.name`",
                )
            ],
        ),
        (
            importance({"descending": "victim.priority"}, {"ascending": "victim.startTime"}),
            [("order-not-unique", "start-time", "the importance order leaves ties open")],
        ),
        (
            importance({"ascending": "victim.key"}, {"ascending": "victim.startTime"}),
            [
                (
                    "cannot-decide",
                    "start-time",
                    "`start-time` can never decide: `key` is unique and leaves no tie",
                )
            ],
        ),
        (
            importance(
                {"id": "a", "descending": "victim.priority"},
                {"id": "b", "ascending": "victim.priority"},
                {"ascending": "victim.uid"},
            ),
            [("cannot-decide", "b", "`b` can never decide: `a` has compared the same before")],
        ),
        (
            ranking(
                {"id": "a", "minimize": "candidate.victimCount"},
                {"id": "b", "maximize": "candidate.victimCount"},
            ),
            [("cannot-decide", "b", "`b` can never decide: `a` has compared the same before")],
        ),
        (
            ranking({"id": "a", "minimize": "cluster.nodeCount + preemptor.priority"}),
            [
                (
                    "cannot-decide",
                    "a",
                    "`a` can never decide: `cluster.nodeCount + preemptor.priority` is the same "
                    "for all",
                )
            ],
        ),
        (
            first_eligible(
                a_rule("idle", when="victim.labels['idle'] == 'yes'"),
                a_rule("equal", when="victim.priority <= preemptor.priority"),
                a_rule("lower", when="victim.terminating && preemptor.priority > victim.priority"),
                a_rule("far", when="preemptor.priority - victim.priority >= 100"),
                a_rule("class", when="victim.priority < 10 && preemptor.priority >= 10"),
                a_rule("plus", when="victim.priority + 10 <= preemptor.priority"),
                a_rule("minus", when="preemptor.priority - 10 > victim.priority"),
                a_rule("negated", when="!(victim.priority >= preemptor.priority)"),
                a_rule("near", when="victim.priority < preemptor.priority + 10"),
            ),
            [
                (
                    "not-lower",
                    name,
                    f"rule `{name}` allows victims of the preemptor's own priority and above",
                )
                for name in ("idle", "equal", "near")
            ],
        ),
        (
            eligible(a_rule("old", when="victim.runtimeSeconds / victim.cpuMilli > 9")),
            [
                (
                    "no-value",
                    "old",
                    "`old` may have no value (a division by what may be zero): rule `old` is "
                    "skipped then",
                )
            ],
        ),
        (
            eligible(
                a_rule("n", when="int(victim.labels['n']) > 1", verdict="deny", reason="n"),
                a_rule("all"),
            ),
            [("no-value", "n", "`n` may have no value (`int(...)` of text): rule `n` holds then")],
        ),
        (
            eligible(
                a_rule(
                    "n",
                    when="int(victim.labels['n']) > 1",
                    verdict="deny",
                    reason="n",
                    onError="holds",
                ),
                # Takes effect where the one above it has no value and is skipped.
                a_rule("a", when="int(victim.labels['m']) > 1", onError="skip"),
                a_rule(
                    "b",
                    when="int(victim.labels['m']) > 1",
                    verdict="deny",
                    reason="b",
                    onError="holds",
                ),
                a_rule("all"),
            ),
            [],
        ),
        (
            importance(
                {"descending": "int(victim.labels['n'])", "id": "n"}, {"ascending": "victim.key"}
            ),
            [
                (
                    "no-value",
                    "n",
                    "`n` may have no value (`int(...)` of text): the pod is kept first, as if it "
                    "had the most important value",
                )
            ],
        ),
        (
            {
                **ranking({"id": "a", "minimize": "candidate.victimSeconds"}),
                "candidates": {"minPercentage": 100},
            },
            [],
        ),
        (
            ranking({"id": "a", "minimize": "candidate.victimSeconds"}),
            [
                (
                    "sampled",
                    "a",
                    "`a` compares only the nodes that are examined: the search may stop after "
                    "10 % of the candidates",
                )
            ],
        ),
        (
            {
                **ranking(
                    {"id": "budgets", "minimize": "candidate.pdbViolations"},
                    {"id": "a", "minimize": "candidate.victimSeconds"},
                ),
                "candidates": {"minPercentage": 100},
            },
            [
                (
                    "behind-budgets",
                    "a",
                    "`a` compares only nodes that are equal in `budgets` and whatever else stands "
                    "before it",
                )
            ],
        ),
    ],
)
def test_what_is_hardly_meant_is_pointed_out(
    spec: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    """Each kind of finding appears where it should, and nothing else does."""
    found = [(w.finding.value, w.rule, w.message) for w in lint(load(spec))]
    assert found == expected


def test_a_warning_says_where_and_what_to_do() -> None:
    """A warning has one form: place, message, kind, help."""
    warning = lint(load(first_eligible({"id": "all", "verdict": "allow"})))[1]
    assert str(warning) == (
        "<mapping>:11: rule `all` has no `why` (no-why)\n"
        "  help: say in one sentence what would go wrong without it"
    )


def test_each_condition_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of more rules than people write by hand: reading one takes most of a millisecond."""
    rules = [a_rule(f"r-{i}", when=f"victim.labels['a'] == 't{i}'") for i in range(300)]
    given = load(eligible(*rules))
    read: list[str] = []

    def counted(source: str, **more: Any) -> Any:
        read.append(source)
        return check(source, **more)

    monkeypatch.setattr(implication, "check", counted)
    assert lint(given) == ()
    assert len(read) == len(set(read))


# -- differences ---------------------------------------------------------------------------------


def words(old: RuleSet, new: RuleSet) -> list[str]:
    return [str(change) for change in compare(old, new)]


def test_a_rule_set_does_not_differ_from_itself_renamed() -> None:
    """The name is not a rule."""
    assert words(load({}), load({}, "yours")) == []


def test_differences_are_told_rule_by_rule() -> None:
    """Added, removed, changed and moved rules, and changed settings, in words."""
    new = load(
        {
            "eligibility": {
                "remove": ["nominated-node-lost"],
                "replace": [
                    {
                        "id": "policy-never",
                        "when": "preemptor.preemptionPolicy != 'PreemptLowerPriority'",
                        "verdict": "deny",
                        "reason": "closed",
                    }
                ],
            },
            "victims": {
                "eligible": {
                    "insert": [{"at": "start", "rule": a_rule("young", when="victim.started")}]
                },
                "maxVictims": 4,
            },
            "candidates": {"minPercentage": 100},
            "ranking": {
                "remove": ["latest-start"],
                "insert": [
                    {
                        "at": "start",
                        "rule": {
                            "id": "latest-start",
                            "maximize": "candidate.earliestStartOfTopPriority",
                        },
                    }
                ],
            },
        }
    )
    assert words(RuleSet.load("kube-1.35"), new) == [
        "eligibility: `nominated-node-lost` removed",
        "eligibility: `policy-never` reason changed from `not eligible due to "
        "preemptionPolicy=Never.` to `closed`; when changed from `preemptor.preemptionPolicy == "
        "'Never'` to `preemptor.preemptionPolicy != 'PreemptLowerPriority'`",
        "victims.eligible: `young` added: verdict `allow`, when `victim.started`",
        "ranking: `latest-start` moved to the front",
        "candidates.minPercentage changed from `10` to `100`",
        "victims.maxVictims changed from nothing to `4`",
    ]


def test_a_difference_read_backwards_is_its_opposite() -> None:
    """What one direction adds, the other removes; changes stay changes."""
    old, new = RuleSet.load("kube-1.14"), RuleSet.load("kube-1.35")
    there = {(c.kind, c.section, c.rule) for c in compare(old, new) if c.kind != ChangeKind.MOVED}
    back = {(c.kind, c.section, c.rule) for c in compare(new, old) if c.kind != ChangeKind.MOVED}
    opposite = {
        ChangeKind.ADDED: ChangeKind.REMOVED,
        ChangeKind.REMOVED: ChangeKind.ADDED,
        ChangeKind.CHANGED: ChangeKind.CHANGED,
    }
    assert back == {(opposite[kind], section, rule) for kind, section, rule in there}


# -- effective rules -----------------------------------------------------------------------------


def test_effective_rules_name_their_lines() -> None:
    """Rules of the base and of the overlay stand in one list, each with its own file."""
    rules = load(
        {"eligibility": {"remove": ["nominated-node-lost"], "replace": [a_rule("policy-never")]}}
    )
    found = [
        (rule.position, rule.id, rule.text, rule.origin.rpartition(":")[0])
        for rule in effective_rules(rules)
        if rule.section == "eligibility"
    ]
    assert found == [
        (1, "policy-never", "allow", "<mapping>"),
        (
            2,
            "victims-still-leaving",
            "deny when nominated.preemptedPodsTerminating > 0",
            "rules/kube-1.35.yaml",
        ),
        (3, "otherwise", "allow", "rules/kube-1.35.yaml"),
    ]


def test_values_are_explained_as_a_rule_file_has_them() -> None:
    """Not as the language that this is written in prints them."""
    found = {
        (rule.section, rule.id): rule.text for rule in effective_rules(RuleSet.load("kube-1.36"))
    }
    wanted = (
        ("filters", "resources"),
        ("scoring", "balanced-allocation"),
        ("settings", "extenders"),
        ("settings", "victims.reprieve"),
    )
    assert [found[key] for key in wanted] == [
        "aboveAllocatable=unresolvable compare=requested sidecars=true podLevel=true"
        " podLevelResize=true resize=true overhead=true runningInit=true",
        "weight 1 measure=change cpu=true memory=true resources=none",
        "none",
        '["pdb-violating","others"]',
    ]


def test_every_section_is_explained() -> None:
    """Filters, orders and criteria are explained like rules with verdicts."""
    rules = load({"filters": ["node-name"], **ranking({"id": "few", "minimize": "node.podCount"})})
    found = [rule for rule in effective_rules(rules) if rule.section in ("filters", "ranking")]
    assert found == [
        EffectiveRule(
            section="filters",
            position=1,
            id="node-name",
            text="",
            verdict="",
            condition="",
            without_value="",
            why="",
            origin="<mapping>:10",
        ),
        EffectiveRule(
            section="ranking",
            position=1,
            id="few",
            text="minimize node.podCount",
            verdict="minimize",
            condition="node.podCount",
            without_value="",
            why="test",
            origin="<mapping>:13",
        ),
        EffectiveRule(
            section="ranking",
            position=2,
            id="by-name",
            text="pick first-by-name",
            verdict="pick",
            condition="first-by-name",
            without_value="",
            why="test",
            origin="<mapping>:18",
        ),
    ]
