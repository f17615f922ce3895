"""Section 11 of the specification: what a re-implementation gets wrong, one cluster each."""

from __future__ import annotations

import pytest

from policy.cluster.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from policy.decision.messages import fit_error
from policy.decision.model import Code, Decision
from policy.rules import RuleSet
from tests.support.builders import (
    HOSTNAME,
    ZONE,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    candidates,
    decided,
    result,
    selector,
    short,
)

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = a_pod("high").priority(10).cpu(2)
ONE = HIGH.cpu(1)
WEB = PodAffinityTerm(topology_key=ZONE, label_selector=selector(app="web"))


def full(name: str, *pods: PodBuilder) -> NodeBuilder:
    """A node with two cpus, all of which its pods share."""
    node = a_node(name).cpu(2).labelled(zone=name)
    return node.running(*(p.cpu(f"{2000 // len(pods)}m") for p in pods))


def dry_run(decision: Decision) -> dict[str, tuple[Code, str]]:
    """Why nodes that were tried are no candidates."""
    statuses = decision.trace.dry_run_statuses.items()
    return {node: (status.code, status.reasons[0]) for node, status in statuses}


# 1. and 2. equal pods


@pytest.mark.parametrize("name", GENERATIONS)
def test_of_equal_pods_the_last_in_snapshot_order_goes(name: str) -> None:
    """Snapshot order is namespace, then name; it does not depend on how many pods there are."""
    equal = [a_pod(f"p{i:02}").started(5) for i in range(20)]
    shop = a_pod("a").in_namespace("shop").started(5)
    node = a_node("n1").cpu(21).running(shop.cpu(1), *(p.cpu(1) for p in reversed(equal)))
    assert result(decided(node, HIGH, rules=name)) == ("preempt", "n1", ["p19", "shop/a"])


@pytest.mark.parametrize("name", GENERATIONS[1:])
def test_a_pod_without_start_time_goes_before_one_that_started(name: str) -> None:
    """It counts as started now, so least would be lost."""
    node = full("n1", a_pod("a").started(None), a_pod("b").started(1))
    assert result(decided(node, ONE, rules=name)) == ("preempt", "n1", ["a"])


@pytest.mark.parametrize("name", GENERATIONS[1:])
def test_a_start_in_the_future_is_later_than_none(name: str) -> None:
    """A clock that runs ahead makes a pod still less important than one without start time."""
    node = full("n1", a_pod("a").started(-10), a_pod("b").started(None))
    assert result(decided(node, ONE, rules=name)) == ("preempt", "n1", ["a"])


@pytest.mark.parametrize("name", GENERATIONS[1:])
def test_a_start_at_this_instant_is_no_start_time(name: str) -> None:
    """Such a pod and one without start time are equal; the last in snapshot order goes."""
    node = full("n1", a_pod("a").started(None), a_pod("b").started(0))
    assert result(decided(node, ONE, rules=name)) == ("preempt", "n1", ["b"])


# 4. priorities


@pytest.mark.parametrize("name", GENERATIONS)
def test_no_priority_is_priority_0(name: str) -> None:
    """A pod without priority preempts one of -1, and is none's victim who has 0."""
    negative = full("n1", a_pod("a").priority(-1)), full("n2", a_pod("b").priority(None))
    assert candidates(decided(*negative, HIGH.priority(None), rules=name)) == {"n1": ["a"]}


@pytest.mark.parametrize("name", GENERATIONS)
def test_equal_priority_is_never_a_victim(name: str) -> None:
    """A node of equals is no candidate."""
    decision = decided(full("n1", a_pod("a").priority(10)), HIGH, rules=name)
    assert result(decision) == ("no-candidate", None, [])


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_victims_own_policy_does_not_protect_it(name: str) -> None:
    """preemptionPolicy Never says what a pod may do, not what may be done to it."""
    decision = decided(full("n1", a_pod("a").never_preempting()), HIGH, rules=name)
    assert result(decision) == ("preempt", "n1", ["a"])


# 7. nominated pods

WAITS = a_pod("waits").priority(20).cpu(1).nominated_to("n1")


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize(
    ("waits", "wanted"),
    [
        (WAITS, ["b", "a"]),
        (WAITS.priority(10), ["b", "a"]),
        (WAITS.priority(9), ["a"]),
        (WAITS.scheduled_by("other"), ["a"]),
        (WAITS.nominated_to("n2"), ["a"]),
        (WAITS.ended(), ["a"]),
        (WAITS.on("n9"), ["a"]),
    ],
    ids=["higher", "equal", "lower", "other-scheduler", "elsewhere", "ended", "placed"],
)
def test_nominated_pods_take_room_in_every_step(
    name: str, waits: PodBuilder, wanted: list[str]
) -> None:
    """Only pods of equal or higher priority count, also while victims are reprieved."""
    node = full("n1", a_pod("a").priority(1), a_pod("b").priority(2))
    assert result(decided(node, waits, ONE, rules=name)) == ("preempt", "n1", wanted)


@pytest.mark.parametrize("name", GENERATIONS)
def test_nominated_pods_keep_a_pod_off_a_node_with_room(name: str) -> None:
    """What is promised to a higher pod is not given away."""
    node = a_node("n1").cpu(2).running(a_pod("a").cpu(1))
    waits = WAITS.nominated_to("n1")
    assert result(decided(node, waits, ONE, rules=name)) == ("preempt", "n1", ["a"])


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_is_filtered_without_the_nominated_pods_too(name: str) -> None:
    """Affinity to a pod that may never arrive is not satisfied by its nomination."""
    node = a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").cpu(1))
    waits = WAITS.labelled(app="web")
    decision = decided(node, waits, ONE.affine_to(WEB), rules=name)
    assert result(decision) == ("no-candidate", None, [])


# 8. inter-pod affinity


def test_a_nominated_pods_anti_affinity_is_not_seen_alone() -> None:
    """The filter is skipped where no running pod's terms matter; beside one it is seen."""
    hostile = WAITS.cpu(0).anti_affine_to(WEB)
    pod = ONE.labelled(app="web")
    node = full("n1", a_pod("a"))
    elsewhere = full("n2", a_pod("b").priority(99).anti_affine_to(WEB))
    alone = decided(node, hostile, pod)
    beside = decided(node, elsewhere, hostile, pod)
    assert (result(alone), result(beside)) == (
        ("preempt", "n1", ["a"]),
        ("no-candidate", None, []),
    )


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_victim_that_the_preemptor_wants_beside_it(name: str) -> None:
    """Without it the node is unresolvable: the preemptor's own affinity is broken."""
    node = full("n1", a_pod("a").labelled(app="web"))
    decision = decided(node, HIGH.affine_to(WEB), rules=name)
    [(code, reason)] = dry_run(decision).values()
    assert (code, reason.startswith("node(s) didn't match pod affinity")) == (
        Code.UNRESOLVABLE,
        True,
    )


# 9. topology spread

SPREAD = TopologySpreadConstraint(topology_key=ZONE, label_selector=selector(app="web"))


@pytest.mark.parametrize("name", GENERATIONS[1:])
def test_terminating_pods_are_not_spread(name: str) -> None:
    """A pod that leaves does not count, so the zone it leaves has room for one more."""
    leaving = a_pod("a").labelled(app="web").terminating()
    nodes = a_node("n1").cpu(1).labelled(zone="a").running(leaving), a_node("n2").labelled(zone="b")
    pod = ONE.labelled(app="web").spread(SPREAD)
    assert result(decided(*nodes, pod, rules=name)) == ("bind", "n1", [])


@pytest.mark.parametrize("name", GENERATIONS[1:])
def test_counts_go_negative_when_an_uncounted_pod_leaves(name: str) -> None:
    """A terminating victim was never counted, but its leaving is, and so `b` may stay."""
    pods = a_pod("a").terminating().labelled(app="web"), a_pod("b").priority(1).labelled(app="web")
    nodes = full("n1", *pods), full("n2", a_pod("c").priority(99))
    decision = decided(*nodes, ONE.labelled(app="web").spread(SPREAD), rules=name)
    assert candidates(decision) == {"n1": ["a"]}


def test_an_empty_selector_counts_nobody() -> None:
    """`{}` selects every pod and counts none."""
    everybody = TopologySpreadConstraint(topology_key=ZONE, label_selector=selector())
    nodes = a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").cpu(1), a_pod("b").cpu(0))
    empty = a_node("n2").labelled(zone="b")
    assert result(decided(nodes, empty, ONE.spread(everybody))) == ("bind", "n1", [])


# 10. namespace selectors


@pytest.mark.parametrize(
    ("operator", "values", "wanted"),
    [
        ("DoesNotExist", None, ["a"]),
        ("NotIn", ["mine"], ["a"]),
        ("In", ["other"], []),
        ("In", ["mine"], ["a"]),
    ],
)
def test_negative_namespace_selectors_match_every_namespace(
    operator: str, values: list[str] | None, wanted: list[str]
) -> None:
    """By a quirk of 1.35 the incoming pod's selectors are asked about no labels as well."""
    requirement = LabelSelectorRequirement(key="team", operator=operator, values=values)
    term = PodAffinityTerm(
        topology_key=HOSTNAME,
        label_selector=selector(app="web"),
        namespace_selector=LabelSelector(match_expressions=[requirement]),
    )
    node = a_node("n1").cpu(2).running(a_pod("a").labelled(app="web").cpu(1))
    decision = decided(node, a_namespace("default", team="mine"), ONE.anti_affine_to(term))
    assert [short(key) for key in decision.effects.evict] == wanted


# 12. invisible pods


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_are_invisible(name: str, phase: str) -> None:
    """They take no room, hold no port, and no affinity sees them."""
    done = a_pod("done").cpu(2).labelled(app="web").host_port(80).anti_affine_to(WEB)
    node = a_node("n1").cpu(2).labelled(zone="a")
    ended = done.on("n1").ended(phase)
    pod = HIGH.labelled(app="web").host_port(80).anti_affine_to(WEB)
    assert result(decided(node, ended, pod, rules=name)) == ("bind", "n1", [])


@pytest.mark.parametrize("name", GENERATIONS)
def test_pods_of_nodes_that_are_gone_are_invisible(name: str) -> None:
    """Nobody counts a pod whose node the cluster does not have."""
    dangling = a_pod("a").labelled(app="web").cpu(9).anti_affine_to(WEB).on("gone")
    node = a_node("n1").cpu(2).labelled(zone="a")
    pod = HIGH.labelled(app="web")
    assert result(decided(node, dangling, pod, rules=name)) == ("bind", "n1", [])


# 14. messages


def test_reasons_are_counted_and_sorted_as_strings() -> None:
    """`10 x` stands before `2 y`; nodes that were not tried say that preemption does not help."""
    cordoned = [a_node(f"c{i:02}").cpu(2).cordoned() for i in range(10)]
    equal = [full(f"n{i}", a_pod(f"p{i}").priority(10)) for i in range(2)]
    decision = decided(*cordoned, *equal, HIGH)
    assert decision.trace.message == (
        "preemption: 0/12 nodes are available: "
        "10 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_the_event_of_a_pod_that_cannot_be_scheduled() -> None:
    """1.35 joins the filters' reasons, a word on claims, and the preemption's message."""
    decision = decided(full("n1", a_pod("a").priority(10)), a_node("n2").cpu(2).tainted("x"), HIGH)
    assert fit_error(decision, nodes=2, claims=True) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). "
        "no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kube-1.20", "node(s) had taint {maint: }, that the pod didn't tolerate"),
        ("kube-1.27", "node(s) had untolerated taint {maint: }"),
        ("kube-1.35", "node(s) had untolerated taint(s)"),
    ],
)
def test_an_empty_taint_value_is_printed(name: str, wanted: str) -> None:
    """The braces stay, with nothing behind the colon."""
    decision = decided(a_node("n1").cpu(2).tainted("maint"), HIGH, rules=name)
    assert decision.trace.filter_statuses["n1"].reasons == (wanted,)


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        (HIGH.never_preempting(), "preemption: not eligible due to preemptionPolicy=Never."),
        (
            HIGH.nominated_to("n1"),
            "preemption: not eligible due to a terminating pod on the nominated node.",
        ),
    ],
)
def test_the_message_of_a_pod_that_may_not_preempt(pod: PodBuilder, wanted: str) -> None:
    """The rule's reason stands behind `preemption: `."""
    node = full("n1", a_pod("a").terminating_by_preemption())
    assert decided(node, pod).trace.message == wanted


def test_a_port_held_twice_is_free_when_the_first_holder_leaves() -> None:
    """The pod that stays holds it in truth, but the scheduler's port table is a set."""
    low = a_pod("low").priority(1).host_port(80)
    keeps = a_pod("keeps").priority(99).host_port(80)
    node = a_node("n1").cpu(4).running(low, keeps)
    decision = decided(node, HIGH.host_port(80))
    assert result(decision) == ("preempt", "n1", ["low"])


def test_a_budget_ranks_but_never_forbids() -> None:
    """Where every candidate violates a budget, one of them is taken all the same."""
    node = full("n1", a_pod("a").labelled(app="web"))
    decision = decided(node, a_pdb("p").selecting(app="web"), HIGH)
    assert [(c.victims, c.pdb_violations) for c in decision.candidates] == [(("default/a",), 1)]


@pytest.mark.parametrize("unit", [2**60, 2**61])
@pytest.mark.parametrize("name", GENERATIONS)
def test_amounts_are_compared_node_by_node(name: str, unit: int) -> None:
    """Requests whose sum over all nodes is beyond 64 bits hide no candidate.

    On every node the large pod goes, and the small one fits beside the preemptor.
    """
    small = unit // 5
    nodes = [
        a_node(f"n{i}")
        .memory(3 * unit // 2)
        .running(
            a_pod(f"large{i}").priority(2).memory(unit),
            a_pod(f"small{i}").priority(1).memory(small),
        )
        for i in range(9)
    ]
    found = decided(*nodes, a_pod("high").priority(10).memory(unit), rules=name)
    assert candidates(found) == {f"n{i}": [f"large{i}"] for i in range(9)}


def test_the_requests_of_victims_add_up_to_no_negative_amount() -> None:
    """Beyond 64 bits they count as the largest number: a ranking by them is not turned round."""
    ranking = [
        {"id": "least-memory", "minimize": "candidate.memoryBytes"},
        {"id": "by-name", "pick": "first-by-name"},
    ]
    rules = RuleSet.load("kube-1.35", overrides={"ranking": ranking})
    unit = 2**62
    nodes = [
        a_node("n1")
        .cpu(2)
        .memory(unit)
        .running(*(a_pod(f"a{i}").cpu(1).memory(unit) for i in "12")),
        a_node("n2").cpu(2).memory(unit).running(*(a_pod(f"b{i}").cpu(1).memory(5) for i in "12")),
    ]
    decision = decided(*nodes, HIGH, rules=rules)
    assert decision.candidates.criteria == ("least-memory",)
    assert [(c.node, *c.values.values()) for c in decision.candidates] == [
        ("n2", 10),
        ("n1", 2**63 - 1),
    ]
