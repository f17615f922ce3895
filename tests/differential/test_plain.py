"""The engine and its slow twin decide alike: on generated clusters, under every rule set.

POLICY_DIFFERENTIAL_EXAMPLES says how many clusters each test tries (default 800).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from policy.cluster import times
from policy.cluster.objects import Pod, PodAffinityTerm, TopologySpreadConstraint
from policy.cluster.snapshot import Snapshot
from policy.conformance import compare, scenario
from policy.manifests import from_dicts
from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.differential.plain import plain
from tests.differential.plain_rules import APPS
from tests.differential.plain_told import Told, told
from tests.support.builders import (
    ZONE,
    a_node,
    a_pdb,
    a_pod,
    objects,
    rule_set,
    selector,
)
from tests.support.clusters import Example, clusters

EXAMPLES = int(os.environ.get("POLICY_DIFFERENTIAL_EXAMPLES", "800"))
GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
RECORDED = Path(__file__).parents[1] / "data" / "conformance"
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

LOWER = {"id": "lower-priority", "when": "victim.priority < preemptor.priority", "verdict": "allow"}
GOLD = "'tier' in victim.labels && victim.labels['tier'] == 'gold'"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "protected-victims": (
        "kube-1.35",
        {
            "victims": {
                "eligible": [
                    {"id": "gold", "when": GOLD, "verdict": "deny"},
                    {"id": "shop", "when": "victim.namespace == 'shop'", "verdict": "deny"},
                    LOWER,
                ]
            }
        },
    ),
    "sampled": (
        "kube-1.35",
        {
            "candidates": {"minPercentage": 20, "minAbsolute": 1},
            "ranking": {"replace": [{"id": "by-name", "pick": "seeded"}]},
        },
    ),
    "first-clean-node": ("kube-1.27", {"candidates": {"minPercentage": 0, "minAbsolute": 0}}),
    "few-victims": (
        "kube-1.28",
        {"victims": {"maxVictims": 1}, "candidates": {"minAbsolute": 2, "start": "first"}},
    ),
    "budgets-forbid": (
        "kube-1.35",
        {"victims": {"forbid": [{"id": "never-violate", "when": "victim.pdbViolating"}]}},
    ),
    "others-first": (
        "kube-1.20",
        {"victims": {"reprieve": ["others", "pdb-violating"], "budgets": {"count": "static"}}},
    ),
    "all-together": (
        "kube-1.14",
        {"victims": {"reprieve": ["all"], "order": "by-importance", "maxVictims": 2}},
    ),
    "no-value": (
        "kube-1.35",
        {
            "victims": {
                "eligible": [
                    {"id": "app", "when": f"{APPS} > 1", "verdict": "deny", "onError": "skip"},
                    {"id": "gold", "when": "victim.labels['tier'] != 'gold'", "verdict": "deny"},
                    {"id": "web", "when": f"{APPS} > 1", "verdict": "deny"},
                    LOWER,
                ],
                "forbid": [{"id": "violating", "when": f"{APPS} == 1 && victim.pdbViolating"}],
                "importance": [
                    {"id": "app-first", "descending": APPS},
                    {"descending": "victim.priority"},
                    {"ascending": "victim.key"},
                ],
            },
        },
    ),
    "no-value-allowed": (
        "kube-1.35",
        {
            "victims": {
                "eligible": [
                    {"id": "db", "when": f"{APPS} > 1", "verdict": "allow"},
                    {"id": "web", "when": f"{APPS} > 1", "verdict": "allow", "onError": "holds"},
                    LOWER,
                ],
                "importance": [
                    {"id": "app-first", "ascending": APPS},
                    {"ascending": "victim.key"},
                ],
            },
            "ranking": [
                {
                    "id": "per-violation",
                    "minimize": "candidate.victimCount / candidate.pdbViolations",
                },
                {"id": "by-name", "pick": "first-by-name"},
            ],
        },
    ),
    "own-namespace": (
        "kube-1.35",
        {
            "victims": {
                "eligible": [
                    {
                        "id": "own",
                        "when": "victim.namespace == preemptor.namespace",
                        "verdict": "allow",
                    },
                    LOWER,
                ],
                "nodesWithoutVictims": "tried",
            }
        },
    ),
}


def variant_rules(variant: str) -> RuleSet:
    base, overrides = VARIANTS[variant]
    return rule_set(base, json.dumps(overrides))


def both(case: Example, rules: RuleSet) -> tuple[Told, Told]:
    """What the engine and the twin say; every other example goes through every step."""
    evaluate_all = case.seed % 2 == 1
    fast = told(case.decided(rules, evaluate_all=evaluate_all))
    slow = plain(
        case.objects,
        rules,
        case.pod,
        now_ms=case.now_ms,
        seed=case.seed,
        evaluate_all=evaluate_all,
    )
    event(fast.outcome)
    return fast, slow


def without_cpu(started: int | None) -> Example:
    """Two equal pods; one of them has no start time, the other starts at some instant."""
    low = a_pod("a").cpu(2).started(None), a_pod("b").cpu(2).started(started)
    node = a_node("n1").cpu(4).running(*low)
    return Example(objects(node, a_pod("high").priority(10).cpu(1)))


def spread_over_a_shared_zone() -> Example:
    """The zone's other node, where the pod must not go, holds pods that its constraint selects."""
    web = a_pod("web").labelled(app="web").cpu(1)
    constraint = TopologySpreadConstraint(topology_key=ZONE, label_selector=selector(app="web"))
    return Example(
        objects(
            a_node("n1").cpu(1).labelled(zone="a", disk="ssd").running(a_pod("low").cpu(1)),
            a_node("n2").cpu(1).labelled(zone="a", disk="hdd").running(web),
            a_node("n3")
            .cpu(1)
            .labelled(zone="b", disk="ssd")
            .running(a_pod("keep").priority(99).cpu(1)),
            a_pod("high")
            .labelled(app="web")
            .priority(10)
            .cpu(1)
            .node_selector(disk="ssd")
            .spread(constraint),
        )
    )


def spread_with_a_nominated_pod() -> Example:
    """The emptiest zone is not the emptiest any more once a nominated pod is added to it."""
    web = a_pod("web").labelled(app="web").priority(99)
    constraint = TopologySpreadConstraint(topology_key=ZONE, label_selector=selector(app="web"))
    return Example(
        objects(
            a_node("n1").cpu(1).labelled(zone="a").running(a_pod("low").cpu(1)),
            a_node("n2").cpu(1).labelled(zone="b").running(web.cpu(1)),
            a_pod("waits").labelled(app="web").priority(20).nominated_to("n1"),
            a_pod("high").labelled(app="web").priority(10).cpu(1).spread(constraint),
        )
    )


def equals_sorted_again() -> Example:
    """Equal pods of which one violates its budget: sorting again leaves them in reprieve order."""
    equal = [a_pod(n).cpu(1).started(5) for n in ("a", "b")]
    return Example(
        objects(
            a_node("n1").cpu(2).running(equal[0], equal[1].labelled(app="web")),
            a_pdb("web").selecting(app="web"),
            a_pod("high").priority(10).cpu(2),
        )
    )


def hostile_nominated() -> Example:
    """A nominated pod's anti-affinity, with and without a running pod that has some, too."""
    hostile = PodAffinityTerm(topology_key=ZONE, label_selector=selector(app="web"))
    return Example(
        objects(
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("low").cpu(2)),
            a_pod("waits").priority(20).anti_affine_to(hostile).nominated_to("n1"),
            a_pod("high").labelled(app="web").priority(10).cpu(1),
        )
    )


@pytest.mark.parametrize("name", GENERATIONS)
@many
@given(case=clusters())
@example(case=without_cpu(started=0))
@example(case=without_cpu(started=-10))
@example(case=without_cpu(started=None))
@example(case=spread_over_a_shared_zone())
@example(case=spread_with_a_nominated_pod())
@example(case=equals_sorted_again())
@example(case=hostile_nominated())
def test_the_engine_decides_as_its_twin(name: str, case: Example) -> None:
    """Array by array and pod by pod, a decision says the same in every part."""
    fast, slow = both(case, rule_set(name))
    assert fast == slow


@pytest.mark.parametrize("variant", VARIANTS)
@settings(many, max_examples=max(1, EXAMPLES // 3))
@given(case=clusters())
def test_the_engine_follows_other_rules_as_its_twin_does(variant: str, case: Example) -> None:
    """Rules that no generation has (denied pods, samples, limits) are obeyed alike."""
    fast, slow = both(case, variant_rules(variant))
    assert fast == slow


@pytest.mark.parametrize(
    "together",
    [
        ("spread", "node-affinity"),
        ("spread", "nominated"),
        ("spread", "terminating", "taints"),
        ("starts", "budgets"),
        ("negative", "budgets"),
        ("affinity", "nominated"),
        ("anti-affinity", "nominated", "schedulers"),
        ("host-ports", "nominated"),
        ("terminating", "own-nomination"),
        ("node-names", "lost-nodes"),
        ("init", "pod-level", "overhead", "resize"),
        ("extended", "memory", "overcommitted", "pod-count"),
    ],
    ids="-with-".join,
)
@settings(many, max_examples=max(1, EXAMPLES // 10))
@given(data=st.data())
def test_features_that_touch_each_other(together: tuple[str, ...], data: st.DataObject) -> None:
    """Features that share state in kube-scheduler are decided alike where they meet."""
    case = data.draw(clusters(always=together))
    name = data.draw(st.sampled_from(GENERATIONS))
    fast, slow = both(case, rule_set(name))
    assert fast == slow


@settings(max_examples=300, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(case=clusters())
def _decide_and_count(outcomes: Counter[str], case: Example) -> None:
    decision = case.decided(rule_set("kube-1.35"))
    outcomes[decision.outcome.value] += 1
    outcomes["several candidates"] += len(decision.candidates) > 1
    outcomes["several victims"] += len(decision.victims) > 1
    outcomes["somebody reprieved"] += any(c.reprieved for c in decision.trace.checks)
    outcomes["budget violated"] += any(c.pdb_violations for c in decision.candidates)


def test_generated_clusters_are_contended() -> None:
    """In most generated clusters somebody is preempted, and often the choice is not trivial."""
    outcomes: Counter[str] = Counter()
    _decide_and_count(outcomes)
    wanted = {
        "preempt": 150,
        "several candidates": 60,
        "several victims": 60,
        "somebody reprieved": 90,
        "budget violated": 8,
        "no-candidate": 20,
        "not-eligible": 3,
        "bind": 10,
    }
    assert {what: n for what, n in wanted.items() if outcomes[what] < n} == {}


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_twin_decides_recorded_clusters_as_the_engine_does(name: str) -> None:
    """On clusters that a real scheduler decided the two agree as well: the twin means the same."""
    rules = rule_set(name, '{"candidates": {"minPercentage": 100}}')
    now_ms = times.from_datetime(compare.NOW)
    apart = []
    for _, line in scenario.lines(RECORDED / f"{name}.jsonl.gz"):
        recorded = scenario.parse(line)
        found = from_dicts(recorded.objects, admission=False)
        if any(isinstance(o, Pod) and o.spec.volumes for o in found):
            continue
        snapshot = Snapshot.from_objects(found, now_ms=now_ms)
        fast = told(decide(snapshot, rules, recorded.pod, evaluate_all=True))
        if fast != plain(found, rules, recorded.pod, now_ms=now_ms, evaluate_all=True):
            apart.append(recorded.id)
    assert apart == []
