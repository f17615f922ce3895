"""A decision names what decided: budgets with their allowance, pods in the way, pods waited for."""

from __future__ import annotations

import pytest

from policy.cluster import times
from policy.cluster.objects import PodAffinityTerm, TopologySpreadConstraint
from policy.decision.model import (
    BudgetCount,
    BudgetViolation,
    LeavingPod,
    Obstacle,
    ObstacleKind,
)
from policy.rules import RuleSet
from tests.support.builders import (
    NOW_MS,
    ZONE,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    decided,
    selector,
)

HIGH = a_pod("high").priority(10).cpu(2)
WEB = PodAffinityTerm(topology_key=ZONE, label_selector=selector(app="web"))


def count(budget: str, allowed: int, before: int) -> BudgetCount:
    return BudgetCount(
        budget=budget, disruptions_allowed=allowed, allowed_before=before, allowed_after=before - 1
    )


def broken(node: str, pod: str, budget: str, allowed: int, before: int) -> BudgetViolation:
    return BudgetViolation(
        node=node,
        pod=pod,
        budget=budget,
        disruptions_allowed=allowed,
        allowed_before=before,
        allowed_after=before - 1,
    )


def test_every_candidate_names_the_budgets_that_its_victims_violate() -> None:
    """On the losing node as well; a budget of 1 is used up by the more important pod."""
    web = [a_pod(n).labelled(app="web").cpu(1) for n in ("a", "b", "c", "d")]
    decision = decided(
        a_node("n1").cpu(2).running(web[0].priority(2), web[1].priority(1)),
        a_node("n2").cpu(2).running(web[2].priority(3), web[3].priority(3)),
        a_pdb("web").selecting(app="web").allowing(1),
        a_pdb("other").selecting(app="db").allowing(0),
        HIGH,
    )
    assert list(decision.candidates.violations) == [
        broken("n1", "default/b", "default/web", 1, 0),
        broken("n2", "default/d", "default/web", 1, 0),
    ]


def test_each_potential_victim_has_its_counts() -> None:
    """Also one that stays, and one that two budgets select."""
    web = a_pod("web").labelled(app="web", tier="gold").priority(2).cpu(1)
    decision = decided(
        a_node("n1").cpu(2).running(web, a_pod("low").labelled(app="web").cpu(1)),
        a_pdb("gold").selecting(tier="gold").allowing(3),
        a_pdb("web").selecting(app="web").allowing(2),
        HIGH.cpu(1),
    )
    assert {c.pod: (c.reprieved, c.budgets) for c in decision.trace.checks} == {
        "default/web": (True, (count("default/gold", 3, 3), count("default/web", 2, 2))),
        "default/low": (False, (count("default/web", 2, 1),)),
    }


@pytest.mark.parametrize(
    ("kept", "goes", "key"),
    [
        (a_pod("a").priority(2), a_pod("b").priority(1), "victim.priority"),
        (a_pod("a").started(9), a_pod("b").started(5), "victim.startTime"),
        (a_pod("a").started(5), a_pod("b").started(5), "victim.key"),
        (a_pod("z").labelled(app="web"), a_pod("b").priority(5), "victims.reprieve"),
    ],
)
def test_a_reprieved_pod_has_the_key_that_put_it_ahead(
    kept: PodBuilder, goes: PodBuilder, key: str
) -> None:
    """Priority, start time, name, or that a violated budget goes first."""
    decision = decided(
        a_node("n1").cpu(2).running(kept.cpu(1), goes.cpu(1)),
        a_pdb("web").selecting(app="web").allowing(0),
        HIGH.cpu(1),
    )
    stays, left = decision.trace.checks
    assert (stays.reprieved, stays.ahead_of, stays.ahead_by) == (True, left.pod, key)
    assert (left.reprieved, left.ahead_of, left.ahead_by) == (False, "", "")


def test_a_pod_that_stays_behind_the_victims_says_so() -> None:
    """The small pod is tried last, and there is room for it."""
    big, small = a_pod("a").priority(2).cpu(2), a_pod("b").priority(1).cpu("500m")
    decision = decided(a_node("n1").cpu("2500m").running(big, small), HIGH)
    assert [(c.pod, c.reprieved, c.ahead_of) for c in decision.trace.checks] == [
        ("default/a", False, ""),
        ("default/b", True, ""),
    ]


def test_a_pod_that_may_not_preempt_names_whose_leaving_it_waits_for() -> None:
    """Pod, node, since when and until when at most; others on the node are not meant."""
    decision = decided(
        a_node("n1")
        .cpu(4)
        .running(
            a_pod("going").priority(3).cpu(2).terminating_by_preemption(),
            a_pod("other").priority(3).cpu(2),
        ),
        HIGH.nominated_to("n1"),
    )
    assert (decision.outcome, decision.trace.waits_for) == (
        "not-eligible",
        (
            LeavingPod(
                pod="default/going",
                node="n1",
                priority=3,
                since_ms=NOW_MS + 30_000,  # deleted a minute ahead, less 30 s of grace
                until_ms=NOW_MS + 60_000,
            ),
        ),
    )


def test_since_when_is_the_time_of_the_disruption() -> None:
    """The condition of the preemption has it; the grace period is a guess."""
    pod = a_pod("p").terminating().condition("DisruptionTarget", "True", "PreemptionByScheduler")
    from policy.cluster.leaving import leaving_since_ms

    assert leaving_since_ms(pod.pod) == NOW_MS + 30_000
    assert leaving_since_ms(a_pod("p").pod) == times.MISSING


def obstacle(node: str, kind: str, *pods: str, **more: object) -> Obstacle:
    names = tuple(f"default/{pod}" for pod in pods)
    return Obstacle(
        node=node,
        kind=ObstacleKind(kind),
        pods=names,
        pod_count=len(pods),
        **more,  # type: ignore[arg-type]
    )


def test_pods_that_stay_are_named_by_what_keeps_them() -> None:
    """Same and higher priority, a rule that denies, a rule that forbids; one node per status."""
    rules = RuleSet.load(
        "kube-1.36",
        overrides={
            "victims": {
                "eligible": {
                    "insert": [
                        {
                            "at": "start",
                            "rule": {
                                "id": "gold",
                                "when": "victim.labels['tier'] == 'gold'",
                                "verdict": "deny",
                            },
                        }
                    ]
                },
                "forbid": [{"id": "guarded", "when": "victim.pdbViolating"}],
            }
        },
    )
    small = a_pod("x").cpu("500m")
    decision = decided(
        a_node("n1")
        .cpu(3)
        .running(
            a_pod("equal").priority(10).cpu("500m"),
            a_pod("above").priority(11).cpu("500m"),
            a_pod("gold").labelled(tier="gold").cpu("500m"),
            a_pod("web").labelled(app="web").cpu("500m"),
            small,
        ),
        a_node("n2").cpu(3).running(a_pod("same").priority(10).cpu(2), a_pod("low").cpu("500m")),
        a_pdb("web").selecting(app="web").allowing(0),
        HIGH,
        rules=rules,
    )
    assert decision.trace.obstacles == (
        obstacle("n1", "rule", "gold", rule="gold"),
        obstacle("n1", "higher-priority", "above"),
        obstacle("n1", "same-priority", "equal"),
        obstacle("n1", "rule", "web", rule="guarded"),
    )


def test_the_pods_of_an_anti_affinity_are_named() -> None:
    """Only those that match and stay: what else stays on the node is not why."""
    decision = decided(
        a_node("n1").labelled(zone="a").cpu(8).running(a_pod("bystander").priority(50)),
        a_node("n2")
        .labelled(zone="a")
        .cpu(8)
        .running(a_pod("db").labelled(app="web").priority(50)),
        HIGH.anti_affine_to(WEB),
    )
    assert decision.trace.obstacles == (
        obstacle("n1", "anti-affinity", "db", topology_key=ZONE, domain="a"),
    )


def test_the_pods_whose_anti_affinity_keeps_it_away_are_named() -> None:
    """A pod of higher priority that wants no `web` in its zone."""
    guard = a_pod("guard").priority(50).anti_affine_to(WEB)
    decision = decided(
        a_node("n1").labelled(zone="a").cpu(8).running(guard), HIGH.labelled(app="web")
    )
    assert decision.trace.obstacles == (
        obstacle("n1", "existing-anti-affinity", "guard", topology_key=ZONE, domain="a"),
        obstacle("n1", "higher-priority", "guard"),
    )


def test_an_affinity_that_no_pod_matches_is_named() -> None:
    """Eviction cannot help there: the pod that it wants is missing."""
    decision = decided(a_node("n1").labelled(zone="a").cpu(8), HIGH.affine_to(WEB))
    assert decision.trace.obstacles == (obstacle("n1", "affinity", topology_key=ZONE, domain="a"),)


def test_the_group_of_a_spread_constraint_is_named() -> None:
    """What the domain holds, what the others have, and the skew that is allowed."""
    spread = TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, label_selector=selector(app="web")
    )
    web = a_pod("web").labelled(app="web").priority(50)
    decision = decided(
        a_node("n1").labelled(zone="a").cpu(8).running(web),
        a_node("n2").labelled(zone="b").cpu(1),
        HIGH.labelled(app="web").spread(spread),
    )
    assert decision.trace.obstacles == (
        obstacle("n1", "spread", "web", topology_key=ZONE, domain="a", max_skew=1),
        obstacle("n1", "higher-priority", "web"),
    )
