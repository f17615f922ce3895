"""Proofs about rule files: what is proved, what is refuted, and what is not known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import z3

from policy.cases.finding import suites
from policy.cases.running import run_suite
from policy.cli.app import run
from policy.proving import solver
from policy.proving.counts import Relation, compared
from policy.proving.lists import decided
from policy.proving.questions import (
    Proof,
    ProvenClaim,
    at_least,
    load_condition,
    never,
    no_dead_rule,
    no_inversion,
    same,
)
from policy.proving.solver import SolverLimits, SolverStatus
from policy.proving.world import Declarations
from policy.rules import RuleSet
from policy.rules.files import shipped_environments, shipped_names, shipped_rules

LIMITS = SolverLimits(seconds=240, shrink_seconds=20)
SHIPPED = (*shipped_names(), *shipped_rules(), *shipped_environments())


def rule_set(*eligible: dict[str, str], name: str = "made") -> RuleSet:
    """kube-1.35 with other rules of who may be a victim."""
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": name},
            "extends": "kube-1.35",
            "spec": {
                "victims": {
                    "eligible": {
                        "remove": ["lower-priority"],
                        "insert": [{"at": "end", "rule": rule} for rule in eligible],
                    }
                }
            },
        }
    )


LOWER = {"id": "lower", "when": "victim.priority < preemptor.priority", "verdict": "allow"}


def deny(id: str, when: str) -> dict[str, str]:
    return {"id": id, "when": when, "verdict": "deny"}


def replays(finding: ProvenClaim, file: Path, rules: RuleSet) -> bool:
    """Does the case of a counterexample fail, as long as the rules are as they are?"""
    from policy.cases import run as run_case
    from policy.cases.reading import read_cases

    assert finding.example is not None
    file.write_text(finding.example.text)
    (case,) = read_cases(file.read_text(), str(file))
    return run_case(case, rules) is not None


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_condition_is_understood(name: str) -> None:
    """No part of a shipped condition is an unknown to the solver."""
    world = Declarations()
    decided(RuleSet.load(name), world)
    assert list(world.opaque) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_no_shipped_set_takes_a_victim_of_equal_or_higher_priority(name: str) -> None:
    """The claim that is always checked, proved of all that is shipped."""
    assert no_inversion(RuleSet.load(name), LIMITS).verdict is Proof.PROVED


@pytest.mark.parametrize("name", shipped_environments())
def test_no_rule_of_an_environment_is_dead(name: str) -> None:
    """Every rule decides in a case that the product replays."""
    found = no_dead_rule(RuleSet.load(name), LIMITS)
    assert (found.verdict, found.detail) == (Proof.PROVED, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*shipped_names(), *shipped_rules()])
def test_no_shipped_rule_is_dead(name: str) -> None:
    """Every rule decides in a case that the product replays."""
    found = no_dead_rule(RuleSet.load(name), LIMITS)
    assert (found.verdict, found.detail) == (Proof.PROVED, "")


@pytest.mark.parametrize(
    ("stricter", "laxer", "verdict"),
    [
        ("environments/staging", "environments/dev", Proof.PROVED),
        ("environments/prod", "environments/dev", Proof.PROVED),
        ("environments/prod", "environments/staging", Proof.PROVED),
        ("environments/dev", "environments/staging", Proof.REFUTED),
        ("environments/staging", "environments/prod", Proof.REFUTED),
    ],
)
def test_environments_protect_in_steps(stricter: str, laxer: str, verdict: Proof) -> None:
    """Production protects what staging protects, and staging what development protects."""
    found = at_least(RuleSet.load(stricter), RuleSet.load(laxer), LIMITS)
    assert found.verdict is verdict, found.detail


def test_a_set_without_priorities_is_refuted_and_replayed(tmp_path: Path) -> None:
    """A rule that allows every pod takes one of the preemptor's own priority."""
    rules = rule_set({"id": "anyone", "verdict": "allow"})
    found = no_inversion(rules, LIMITS)
    assert found.verdict is Proof.REFUTED
    assert replays(found, tmp_path / "x.cases.yaml", rules)


@pytest.mark.parametrize(
    "unwanted",
    [
        "victim.namespace == 'payments' && preemptor.priority < 1000000",
        "victim.labels['tier'] == 'gold' && victim.annotations['a'] != ''",
        "victim.pdbViolating && victim.pdbMatches > 1",
        "victim.runtimeSeconds > 12345 && victim.cpuMilli > 77",
        "preemptor.requests['nvidia.com/gpu'] > 2 && victim.requests['memory'] > 5",
        "victim.workload == 'shop/ReplicaSet/web'",
        "victim.name.matches('^db-[0-9]+$')",
        "history.preemptedCount(victim.workload, duration('1h')) > 3",
        "int(victim.labels['weight']) > 5000",
        "victim.startTime < now - duration('48h') && victim.terminating",
        "victim.namespaceLabels['x'] == 'y' && victim.priorityClassName == 'gold'",
    ],
)
def test_a_counterexample_replays_as_a_case(unwanted: str, tmp_path: Path) -> None:
    """What is refuted is a case that the product fails."""
    rules = RuleSet.load("kube-1.35")
    found = never(rules, load_condition(unwanted), LIMITS)
    assert found.verdict is Proof.REFUTED, found.detail
    assert replays(found, tmp_path / "x.cases.yaml", rules)


def test_what_is_denied_first_is_proved() -> None:
    """A rule above the one that allows protects its pods from everything."""
    rules = rule_set(deny("payments", "victim.namespace.startsWith('pay')"), LOWER)
    found = never(rules, load_condition("victim.namespace == 'payments'"), LIMITS)
    assert found.verdict is Proof.PROVED


def test_a_condition_without_a_value_fails_closed_in_proofs_too() -> None:
    """A `deny` that divides by nothing protects, unless it says `onError: skip`."""
    broken = deny("broken", "100 / victim.cpuMilli > 1000")
    unwanted = load_condition("victim.cpuMilli == 0")
    closed = never(rule_set(broken, LOWER), unwanted, LIMITS)
    opened = never(rule_set({**broken, "onError": "skip"}, LOWER), unwanted, LIMITS)
    assert (closed.verdict, opened.verdict) == (Proof.PROVED, Proof.REFUTED)


def test_what_is_not_understood_is_never_refuted_unseen() -> None:
    """A part that is not understood is reported; the same part on both sides is the same."""
    march = deny("march", "victim.startTime.getMonth() == 2")
    found = never(RuleSet.load("kube-1.35"), load_condition(march["when"]), LIMITS)
    assert found.not_understood == ("(victim.startTime.getMonth() == 2)",)
    assert found.verdict in (Proof.UNKNOWN, Proof.REFUTED)
    assert never(rule_set(march, LOWER), load_condition(march["when"]), LIMITS).verdict is (
        Proof.PROVED
    )


def test_two_rules_together_shadow_a_third() -> None:
    """Lint compares rules in pairs; a proof sees what several cover together."""
    rules = rule_set(
        deny("young", "victim.labels['tier'] != '' && victim.runtimeSeconds < 100"),
        deny("old", "victim.labels['tier'] != '' && victim.runtimeSeconds > 50"),
        deny("gold", "victim.labels['tier'] == 'gold'"),
        LOWER,
    )
    found = no_dead_rule(rules, LIMITS)
    assert (found.verdict, found.detail) == (
        Proof.REFUTED,
        "never decides: `gold` (victims.eligible)",
    )


def test_the_same_rules_in_other_words_are_the_same() -> None:
    """Equal to whoever is taken, not to how it is written."""
    turned = {**LOWER, "when": "!(preemptor.priority <= victim.priority)"}
    found = same(rule_set(turned), RuleSet.load("kube-1.35"), LIMITS)
    assert found.verdict is Proof.PROVED, found.detail


def test_counts_of_allowed_pods_are_compared_before_they_are_shared() -> None:
    """A set that denies fresh pods allows fewer, but the same ones among those that are leaving."""
    staging = RuleSet.load("environments/staging")
    fresh = {
        "id": "fresh",
        "when": "!victim.terminating && victim.runtimeSeconds < 600",
        "verdict": "deny",
    }
    stricter = RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "stricter"},
            "extends": "environments/staging",
            "spec": {"victims": {"eligible": {"insert": [{"at": "start", "rule": fresh}]}}},
        }
    )
    found = compared(stricter, staging, LIMITS)
    assert dict(found.relations) == {
        "nominated.preemptedPodsTerminating": Relation.SAME,
        "victim.pdbViolating": Relation.AT_MOST,
    }
    # Fewer pods use up fewer disruptions, so a pod may keep to a budget that it broke before.
    assert at_least(stricter, staging, LIMITS).verdict is Proof.BUDGETS


def test_a_solver_that_hangs_is_unknown_in_time() -> None:
    """The process is ended at its limit: by itself it would go on for days."""
    a, b, c = z3.Ints("a b c")
    cubes = [a * a * a + b * b * b + c * c * c == 114, a > 10**6, b < -(10**6)]
    began = time.monotonic()
    answer = solver.ask(cubes, limits=SolverLimits(seconds=2))
    assert (answer.status, answer.reason) == (SolverStatus.UNKNOWN, "the time limit")
    assert time.monotonic() - began < 30


def test_a_solver_that_is_greedy_is_unknown() -> None:
    """A process without memory answers nothing, and says so."""
    answer = solver.ask([z3.Int("a") > 0], limits=SolverLimits(memory_bytes=40 * 1024**2))
    assert (answer.status, answer.reason) == (
        SolverStatus.UNKNOWN,
        "the solver ended without an answer",
    )


def test_saved_cases_are_run_by_rules_test(tmp_path: Path) -> None:
    """A saved counterexample is a case that fails until the rules are mended."""
    rules = tmp_path / "mine.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: mine}\nextends: kube-1.35\n"
    )
    saved = tmp_path / "mine.cases.yaml"
    asked = ["--never", "victim.namespace == 'payments'", "--save-case", str(saved)]
    assert run(["rules", "prove", str(rules), *asked]) == 5
    (suite,) = suites([str(rules)])
    (mismatch,) = run_suite(suite)
    assert mismatch.differences == ("node: wanted none, got `n1`",)
    rules.write_text(
        rules.read_text() + "spec: {victims: {eligible: {insert: [{at: start, rule: {id: payments, "
        "when: victim.namespace == 'payments', verdict: deny}}]}}}\n"
    )
    assert run_suite(suite) == []
    assert run(["rules", "prove", str(rules), *asked[:2]]) == 0
