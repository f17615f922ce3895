"""Topology spread and inter-pod affinity: what counts where, and whom eviction helps."""

from __future__ import annotations

from typing import Any

import pytest

from policy.cluster.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from policy.decision.model import Code, Decision, Outcome
from tests.support.builders import (
    ZONE,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pod,
    candidates,
    decided,
    result,
    selector,
)

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
LATER = GENERATIONS[1:]
WEB = a_pod("high").priority(10).labelled(app="web")
PLAIN = a_pod("high").priority(10)


def constraint(**fields: Any) -> TopologySpreadConstraint:
    wanted: dict[str, Any] = {"topology_key": ZONE, "label_selector": selector(app="web"), **fields}
    return TopologySpreadConstraint(**wanted)


def term(**fields: Any) -> PodAffinityTerm:
    wanted: dict[str, Any] = {"topology_key": ZONE, "label_selector": selector(app="web"), **fields}
    return PodAffinityTerm(**wanted)


def web(name: str) -> PodBuilder:
    return a_pod(name).labelled(app="web")


def zone(name: str, value: str, *pods: PodBuilder) -> NodeBuilder:
    return a_node(name).labelled(zone=value).running(*pods)


def statuses(decision: Decision) -> dict[str, tuple[Code, str]]:
    found = decision.trace.filter_statuses.items()
    return {node: (status.code, status.filter) for node, status in found}


SKEWED = (Code.UNSCHEDULABLE, "topology-spread")
FITS = (Code.SUCCESS, "")


# --- spread ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LATER)
def test_the_skew_is_measured_against_the_emptiest_domain(name: str) -> None:
    """Two pods against none is too many for a skew of one, one against none is not."""
    nodes = zone("n1", "a", web("p1")), zone("n2", "b"), zone("n3", "c", web("p2"), web("p3"))
    assert statuses(decided(*nodes, WEB.spread(constraint()), rules=name)) == {
        "n1": SKEWED,
        "n2": FITS,
        "n3": SKEWED,
    }


@pytest.mark.parametrize("name", LATER)
def test_a_domain_is_the_sum_of_its_nodes(name: str) -> None:
    """Pods of every node of the zone count, whichever node is asked about."""
    nodes = zone("n1", "a"), zone("n2", "a", web("p1")), zone("n3", "b")
    assert statuses(decided(*nodes, WEB.spread(constraint()), rules=name))["n1"] == SKEWED


@pytest.mark.parametrize("name", LATER)
def test_a_pod_that_its_own_constraint_does_not_select(name: str) -> None:
    """It adds nothing to the domain, so equal numbers are enough."""
    nodes = zone("n1", "a", web("p1")), zone("n2", "b")
    assert statuses(decided(*nodes, PLAIN.spread(constraint()), rules=name))["n1"] == FITS


@pytest.mark.parametrize("name", LATER)
def test_a_node_without_the_label(name: str) -> None:
    """Eviction cannot give it one; its pods do not count either."""
    nodes = a_node("n1").running(web("p1")), zone("n2", "b")
    assert statuses(decided(*nodes, WEB.spread(constraint()), rules=name)) == {
        "n1": (Code.UNRESOLVABLE, "topology-spread"),
        "n2": FITS,
    }


@pytest.mark.parametrize("name", LATER)
def test_eviction_lowers_the_skew(name: str) -> None:
    """One matching pod has to go; pods that do not match are reprieved."""
    nodes = (
        zone("n1", "a", web("p1").priority(1), web("p2").priority(2), a_pod("other")),
        zone("n2", "b", web("p3")).cordoned(),
    )
    decision = decided(*nodes, WEB.spread(constraint()), rules=name)
    assert candidates(decision) == {"n1": ["p1"]}


def test_pods_of_other_nodes_are_not_evicted() -> None:
    """The dry run of a node changes its own pods only, though its domain has others."""
    nodes = zone("n1", "a", a_pod("low")), zone("n2", "a", web("p1")), zone("n3", "b").cordoned()
    decision = decided(*nodes, WEB.spread(constraint()))
    assert candidates(decision) == {"n2": ["p1"]}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, FITS),
        ({"min_domains": 1}, FITS),
        ({"min_domains": 2}, SKEWED),
        ({"min_domains": 2, "max_skew": 2}, FITS),
    ],
)
def test_min_domains(fields: dict[str, Any], wanted: tuple[Code, str]) -> None:
    """With fewer domains than wanted the smallest count is 0."""
    decision = decided(zone("n1", "a", web("p1")), WEB.spread(constraint(**fields)))
    assert statuses(decision) == {"n1": wanted}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, FITS),
        ({"node_affinity_policy": "Honor"}, FITS),
        ({"node_affinity_policy": "Ignore"}, SKEWED),
    ],
)
def test_nodes_that_the_pod_may_not_use(fields: dict[str, Any], wanted: tuple[Code, str]) -> None:
    """An empty zone that node affinity rules out counts only where the policy says Ignore."""
    nodes = zone("n1", "a", web("p1")).labelled(disk="ssd"), zone("n2", "b")
    decision = decided(*nodes, WEB.node_selector(disk="ssd").spread(constraint(**fields)))
    assert statuses(decision)["n1"] == wanted


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, SKEWED),
        ({"node_taints_policy": "Ignore"}, SKEWED),
        ({"node_taints_policy": "Honor"}, FITS),
    ],
)
def test_nodes_with_taints(fields: dict[str, Any], wanted: tuple[Code, str]) -> None:
    """An empty tainted zone is left out only where the policy says Honor."""
    nodes = zone("n1", "a", web("p1")), zone("n2", "b").tainted("x")
    assert statuses(decided(*nodes, WEB.spread(constraint(**fields))))["n1"] == wanted


def test_labels_of_the_pod_narrow_the_constraint() -> None:
    """matchLabelKeys: only pods with the incoming pod's own value of the label count."""
    old = web("p1").labelled(version="1")
    nodes = zone("n1", "a", old), zone("n2", "b")
    pod = WEB.labelled(version="2").spread(constraint(match_label_keys=["version", "absent"]))
    assert statuses(decided(*nodes, pod))["n1"] == FITS


def test_constraints_that_are_wishes() -> None:
    """ScheduleAnyway keeps no pod off a node."""
    nodes = zone("n1", "a", web("p1")), zone("n2", "b")
    pod = WEB.spread(constraint(when_unsatisfiable="ScheduleAnyway"))
    assert statuses(decided(*nodes, pod))["n1"] == FITS


def test_all_constraints_must_hold() -> None:
    """Nodes that lack one of the keys are counted for none of them."""
    rack = constraint(topology_key="rack")
    nodes = (
        zone("n1", "a", web("p1")).labelled(rack="r1"),
        zone("n2", "b"),
        zone("n3", "c", web("p2")).labelled(rack="r2"),
    )
    assert statuses(decided(*nodes, WEB.spread(constraint(), rack))) == {
        "n1": FITS,
        "n2": (Code.UNRESOLVABLE, "topology-spread"),
        "n3": FITS,
    }


def test_pods_of_other_namespaces_are_not_spread() -> None:
    """Only the preemptor's own namespace counts."""
    nodes = zone("n1", "a", web("p1").in_namespace("shop")), zone("n2", "b")
    assert statuses(decided(*nodes, WEB.spread(constraint())))["n1"] == FITS


@pytest.mark.parametrize("name", LATER)
def test_a_nominated_pod_counts_in_its_domain(name: str) -> None:
    """Added to the emptiest zone it raises the minimum that the zone is measured by, too."""
    waits = web("waits").priority(20).nominated_to("n1")
    nodes = zone("n1", "a"), zone("n2", "b", web("p1"))
    one = decided(*nodes, waits, WEB.spread(constraint()), rules=name)
    two = decided(
        *nodes,
        waits,
        web("more").priority(20).nominated_to("n1"),
        WEB.spread(constraint()),
        rules=name,
    )
    assert [statuses(d)["n1"] for d in (one, two)] == [FITS, SKEWED]


# --- affinity and anti-affinity ----------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATIONS)
def test_affinity_is_to_a_domain(name: str) -> None:
    """Any node of the zone will do; the others are unresolvable."""
    nodes = zone("n1", "a"), zone("n2", "a", web("p1")), zone("n3", "b")
    assert statuses(decided(*nodes, PLAIN.affine_to(term()), rules=name)) == {
        "n1": FITS,
        "n2": FITS,
        "n3": (Code.UNRESOLVABLE, "pod-affinity"),
    }


@pytest.mark.parametrize("name", GENERATIONS)
def test_one_pod_must_match_all_affinity_terms(name: str) -> None:
    """Two pods that match one term each are not enough."""
    terms = term(), term(label_selector=selector(tier="gold"))
    apart = zone("n1", "a", web("p1"), a_pod("p2").labelled(tier="gold"))
    together = zone("n2", "b", web("p3").labelled(tier="gold"))
    assert result(decided(apart, together, PLAIN.affine_to(*terms), rules=name))[1] == "n2"


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_first_pod_of_a_group_goes_where_it_likes(name: str) -> None:
    """It matches its own terms, and nobody else does."""
    decision = decided(zone("n1", "a"), WEB.affine_to(term()), rules=name)
    assert decision.outcome is Outcome.BIND


@pytest.mark.parametrize("name", GENERATIONS)
def test_own_anti_affinity_is_resolved_by_eviction(name: str) -> None:
    """Who matches has to go, whatever room there is."""
    node = zone("n1", "a", web("p1"), a_pod("p2"))
    decision = decided(node, PLAIN.anti_affine_to(term()), rules=name)
    assert candidates(decision) == {"n1": ["p1"]}


@pytest.mark.parametrize("name", GENERATIONS)
def test_each_own_anti_affinity_term_counts_alone(name: str) -> None:
    """Unlike affinity, one matching term is enough to keep the pod away."""
    terms = term(), term(label_selector=selector(tier="gold"))
    node = zone("n1", "a", web("p1"), a_pod("p2").labelled(tier="gold"), a_pod("p3"))
    decision = decided(node, PLAIN.anti_affine_to(*terms), rules=name)
    assert sorted(candidates(decision)["n1"]) == ["p1", "p2"]


@pytest.mark.parametrize("name", GENERATIONS)
def test_anti_affinity_of_pods_that_are_there(name: str) -> None:
    """It keeps the incoming pod off their whole domain, and is resolved by their eviction."""
    nodes = zone("n1", "a", a_pod("p1").anti_affine_to(term())), zone("n2", "a", a_pod("p2"))
    decision = decided(*nodes, WEB, rules=name)
    assert (candidates(decision), [s[0] for s in statuses(decision).values()]) == (
        {"n1": ["p1"]},
        [Code.UNSCHEDULABLE, Code.UNSCHEDULABLE],
    )


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_matching_pod_elsewhere_in_the_domain_cannot_be_evicted(name: str) -> None:
    """Nobody on the node itself is in the way, so the node is no candidate."""
    nodes = zone("n1", "a", a_pod("p1")), zone("n2", "a", web("p2").priority(99))
    decision = decided(*nodes, PLAIN.anti_affine_to(term()), rules=name)
    assert decision.outcome is Outcome.NO_CANDIDATE


@pytest.mark.parametrize("name", ["kube-1.27", "kube-1.35"])
@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, False),
        ({"namespaces": ["shop"]}, True),
        ({"namespaces": ["other"]}, False),
        ({"namespace_selector": selector()}, True),
        ({"namespace_selector": selector(team="a")}, True),
        ({"namespace_selector": selector(team="b")}, False),
        ({"namespaces": ["other"], "namespace_selector": selector(team="a")}, True),
    ],
)
def test_which_namespaces_a_term_means(name: str, fields: dict[str, Any], matches: bool) -> None:
    """Its own where it names none; a selector and a list add up; an empty selector means all."""
    node = zone("n1", "a", web("p1").in_namespace("shop"))
    spaces = a_namespace("shop", team="a"), a_namespace("default", team="c")
    own = decided(node, *spaces, PLAIN.anti_affine_to(term(**fields)), rules=name)
    hostile = (
        a_pod("p1")
        .in_namespace("shop")
        .anti_affine_to(term(**{k: ["default"] if v == ["shop"] else v for k, v in fields.items()}))
    )
    swapped = a_namespace("shop", team="c"), a_namespace("default", team="a")
    theirs = decided(zone("n1", "a", hostile), *swapped, WEB, rules=name)
    wanted = Outcome.PREEMPT if matches else Outcome.BIND
    assert (own.outcome, theirs.outcome) == (wanted, wanted)


@pytest.mark.parametrize("name", ["kube-1.27", "kube-1.35"])
def test_a_term_that_cannot_be_parsed_rejects_the_pod(name: str) -> None:
    """For all nodes at once, before any is looked at."""
    broken = LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="In")])
    pod = PLAIN.anti_affine_to(term(label_selector=broken))
    decision = decided(zone("n1", "a", web("p1")), pod, rules=name)
    assert (decision.outcome, len(decision.trace.rejected)) == (Outcome.REJECTED, 1)


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("chosen", [selector(), None], ids=["everything", "nothing"])
def test_empty_and_absent_selectors_of_terms(name: str, chosen: LabelSelector | None) -> None:
    """`{}` selects every pod, none at all selects nobody."""
    decision = decided(
        zone("n1", "a", a_pod("p1")), PLAIN.anti_affine_to(term(label_selector=chosen)), rules=name
    )
    assert decision.outcome is (Outcome.BIND if chosen is None else Outcome.PREEMPT)
