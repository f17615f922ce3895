"""Filters that eviction cannot help: cordons, taints, node affinity, required node names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from policy.cluster.objects import (
    Container,
    ContainerRestartRule,
    LabelSelectorRequirement,
    NodeSelectorTerm,
)
from policy.decision.model import Code, Decision, Outcome
from tests.support.builders import (
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pod,
    decided,
    result,
)

LATER = ("kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = a_pod("high").priority(10)
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def n1() -> NodeBuilder:
    return a_node("n1").cpu(2)


def status(decision: Decision, node: str = "n1") -> tuple[Code, str, tuple[str, ...]]:
    found = decision.trace.filter_statuses[node]
    return found.code, found.filter, found.reasons


def term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=list(values) or None)
    return NodeSelectorTerm(match_expressions=[requirement])


def named(*values: str, operator: str = "In", key: str = "metadata.name") -> NodeSelectorTerm:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=list(values))
    return NodeSelectorTerm(match_fields=[requirement])


# --- cordons and taints ------------------------------------------------------------------------


def test_a_cordoned_node() -> None:
    """It takes no pod, and preemption cannot help."""
    decision = decided(n1().cordoned(), HIGH)
    assert status(decision) == (
        Code.UNRESOLVABLE,
        "node-unschedulable",
        ("node(s) were unschedulable",),
    )


@pytest.mark.parametrize(
    "pod",
    [
        HIGH.tolerating(UNSCHEDULABLE),
        HIGH.tolerating(UNSCHEDULABLE, effect="NoSchedule"),
        HIGH.tolerating(),
        HIGH.tolerating(UNSCHEDULABLE, operator="Equal"),
    ],
    ids=["exists", "effect", "everything", "equal-empty"],
)
def test_a_pod_that_tolerates_the_cordon(pod: PodBuilder) -> None:
    """The cordon counts as a taint without value."""
    assert result(decided(n1().cordoned(), pod)) == ("bind", "n1", [])


@pytest.mark.parametrize(
    ("effect", "outcome"),
    [
        ("NoSchedule", Outcome.NO_CANDIDATE),
        ("NoExecute", Outcome.NO_CANDIDATE),
        ("PreferNoSchedule", Outcome.BIND),
    ],
)
def test_which_taints_keep_pods_off(effect: str, outcome: Outcome) -> None:
    """PreferNoSchedule is no more than a wish."""
    assert decided(n1().tainted("key", "value", effect), HIGH).outcome is outcome


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        (HIGH.tolerating("gpu"), True),
        (HIGH.tolerating("gpu", operator="Equal", value="yes"), True),
        (HIGH.tolerating("gpu", operator="", value="yes"), True),
        (HIGH.tolerating("gpu", operator="Equal", value="no"), False),
        (HIGH.tolerating("gpu", operator="Equal"), False),
        (HIGH.tolerating("other"), False),
        (HIGH.tolerating("gpu", effect="NoExecute"), False),
        (HIGH.tolerating("gpu", effect="NoSchedule"), True),
        (HIGH.tolerating(), True),
        (HIGH.tolerating(effect="NoSchedule"), True),
    ],
)
def test_what_tolerates_a_taint(pod: PodBuilder, fits: bool) -> None:
    """Key, value and effect must agree, as far as the toleration names them."""
    decision = decided(n1().tainted("gpu", "yes"), pod)
    assert (decision.outcome is Outcome.BIND) == fits


@pytest.mark.parametrize(
    ("operator", "value", "taint", "fits"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "950", "950", False),
        ("Gt", "951", "950", False),
        ("Gt", "-5", "-4", True),
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Lt", "5", "15", False),
        ("Lt", "9223372036854775807", "9223372036854775806", True),
        ("Lt", "9223372036854775808", "1", False),
        ("Lt", "5", "", False),
        ("Lt", "5", "low", False),
        ("Lt", "5", "04", False),
        ("Gt", "+1", "5", False),
        ("Gt", "-0", "5", False),
    ],
)
def test_a_toleration_may_compare_numbers(
    operator: str, value: str, taint: str, fits: bool
) -> None:
    """The taint's value with its own; what is no number as people write it is not tolerated."""
    decision = decided(
        n1().tainted("sla", taint), HIGH.tolerating("sla", operator=operator, value=value)
    )
    assert (decision.outcome is Outcome.BIND) == fits


def test_the_first_untolerated_taint_is_told() -> None:
    """The order is that of the node's taints."""
    node = n1().tainted("a").tainted("b", "x").tainted("c")
    decision = decided(node, HIGH.tolerating("a"), rules="kube-1.28")
    assert status(decision)[2] == ("node(s) had untolerated taint {b: x}",)


# --- node affinity -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (term("disk", "In", "ssd", "nvme"), True),
        (term("disk", "In", "hdd"), False),
        (term("disk", "NotIn", "hdd"), True),
        (term("disk", "NotIn", "ssd"), False),
        (term("absent", "NotIn", "x"), True),
        (term("disk", "Exists"), True),
        (term("absent", "Exists"), False),
        (term("absent", "DoesNotExist"), True),
        (term("disk", "DoesNotExist"), False),
        (term("size", "Gt", "2"), True),
        (term("size", "Gt", "3"), False),
        (term("size", "Lt", "4"), True),
        (term("size", "Lt", "3"), False),
        (term("disk", "Gt", "1"), False),
        (term("absent", "Lt", "1"), False),
        (term("size", "Gt", "much"), False),
        (term("size", "Gt", "1", "2"), False),
        (term("disk", "In"), False),
        (term("disk", "Like", "ssd"), False),
        (term("disk", "Exists", "ssd"), False),
        (NodeSelectorTerm(), False),
    ],
)
@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.35"])
def test_operators_of_node_affinity(name: str, wanted: NodeSelectorTerm, fits: bool) -> None:
    """All operators, and terms that are invalid or empty, which match nothing."""
    node = n1().labelled(disk="ssd", size="3")
    decision = decided(node, HIGH.node_terms(wanted), rules=name)
    assert (decision.outcome is Outcome.BIND) == fits


def test_terms_are_alternatives() -> None:
    """One matching term is enough; within a term everything must match."""
    either = HIGH.node_terms(term("disk", "In", "hdd"), term("size", "Exists"))
    both = NodeSelectorTerm(
        match_expressions=[
            *(term("disk", "Exists").match_expressions or ()),
            *(term("size", "DoesNotExist").match_expressions or ()),
        ]
    )
    node = n1().labelled(disk="ssd", size="3")
    outcomes = [decided(node, pod).outcome for pod in (either, HIGH.node_terms(both))]
    assert outcomes == [Outcome.BIND, Outcome.NO_CANDIDATE]


def test_a_node_selector_wants_all_of_its_labels() -> None:
    """One label that differs makes the node unresolvable."""
    decision = decided(n1().labelled(a="1", b="2"), HIGH.node_selector(a="1", b="3"))
    assert status(decision) == (
        Code.UNRESOLVABLE,
        "node-affinity",
        ("node(s) didn't match Pod's node affinity/selector",),
    )


# --- required node names -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kube-1.14", *LATER])
def test_only_named_nodes_take_the_pod(name: str) -> None:
    """`metadata.name In` picks nodes by name in every generation."""
    nodes = a_node("n1"), a_node("n2"), a_node("n3")
    decision = decided(*nodes, HIGH.node_terms(named("n2")), rules=name)
    assert result(decision) == ("bind", "n2", [])


def test_nodes_outside_the_names() -> None:
    """In 1.35 they are unresolvable by no filter in particular."""
    decision = decided(a_node("n1"), a_node("n2").cordoned(), HIGH.node_terms(named("n2")))
    assert status(decision) == (
        Code.UNRESOLVABLE,
        "",
        ("node(s) didn't satisfy plugin(s) [NodeAffinity]",),
    )


def test_a_nominated_node_outside_the_names_is_filtered() -> None:
    """The nominated node is looked at first, before the names narrow the others."""
    pod = HIGH.node_terms(named("n2")).nominated_to("n1")
    decision = decided(a_node("n1"), a_node("n2").cordoned(), pod)
    assert status(decision)[1:] == (
        "node-affinity",
        ("node(s) didn't match Pod's node affinity/selector",),
    )


@pytest.mark.parametrize(
    "terms",
    [
        [named("n1"), term("disk", "Exists")],
        [named("n1", operator="NotIn")],
        [named("n1", key="metadata.uid")],
    ],
    ids=["one-term-names-none", "not-in", "other-field"],
)
def test_terms_that_narrow_nothing(terms: list[NodeSelectorTerm]) -> None:
    """Names narrow only where every term names some; else all nodes are filtered."""
    decision = decided(a_node("n1").cordoned(), a_node("n2").cordoned(), HIGH.node_terms(*terms))
    found = {status(decision, node)[1] for node in ("n1", "n2")}
    assert found == {"node-unschedulable"}


@pytest.mark.parametrize("name", ["kube-1.27", "kube-1.35"])
def test_names_that_contradict_each_other_reject_the_pod(name: str) -> None:
    """A term that wants a node to have two names rejects the pod for all nodes at once."""
    fields = [*(named("n1").match_fields or ()), *(named("n2").match_fields or ())]
    pod = HIGH.node_terms(NodeSelectorTerm(match_fields=fields))
    decision = decided(a_node("n1"), a_node("n2"), pod, rules=name)
    assert (decision.outcome, decision.trace.rejected) == (
        Outcome.REJECTED,
        ("pod affinity terms conflict",),
    )


@pytest.mark.parametrize("name", ["kube-1.14", *LATER])
def test_a_field_with_two_values_matches_nothing(name: str) -> None:
    """The narrowing still reads it, but no node satisfies it."""
    decision = decided(a_node("n1"), a_node("n2"), HIGH.node_terms(named("n1", "n2")), rules=name)
    assert decision.outcome is Outcome.NO_CANDIDATE


@pytest.mark.parametrize("name", ["kube-1.27", "kube-1.28"])
def test_a_name_without_node_ends_the_cycle(name: str) -> None:
    """1.24 to 1.31: an error, and nothing is tried."""
    low = a_pod("low").cpu(2)
    decision = decided(
        n1().running(low), HIGH.cpu(2).node_terms(named("gone"), named("n1")), rules=name
    )
    assert (decision.outcome, decision.trace.message) == (
        Outcome.ERROR,
        'nodeinfo not found for node name "gone"',
    )


def test_the_first_failing_filter_decides() -> None:
    """A node that is cordoned, tainted and full is cordoned."""
    node = n1().running(a_pod("low").cpu(2)).tainted("x").cordoned()
    decision = decided(node, HIGH.cpu(1).node_selector(disk="ssd"))
    assert status(decision)[1] == "node-unschedulable"


# --- features that nodes declare -----------------------------------------------------------------


def declaring(node: NodeBuilder, *features: str) -> NodeBuilder:
    status = replace(node.node.status, declared_features=list(features))
    return NodeBuilder(replace(node.node, status=status), node.pods)


RESTARTING = PodBuilder(
    replace(
        HIGH.pod,
        spec=replace(
            HIGH.pod.spec,
            init_containers=[
                Container(
                    restart_policy_rules=[ContainerRestartRule(action="RestartAllContainers")]
                )
            ],
        ),
    )
)
OWN_USERS = PodBuilder(
    replace(HIGH.pod, spec=replace(HIGH.pod.spec, host_network=True, host_users=False))
)
RESTARTS, USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"


@pytest.mark.parametrize(
    ("pod", "declared", "fits"),
    [
        (HIGH, (), True),
        (RESTARTING, (RESTARTS, "Other"), True),
        (RESTARTING, (USERS,), False),
        (RESTARTING, (), False),
        (OWN_USERS, (USERS,), True),
        (OWN_USERS, (RESTARTS,), False),
    ],
    ids=["nothing", "restarts", "other", "none", "users", "no-users"],
)
def test_features_that_a_node_must_declare(
    pod: PodBuilder, declared: tuple[str, ...], fits: bool
) -> None:
    """From 1.36 on a node without a feature that the pod needs is lost to it for good."""
    expected = (
        (Code.SUCCESS, "", ())
        if fits
        else (
            Code.UNRESOLVABLE,
            "declared-features",
            ("node(s) didn't match Pod's required features",),
        )
    )
    assert status(decided(declaring(n1(), *declared), pod)) == expected


def test_the_nominated_nodes_plugin_is_named_with_the_one_that_left_nodes_out() -> None:
    """Of a node that was not filtered, the text also names what rejects the nominated node."""
    decision = decided(
        n1(), a_node("n2").tainted("x"), HIGH.node_terms(named("n1")).cpu(3).nominated_to("n2")
    )
    other = decided(
        n1(),
        a_node("n2").tainted("x"),
        a_node("n3"),
        HIGH.node_terms(named("n1")).cpu(3).nominated_to("n2"),
    )
    assert (status(decision, "n2")[1], status(other, "n3")[2]) == (
        "taints",
        ("node(s) didn't satisfy plugin(s) [NodeAffinity TaintToleration]",),
    )
