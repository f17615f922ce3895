"""Candidates that a scheduler offers, judged by a rule set."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policy.cluster.objects import PodAffinityTerm
from policy.cluster.snapshot import Snapshot
from policy.decision.model import NO_EFFECTS, Decision, OfferedNode
from policy.manifests import from_dicts
from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.support import volumes
from tests.support.builders import (
    HOSTNAME,
    NOW_MS,
    Builder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    rule_set,
    selector,
    snapshot,
)

HIGH = a_pod("high").priority(100).cpu(2)


def offered(
    *objects: Builder,
    offer: dict[str, Sequence[str]],
    rules: str = "kube-1.36",
    violations: dict[str, int] | None = None,
) -> Decision:
    nodes = [
        OfferedNode(
            node=node,
            victims=tuple(f"default/{name}" for name in names),
            pdb_violations=(violations or {}).get(node, 0),
        )
        for node, names in offer.items()
    ]
    return decide(snapshot(*objects), rule_set(rules), "default/high", seed=1, offer=nodes)


def told(decision: Decision) -> tuple[str, str | None, list[str], dict[str, str]]:
    """Outcome, node, victims, and why offered nodes are no candidates."""
    statuses = decision.trace.dry_run_statuses
    return (
        decision.outcome.value,
        decision.node,
        [victim.pod.removeprefix("default/") for victim in decision.victims],
        {node: statuses[node].reasons[0] for node in statuses},
    )


def low(name: str, *, cpu: int = 2, **labels: str):
    return a_pod(name).priority(1).cpu(cpu).started(5).labelled(**labels)


def test_victims_are_neither_added_nor_taken_away() -> None:
    """One pod of four would be enough; two were offered, and two are the victims."""
    node = a_node("n1").cpu(4).running(*(low(name, cpu=1) for name in "abcd"))
    high = a_pod("high").priority(100).cpu(1)
    found = offered(node, high, offer={"n1": ["b", "c"]})
    assert told(found) == ("preempt", "n1", ["b", "c"], {})


def test_the_rules_rank_what_was_offered() -> None:
    """The lowest top priority wins among the offered nodes; a better one was not offered."""
    nodes = [
        a_node(name).cpu(2).running(a_pod(f"on-{name}").priority(priority).cpu(2))
        for name, priority in (("n1", 9), ("n2", 5), ("n3", 1))
    ]
    found = offered(*nodes, HIGH, offer={"n1": ["on-n1"], "n2": ["on-n2"]})
    assert told(found) == ("preempt", "n2", ["on-n2"], {})


@pytest.mark.parametrize(
    ("given", "counted"),
    [(2**63 - 1, 2**31 - 1), (2**31 - 1, 2**31 - 1), (7, 7), (-(2**63), 0)],
)
def test_a_count_of_violations_can_be_summed_up(given: int, counted: int) -> None:
    """Another extender may have set it to anything; totals of all decisions have to hold it."""
    node = a_node("n1").cpu(2).running(low("a"))
    found = offered(node, HIGH, offer={"n1": ["a"]}, violations={"n1": given})
    assert [candidate.pdb_violations for candidate in found.candidates] == [counted]


def test_a_denied_victim_rules_its_node_out() -> None:
    nodes = (
        a_node("n1").cpu(2).running(low("gold", preemption="never")),
        a_node("n2").cpu(2).running(a_pod("dear").priority(50).cpu(2)),
    )
    there = a_namespace("default")
    found = offered(*nodes, there, HIGH, offer={"n1": ["gold"], "n2": ["dear"]}, rules="protected")
    assert told(found) == (
        "preempt",
        "n2",
        ["dear"],
        {"n1": "a victim is denied by rule protected-label"},
    )


@pytest.mark.parametrize("rules", ["kube-1.36", "kube-1.20"])
def test_a_pod_waits_for_no_victim_that_its_scheduler_offers_again(rules: str) -> None:
    """It was answered that this one leaves, and that was not carried out: its deletion failed."""
    nodes = (
        a_node("n1").cpu(2).running(low("a").terminating_by_preemption()),
        a_node("n2").cpu(2).running(a_pod("b").priority(50).cpu(2)),
    )
    waits = HIGH.nominated_to("n1")
    found = offered(*nodes, waits, offer={"n1": ["a"], "n2": ["b"]}, rules=rules)
    assert told(found) == ("preempt", "n1", ["a"], {})
    assert found.trace.waits_for == ()


@pytest.mark.parametrize(
    ("leaving", "offer", "rules"),
    [
        (low("a").terminating_by_preemption(), {"n1": ["c"]}, "kube-1.36"),
        (low("a").terminating_by_preemption(), {"n2": ["b"]}, "kube-1.36"),
        # It may leave for another reason, which a scheduler of that version would not wait for.
        (low("a").terminating(), {"n1": ["a"]}, "kube-1.20"),
    ],
    ids=["another-victim", "another-node", "not-preempted"],
)
def test_a_pod_waits_for_what_leaves_its_node_otherwise(
    leaving: Builder, offer: dict[str, Sequence[str]], rules: str
) -> None:
    nodes = (
        a_node("n1").cpu(4).running(leaving, low("c")),
        a_node("n2").cpu(2).running(low("b")),
    )
    found = offered(*nodes, HIGH.nominated_to("n1"), offer=offer, rules=rules)
    assert (found.outcome, [one.pod for one in found.trace.waits_for]) == (
        "not-eligible",
        ["default/a"],
    )


def test_no_node_is_known() -> None:
    """A state that is loaded from nothing, or behind: what is offered is known to the scheduler."""
    found = offered(HIGH, offer={"n1": ["a"]})
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {"n1": "the node is not in the recorded state"},
    )


def test_nothing_is_left_where_every_candidate_is_denied() -> None:
    node = a_node("n1").cpu(2).running(low("gold", preemption="never"))
    found = offered(node, HIGH, offer={"n1": ["gold"]}, rules="protected")
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {"n1": "a victim is denied by rule protected-label"},
    )


def test_a_victim_of_higher_priority_is_allowed_by_no_rule() -> None:
    """Whatever a scheduler offers: who is no potential victim under the rules stays."""
    node = a_node("n1").cpu(2).running(a_pod("boss").priority(1000).cpu(2))
    found = offered(node, HIGH, offer={"n1": ["boss"]})
    assert told(found) == ("no-candidate", None, [], {"n1": "a victim is allowed by no rule"})


def test_budgets_that_are_hard_limits_forbid() -> None:
    node = a_node("n1").cpu(2).running(low("web", app="web"))
    budget = a_pdb("web").selecting(app="web").allowing(0)
    found = offered(node, budget, HIGH, offer={"n1": ["web"]}, rules="pdb-hard-limit")
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {"n1": "a victim is held back by victims.forbid"},
    )


def test_more_victims_than_the_rules_allow() -> None:
    node = a_node("n1").cpu(8).running(*(low(f"p{i}", cpu=1) for i in range(8)))
    names = [f"p{i}" for i in range(8)]
    found = offered(node, HIGH, offer={"n1": names}, rules="max-victims")
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {"n1": "8 victims needed, maxVictims allows 5"},
    )


def test_what_is_not_in_the_state_is_not_judged() -> None:
    """An unknown node, an unknown victim and an empty list are no candidates."""
    nodes = [a_node(name).cpu(2).running(low(f"on-{name}")) for name in ("n1", "n2")]
    offer = {"n1": ["on-n1", "new"], "n2": [], "n9": ["on-n1"]}
    found = offered(*nodes, HIGH, offer=offer)
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {
            "n1": "a victim is not on the node in the recorded state",
            "n2": "no victims were offered",
            "n9": "the node is not in the recorded state",
        },
    )


def test_a_refused_pod_stays_nominated() -> None:
    """A scheduler whose extender leaves no candidate keeps the nomination of before."""
    nodes = [a_node("n1").cpu(2).running(low("on-n1")), a_node("n2").cpu(1)]
    found = offered(*nodes, HIGH.nominated_to("n2"), offer={"n1": ["unknown"]})
    assert told(found)[0] == "no-candidate"
    assert found.effects == NO_EFFECTS


@pytest.mark.parametrize("scheduler", ["default-scheduler", "another"])
def test_room_is_promised_once(scheduler: str) -> None:
    """A pod as important is nominated to n1: what leaves there is for that one."""
    nodes = [a_node(name).cpu(2).running(low(f"on-{name}")) for name in ("n1", "n2")]
    first = a_pod("first").priority(100).cpu(2).nominated_to("n1").scheduled_by(scheduler)
    found = offered(*nodes, first, HIGH, offer={"n1": ["on-n1"], "n2": ["on-n2"]})
    assert told(found) == (
        "preempt",
        "n2",
        ["on-n2"],
        {"n1": "the room is promised to a nominated pod"},
    )


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (["b", "c"], {}),
        (["a", "b"], {"n1": "the room is promised to a nominated pod"}),
    ],
)
def test_room_that_is_being_made_is_no_room_of_others(
    offer: list[str], why: dict[str, str]
) -> None:
    """What leaves for the nominated pod makes its room; no other pod may count on that."""
    node = (
        a_node("n1")
        .cpu(4)
        .running(low("a", cpu=1).terminating_by_preemption(), *(low(name, cpu=1) for name in "bcd"))
    )
    first = a_pod("first").priority(100).cpu(1).nominated_to("n1")
    found = offered(node, first, HIGH, offer={"n1": offer})
    assert told(found) == (("no-candidate", None, [], why) if why else ("preempt", "n1", offer, {}))


def test_an_affinity_is_not_met_by_a_promise_alone() -> None:
    """The pod that it is to is nominated to n1 as well, and may never come."""
    web = PodAffinityTerm(label_selector=selector(app="web"), topology_key=HOSTNAME)
    node = a_node("n1").cpu(4).running(low("a"))
    elsewhere = a_node("n2").cpu(1).running(a_pod("web").labelled(app="web"))
    first = a_pod("first").priority(100).cpu(1).labelled(app="web").nominated_to("n1")
    found = offered(node, elsewhere, first, HIGH.affine_to(web), offer={"n1": ["a"]})
    assert told(found) == (
        "no-candidate",
        None,
        [],
        {"n1": "the room is promised to a nominated pod"},
    )


@pytest.mark.parametrize(("theirs", "priority"), [(0, 100), (1, 100), (1, 2_000_000)])
def test_budgets_that_only_the_scheduler_knows_are_forbidden_too(
    theirs: int, priority: int
) -> None:
    """It does not say which victim breaks one: the rule is asked as if each of them did."""
    nodes = [a_node(name).cpu(2).running(low(f"on-{name}")) for name in ("n1", "n2")]
    found = offered(
        *nodes,
        HIGH.priority(priority),
        offer={"n1": ["on-n1"]},
        rules="pdb-hard-limit",
        violations={"n1": theirs},
    )
    refused = {"n1": "a victim is held back by victims.forbid"}
    assert told(found) == (
        ("no-candidate", None, [], refused)
        if theirs and priority == 100
        else ("preempt", "n1", ["on-n1"], {})
    )


@pytest.mark.parametrize(
    ("allowed", "leaving", "node"), [(1, 0, "n2"), (1, 1, None), (2, 1, "n2"), (0, 0, None)]
)
def test_pods_that_are_leaving_for_others_use_up_budgets(
    allowed: int, leaving: int, node: str | None
) -> None:
    """Their status is written a moment later; meanwhile as many would go once more."""
    on_n1 = low("on-n1", app="web")
    there = on_n1.terminating_by_preemption() if leaving else on_n1
    found = offered(
        a_node("n1").cpu(2).running(there),
        a_node("n2").cpu(2).running(low("on-n2", app="web")),
        a_pdb("web").selecting(app="web").allowing(allowed),
        HIGH,
        offer={"n2": ["on-n2"]},
        rules="pdb-hard-limit",
    )
    assert (found.node, told(found)[3]) == (
        node,
        {} if node else {"n2": "a victim is held back by victims.forbid"},
    )


def test_claims_are_for_the_scheduler_to_look_at() -> None:
    """It has found that the pod would fit: that the claim is missing in the state says nothing."""
    made = [volumes.node("n1"), volumes.pod("a", on="n1", priority=1, cpu="4")]
    high = volumes.pod("high", "data", priority=9, cpu="4")
    there = Snapshot.from_objects(list(from_dicts([*made, high])), now_ms=NOW_MS)
    offer = [OfferedNode(node="n1", victims=("uid-a",), pdb_violations=0)]
    found = decide(there, rule_set("kube-1.36"), "shop/high", seed=1, offer=offer)
    assert (found.outcome.value, found.node) == ("preempt", "n1")
    assert decide(there, rule_set("kube-1.36"), "shop/high", seed=1).outcome.value == "error"


@pytest.mark.parametrize("known", [False, True])
def test_labels_of_an_unknown_namespace_may_be_any(known: bool) -> None:
    """Rules that protect by them allow no victim from there; others do not look at it."""
    node = a_node("n1").cpu(2).running(low("a"))
    there = [a_namespace("default")] if known else []
    found = offered(node, HIGH, *there, offer={"n1": ["a"]}, rules="protected")
    refused = {"n1": "the namespace of a victim is not in the recorded state"}
    assert told(found) == (
        ("preempt", "n1", ["a"], {}) if known else ("no-candidate", None, [], refused)
    )
    assert told(offered(node, HIGH, offer={"n1": ["a"]}))[0] == "preempt"


def test_the_higher_count_of_violations_counts() -> None:
    """The scheduler knows of a budget that the state does not have."""
    nodes = [a_node(name).cpu(2).running(low(f"on-{name}")) for name in ("n1", "n2")]
    offer = {"n1": ["on-n1"], "n2": ["on-n2"]}
    found = offered(*nodes, HIGH, offer=offer, violations={"n1": 1})
    assert told(found) == ("preempt", "n2", ["on-n2"], {})
    assert [(c.node, c.pdb_violations) for c in found.candidates] == [("n2", 0), ("n1", 1)]


def test_a_pod_that_may_not_preempt_is_given_no_candidate() -> None:
    node = a_node("n1").cpu(2).running(low("a"))
    never = a_pod("high").priority(100).cpu(2).never_preempting()
    found = offered(node, never, offer={"n1": ["a"]})
    assert told(found) == ("not-eligible", None, [], {})
    assert found.trace.eligible is False


def test_the_offer_is_part_of_the_decision() -> None:
    """Another count of violations on a node that loses is another digest; replay needs it."""
    nodes = [a_node(name).cpu(2).running(low(f"on-{name}")) for name in ("n1", "n2")]
    offer = {"n1": ["on-n1"], "n2": ["on-n2"]}
    digests = {offered(*nodes, HIGH, offer=offer, violations={"n1": n}).digest for n in (1, 1, 2)}
    assert len(digests) == 2


KEPT = RuleSet.load(
    "kube-1.36",
    overrides={
        "ranking": {
            "insert": [
                {
                    "at": "start",
                    "rule": {"id": "kept", "maximize": "candidate.reprievedViolations"},
                }
            ]
        }
    },
)


@pytest.mark.parametrize(
    ("victims", "violations", "kept"),
    [
        ("c", 0, {"n1": 0, "n2": 1}),  # the pod of the budget stays
        ("c", 1, {"n1": 0, "n2": 1}),  # the scheduler knows another budget, of c
        ("db", 1, {"n1": 0, "n2": 0}),  # the pod of the budget goes
        ("db", 0, {"n1": 0, "n2": 0}),  # it goes, and the scheduler knows nothing of its budget
    ],
)
def test_reprieved_violations_are_those_of_pods_that_are_not_offered(
    victims: str, violations: int, kept: dict[str, int]
) -> None:
    """Whatever number of violations the scheduler sends with its victims."""
    cluster = snapshot(
        a_node("n1").cpu(4).running(a_pod("a").cpu(2), a_pod("b").cpu(2)),
        a_node("n2").cpu(4).running(a_pod("c").cpu(2), a_pod("db").labelled(app="db").cpu(2)),
        a_pdb("tight").selecting(app="db").allowing(0),
        a_pod("high").priority(10).cpu(2),
    )
    offer = [
        OfferedNode(node="n1", victims=("default/a",), pdb_violations=0),
        OfferedNode(node="n2", victims=(f"default/{victims}",), pdb_violations=violations),
    ]
    made = decide(cluster, KEPT, "default/high", seed=0, offer=offer)
    assert {one.node: one.values["kept"] for one in made.candidates} == kept
