"""What a rule does where its condition has no value: it fails closed, and the trace says so."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from policy import RuleSet
from policy.decision.model import NO_VALUE, Decision
from policy.preemption.decide import decide
from policy.rules.diff import compare
from policy.rules.explain import effective_rules
from policy.rules.expressions import OnError, default_on_error, kernels, semantics
from policy.rules.problems import RulesError
from tests.support.builders import a_node, a_pod, result, snapshot

BATCH = a_pod("batch").labelled(tier="batch", rank="7").priority(1).cpu(1)
WEB = a_pod("web").labelled(tier="web", rank="x").priority(1).cpu(1)
BARE = a_pod("bare").priority(1).cpu(1)
HIGH = a_pod("high").priority(10)
RANK = "int(victim.labels['rank']) > 5"


def load(**spec: Any) -> RuleSet:
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "mine"},
            "extends": "kube-1.35",
            "spec": spec,
        }
    )


def first(**rule: str) -> dict[str, Any]:
    """A rule about victims in front of all others."""
    return {"victims": {"eligible": {"insert": [{"at": "start", "rule": {"id": "mine", **rule}}]}}}


def forbidding(**rule: str) -> dict[str, Any]:
    return {"victims": {"forbid": [{"id": "mine", **rule}]}}


def decided(rules: RuleSet, *, history: Any = None) -> Decision:
    """For a pod that needs all of a node with a batch pod, a web pod and one without labels."""
    node = a_node("n1").cpu(3).running(BATCH, WEB, BARE)
    seen = snapshot(node, HIGH.cpu(3)).at(snapshot(node, HIGH.cpu(3)).now_ms, history=history)
    return decide(seen, rules, "default/high")


def told(decision: Decision) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [
        (rule.section, rule.rule, rule.reason, dict(rule.inputs))
        for rule in decision.trace.rules
        if rule.verdict == NO_VALUE
    ]


# -- labels that are not there -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "kept"),
    [
        ("victim.labels['tier'] != 'batch'", {"web", "bare"}),
        ("victim.labels.tier != 'batch'", {"web", "bare"}),
        ("victim.labels['tier'] == 'web'", {"web"}),
        ("victim.labels['tier'] == ''", {"bare"}),
        ("!('tier' in victim.labels)", {"bare"}),
        ("!has(victim.labels.tier)", {"bare"}),
        ("!victim.labels['tier'].startsWith('b')", {"web", "bare"}),
        ("!(victim.labels['tier'] in ['batch', 'web'])", {"bare"}),
        ("['tier'].exists(k, victim.labels[k] != 'batch')", {"web", "bare"}),
        ("victim.annotations['a'] == victim.labels['none']", {"web", "bare", "batch"}),
        ("victim.requests['nvidia.com/gpu'] > 0", set()),
        ("victim.requests['cpu'] > 0", {"web", "bare", "batch"}),
    ],
)
def test_a_label_that_is_missing_reads_as_the_empty_string(when: str, kept: set[str]) -> None:
    """`deny when tier != 'batch'` protects a pod without the label; presence can be asked for."""
    rules = load(**first(when=when, verdict="deny"))
    by_rule = {
        f.rule: f.inputs["pods"]
        for f in decided(rules).trace.rules
        if f.section == "victims.eligible"
    }
    assert by_rule == {
        name: count
        for name, count in (("mine", len(kept)), ("lower-priority", 3 - len(kept)))
        if count
    }


# -- what has no value ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "potential"),
    [
        (first(when=RANK, verdict="deny"), []),
        (first(when=RANK, verdict="deny", onError="holds"), []),
        (first(when=RANK, verdict="deny", onError="skip"), ["bare", "web"]),
        (first(when=RANK.replace(">", "<"), verdict="allow"), ["bare", "batch", "web"]),
        (forbidding(when=RANK), []),
        (forbidding(when=RANK, onError="skip"), ["bare", "web"]),
        (first(when="victim.priority / victim.pdbMatches > 1", verdict="deny"), []),
        (first(when="victim.priority * 9223372036854775807 * 2 > 1", verdict="deny"), []),
        (
            first(
                when="history.preemptedCount(victim.workload, duration('1h')) > 2", verdict="deny"
            ),
            [],
        ),
    ],
)
def test_rules_that_protect_hold_without_a_value(spec: Any, potential: list[str]) -> None:
    """A `deny` and a `forbid` hold, an `allow` is skipped, and `onError` says otherwise."""
    small = a_node("n1").cpu(3).running(BATCH, WEB, BARE)
    decision = decide(snapshot(small, HIGH.cpu(1)), load(**spec), "default/high")
    assert sorted(check.pod.partition("/")[2] for check in decision.trace.checks) == potential


def test_an_allow_without_a_value_lets_nobody_go() -> None:
    """Where the only `allow` has no value, the pod is no potential victim."""
    spec = {"victims": {"eligible": [{"id": "mine", "when": RANK, "verdict": "allow"}]}}
    assert result(decided(load(**spec))) == ("no-candidate", None, [])


@pytest.mark.parametrize(
    ("verdict", "on_error", "outcome"),
    [
        ("deny", None, "not-eligible"),
        ("deny", "skip", "preempt"),
        ("allow", None, "preempt"),
    ],
)
def test_an_eligibility_deny_without_a_value_denies(
    verdict: str, on_error: str | None, outcome: str
) -> None:
    """The pod may not preempt, with the rule's own reason; the trace says that it had no value."""
    rule = {
        "id": "mine",
        "when": "int(preemptor.labels['n']) > 1",
        "verdict": verdict,
        "reason": "r.",
    }
    if on_error:
        rule["onError"] = on_error
    decision = decided(load(eligibility={"insert": [{"at": "start", "rule": rule}]}))
    does = on_error or default_on_error(verdict).value
    assert (decision.outcome.value, told(decision)) == (
        outcome,
        [("eligibility", "mine", "the text is not a number", {"onError": does})],
    )


def test_the_trace_counts_pods_without_a_value() -> None:
    """Per rule: how many pods that reached it, the first one by name, and why that one."""
    found = [
        told(decided(load(**spec)))
        for spec in (first(when=RANK, verdict="deny"), forbidding(when=RANK, onError="skip"))
    ]
    why, pods = "the text is not a number", {"pods": 2, "first": "default/bare"}
    assert found == [
        [("victims.eligible", "mine", why, {**pods, "onError": "holds"})],
        [("victims.forbid", "mine", why, {**pods, "onError": "skip"})],
    ]


def test_figures_that_the_snapshot_does_not_have_are_no_value() -> None:
    """A rule that protects by history does not take missing figures for an empty history."""
    rules = load(
        **first(when="history.preemptedCount(victim.workload, duration('1h')) > 2", verdict="deny")
    )
    outcomes = [
        decided(rules, history=history).outcome.value
        for history in (None, {"preemptedCount/60": {}}, {"preemptedCount/3600": {}})
    ]
    assert outcomes == ["no-candidate", "no-candidate", "preempt"]


def test_a_pod_without_a_key_of_the_order_is_kept_first() -> None:
    """It counts as the most important in either direction, and the trace says so."""
    found = []
    for direction in ("ascending", "descending"):
        key = {"id": "rank", direction: "int(victim.labels['rank'])"}
        rules = load(victims={"importance": [key, {"ascending": "victim.key"}]})
        node = a_node("n1").cpu(3).running(BATCH, WEB, BARE)
        decision = decide(snapshot(node, HIGH.cpu(1)), rules, "default/high")
        found.append((result(decision), told(decision)))
    why, pods = "the text is not a number", {"pods": 2, "first": "default/bare"}
    row = ("victims.importance", "rank", why, pods)
    assert found == [(("preempt", "n1", ["batch"]), [row])] * 2


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_node_without_a_ranking_value_comes_last(direction: str) -> None:
    """It is worse than the worst value, in either direction; where all are, the next decides."""
    nodes = (
        a_node("n1").cpu(1).running(a_pod("a").priority(1).cpu(1)),
        a_node(
            "n2",
        )
        .labelled(rank="5")
        .cpu(1)
        .running(a_pod("b").priority(1).cpu(1)),
    )
    rules = load(
        ranking=[
            {"id": "mine", direction: "int(node.labels['rank'])"},
            {"id": "by-name", "pick": "first-by-name"},
        ]
    )
    decision = decide(snapshot(*nodes, HIGH.cpu(1)), rules, "default/high")

    assert (
        [(c.node, dict(c.values)) for c in decision.candidates],
        decision.trace.ranking[0].best,
        told(decision),
    ) == (
        [("n2", {"mine": 5}), ("n1", {"mine": None})],
        5,
        [("ranking", "mine", "the text is not a number", {"nodes": 1, "first": "n1"})],
    )


def test_decisions_with_missing_values_are_the_same_bytes_twice() -> None:
    """What the trace says of missing values is part of the digest."""
    rules = load(**first(when=RANK, verdict="deny"))
    assert decided(rules).digest == decided(rules).digest


# -- one definition ------------------------------------------------------------------------------

TRUTHS: tuple[semantics.Truth, ...] = (True, False, None)


def columns_of(truth: semantics.Truth) -> tuple[Any, Any]:
    return np.array([truth is True]), None if truth is not None else np.array([True])


def truth_of(value: Any, errors: Any) -> semantics.Truth:
    return None if errors is not None and bool(errors[0]) else bool(value[0])


def test_the_columns_follow_the_definition() -> None:
    """`&&` and `||` over columns are those of the definition, for every pair of truths."""
    pairs = list(itertools.product(TRUTHS, TRUTHS))
    found = [
        (
            truth_of(*kernels.logical_and(*columns_of(a), *columns_of(b))),
            truth_of(*kernels.logical_or(*columns_of(a), *columns_of(b))),
        )
        for a, b in pairs
    ]
    assert found == [(semantics.conjunction(a, b), semantics.disjunction(a, b)) for a, b in pairs]


def test_what_a_missing_value_counts_as() -> None:
    """Protecting verdicts hold; a permit does not."""
    found = {
        verdict: semantics.holds(None, default_on_error(verdict))
        for verdict in ("allow", "deny", "forbid")
    }
    assert found == {"allow": False, "deny": True, "forbid": True}


# -- saying otherwise ----------------------------------------------------------------------------


def test_what_a_rule_says_of_errors_is_shown_and_compared() -> None:
    """`rules explain` and `rules diff` show it where it is not the default."""
    old = load(**first(when=RANK, verdict="deny"))
    new = load(**first(when=RANK, verdict="deny", onError="skip"))
    texts = [
        next(rule.text for rule in effective_rules(rules) if rule.id == "mine")
        for rules in (old, new)
    ]
    assert (texts, [str(change) for change in compare(old, new)]) == (
        [f"deny when {RANK}", f"deny when {RANK}, skip where that has no value"],
        ["victims.eligible: `mine` onError changed from `holds` to `skip`"],
    )


def test_the_default_is_part_of_the_canonical_form() -> None:
    """Saying what holds anyway changes nothing, not even the digest."""
    silent = load(**first(when=RANK, verdict="deny"))
    explicit = load(**first(when=RANK, verdict="deny", onError="holds"))
    assert (
        silent.digest,
        RuleSet.from_canonical(silent.canonical).victims.eligible[0].on_error,
    ) == (
        explicit.digest,
        OnError.HOLDS,
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"verdict": "deny", "onError": "holds"},
            "`onError` is about `when`, and this rule has none",
        ),
        ({"when": RANK, "verdict": "deny", "onError": "hold"}, "unknown `onError` `hold`"),
    ],
)
def test_on_error_is_checked(rule: dict[str, str], message: str) -> None:
    """A word that is not known, and one without a condition, are errors."""
    with pytest.raises(RulesError) as caught:
        load(**first(**rule))
    assert [problem.message for problem in caught.value.problems] == [message]
