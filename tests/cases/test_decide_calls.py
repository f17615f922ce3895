"""What `decide` promises to its callers: errors, evaluate_all, samples, limits, picks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.cluster.snapshot import Snapshot
from policy.decision.model import Sampling
from policy.preemption.decide import DecisionError, decide
from tests.support.builders import (
    NOW_MS,
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    candidates,
    decided,
    objects,
    result,
    rule_set,
)

HIGH = a_pod("high").priority(10).cpu(2)
FULL = a_node("n1").cpu(2).running(a_pod("low").priority(1).cpu(2))


def rules(**overrides: Any) -> Any:
    return rule_set("kube-1.35", json.dumps(overrides))


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ("default/nobody", "no pod `default/nobody` in the cluster"),
        ("default/low", "pod `default/low` is on node `n1` already"),
        ("default/done", "pod `default/done` has ended (Succeeded)"),
        ("default/broken", "pod `default/broken` has ended (Failed)"),
    ],
)
def test_questions_that_cannot_be_asked(pod: str, message: str) -> None:
    """Unknown, placed and ended pods are refused with a sentence."""
    done, broken = a_pod("done").ended(), a_pod("broken").ended("Failed")
    with pytest.raises(DecisionError) as refused:
        decided(FULL, HIGH, done, broken, pod=pod)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.35"])
def test_a_cluster_without_nodes(name: str) -> None:
    """No node at all is an error of the cycle, not a preemption that failed."""
    decision = decided(HIGH, rules=name)
    assert (result(decision), decision.trace.message) == (
        ("error", None, []),
        "no nodes available to schedule pods",
    )


# --- evaluate_all ------------------------------------------------------------------------------


def test_evaluate_all_goes_on_where_the_pod_fits() -> None:
    """Outcome and effects stay those of the binding; candidates are told beside them."""
    decision = decided(FULL, a_node("n2").cpu(2), HIGH, evaluate_all=True)
    assert (result(decision), candidates(decision)) == (("bind", "n2", []), {"n1": ["low"]})


def test_evaluate_all_goes_on_where_the_pod_may_not_preempt() -> None:
    """Nothing is evicted, but the trace tells whom it would have been."""
    decision = decided(FULL, HIGH.never_preempting(), evaluate_all=True)
    assert (result(decision), candidates(decision), decision.victims[0].pod) == (
        ("not-eligible", None, []),
        {"n1": ["low"]},
        "default/low",
    )


def test_without_evaluate_all_the_search_ends_early() -> None:
    """A pod that fits, or may not preempt, has no candidates."""
    fits = decided(FULL, a_node("n2").cpu(2), HIGH)
    denied = decided(FULL, HIGH.never_preempting())
    assert [len(fits.candidates), len(denied.candidates)] == [0, 0]


def test_evaluate_all_changes_nothing_where_the_pod_preempts() -> None:
    """But that the decision says it was asked to."""
    plain, full = decided(FULL, HIGH), decided(FULL, HIGH, evaluate_all=True)
    assert (plain.trace, plain.effects, plain.candidates) == (
        full.trace,
        full.effects,
        full.candidates,
    )


# --- sampling ----------------------------------------------------------------------------------


def ten_nodes(**violating: str) -> list[NodeBuilder]:
    """n0 .. n9, each with one victim; those named are guarded by a budget."""
    return [
        a_node(f"n{i}")
        .cpu(2)
        .running(a_pod(f"p{i}").priority(1).cpu(2).labelled(app=violating.get(f"n{i}", "free")))
        for i in range(10)
    ]


def test_a_sample_starts_at_the_offset_of_the_seed() -> None:
    """With three candidates wanted of ten nodes, three are examined, cyclically by name."""
    sampled = rules(candidates={"minPercentage": 30, "minAbsolute": 1})
    decision = decided(*ten_nodes(), HIGH, rules=sampled, seed=7)
    offset = decision.trace.sampling.offset if decision.trace.sampling else -1
    names = [f"n{(offset + i) % 10}" for i in range(3)]
    assert (decision.trace.sampling, sorted(candidates(decision))) == (
        Sampling(potential=10, offset=offset, wanted=3, examined=3),
        sorted(names),
    )


def test_the_offset_is_drawn_from_seed_pod_and_state() -> None:
    """The recorded dice: these draws come out so on every machine and Python version.

    Pods of one run, which has one seed, do not all start at the same node.
    """
    sampled = rules(candidates={"minPercentage": 10, "minAbsolute": 1})
    pods = [a_pod(f"high{i}").priority(10).cpu(2) for i in range(6)]
    parts = objects(*ten_nodes(), *pods)
    one, other = (
        Snapshot.from_objects(parts, now_ms=NOW_MS, state_digest=digest)
        for digest in ("sha256:1", "sha256:2")
    )
    by_seed = [decide(one, sampled, "default/high0", seed=s).node for s in range(6)]
    by_pod = [decide(one, sampled, f"default/high{i}", seed=0).node for i in range(6)]
    by_state = [decide(s, sampled, "default/high0", seed=0).node for s in (one, other)]
    assert by_seed == ["n4", "n8", "n8", "n2", "n5", "n9"]
    assert by_pod == ["n4", "n5", "n3", "n2", "n8", "n9"]
    assert by_state == ["n4", "n3"]


def test_a_sample_goes_on_until_no_budget_is_violated() -> None:
    """Enough candidates that violate budgets are not enough."""
    sampled = rules(candidates={"minPercentage": 20, "minAbsolute": 1, "start": "first"})
    nodes = ten_nodes(**{f"n{i}": "web" for i in range(6)})
    decision = decided(*nodes, a_pdb("p").selecting(app="web"), HIGH, rules=sampled)
    sampling = decision.trace.sampling
    assert (decision.node, sampling) == (
        "n6",
        Sampling(potential=10, offset=0, wanted=2, examined=7),
    )


@pytest.mark.parametrize(
    ("percentage", "absolute", "wanted"), [(10, 0, 1), (25, 0, 2), (10, 4, 4), (0, 99, 10)]
)
def test_how_many_candidates_are_wanted(percentage: int, absolute: int, wanted: int) -> None:
    """The larger of the percentage (rounded down) and the absolute number, at most all nodes."""
    sampled = rules(candidates={"minPercentage": percentage, "minAbsolute": absolute})
    sampling = decided(*ten_nodes(), HIGH, rules=sampled).trace.sampling
    assert sampling is not None
    assert sampling.wanted == wanted


def test_nodes_that_cannot_help_are_not_in_the_sample() -> None:
    """Potential nodes alone count; those that eviction cannot help are left out before."""
    nodes = [*ten_nodes(), a_node("n99").cpu(2).cordoned()]
    decision = decided(*nodes, HIGH)
    assert decision.trace.sampling == Sampling(potential=10, offset=0, wanted=10, examined=10)


# --- limits and picks --------------------------------------------------------------------------


def crowd(name: str, *pods: PodBuilder) -> NodeBuilder:
    return a_node(name).cpu(2).running(*(p.cpu(f"{2000 // len(pods)}m") for p in pods))


def test_candidates_with_too_many_victims_are_dropped() -> None:
    """Where one victim is the limit, the node with two less important ones is out."""
    nodes = crowd("n1", a_pod("a").priority(5)), crowd("n2", a_pod("b"), a_pod("c"))
    decision = decided(*nodes, HIGH, rules=rules(victims={"maxVictims": 1}))
    reasons = {n: s.reasons for n, s in decision.trace.dry_run_statuses.items()}
    assert (result(decision), reasons) == (
        ("preempt", "n1", ["a"]),
        {"n2": ("2 victims needed, maxVictims allows 1",)},
    )


def test_forbidden_pods_stay_where_they_are() -> None:
    """A pod whose budget has run out is no potential victim under such a rule."""
    forbid = rules(victims={"forbid": [{"id": "guarded", "when": "victim.pdbViolating"}]})
    guarded = [a_pod(n).labelled(app="web") for n in ("a", "b")]
    nodes = crowd("n1", *guarded), crowd("n2", a_pod("c").priority(9))
    budget = a_pdb("p").selecting(app="web").allowing(1)
    decision = decided(*nodes, budget, HIGH, rules=forbid)
    reasons = {n: s.reasons for n, s in decision.trace.dry_run_statuses.items()}
    assert (result(decision), reasons) == (
        ("preempt", "n2", ["c"]),
        {"n1": ("Insufficient cpu",)},
    )


def test_denied_pods_are_no_victims() -> None:
    """The first rule that holds decides; the trace counts for how many pods each did."""
    eligible = [
        {"id": "gold", "when": "'gold' in victim.labels", "verdict": "deny", "reason": "gold"},
        {"id": "lower", "when": "victim.priority < preemptor.priority", "verdict": "allow"},
    ]
    nodes = crowd("n1", a_pod("a").labelled(gold="")), crowd("n2", a_pod("b").priority(9))
    decision = decided(*nodes, HIGH, rules=rules(victims={"eligible": eligible}))
    fired = [(r.rule, r.inputs) for r in decision.trace.rules if r.section == "victims.eligible"]
    assert (result(decision), fired) == (
        ("preempt", "n2", ["b"]),
        [("gold", {"pods": 1}), ("lower", {"pods": 1})],
    )


def test_a_seeded_pick_follows_the_seed() -> None:
    """Of equal candidates the draw takes one, the same one for the same seed."""
    seeded = rules(ranking={"replace": [{"id": "by-name", "pick": "seeded"}]})
    nodes = [crowd(f"n{i}", a_pod(f"p{i}").started(5)) for i in range(5)]
    cluster = Snapshot.from_objects(objects(*nodes, HIGH), now_ms=NOW_MS, state_digest="sha256:1")
    found = [decide(cluster, seeded, "default/high", seed=s) for s in range(5)]
    assert [(d.node, d.trace.decided_by) for d in found] == [
        (node, "by-name") for node in ("n0", "n0", "n2", "n1", "n4")
    ]


def test_the_nominated_node_is_taken_before_all_others() -> None:
    """A preemptor whose nominated node passes the filters is placed there, not on a better one."""
    nodes = a_node("n1").cpu(9), a_node("n2").cpu(2)
    assert result(decided(*nodes, HIGH.nominated_to("n2"))) == ("bind", "n2", [])
