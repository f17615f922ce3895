"""Extenders are asked over real HTTP when and how kube-scheduler asks them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policy import Snapshot
from policy.preemption.decide import DecisionError, decide
from tests.support.extenders import (
    FULL,
    NOW,
    ROOMY,
    Manifest,
    Server,
    broken,
    decided,
    extender,
    json_reply,
    keeping,
    passing,
    pod,
    rules_with,
)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


# --- when who is asked what ----------------------------------------------------------------------


def test_filter_is_asked_only_where_a_node_passed(server: Server):
    """A pod that fits nowhere leads to a preempt question without any filter question."""
    server.verbs = {"filter": broken, "prioritize": broken, "preempt": keeping(n2=["b"])}
    rules = rules_with(extender(server, "filter", "prioritize", "preempt", weight=1))
    assert (decided(rules, *FULL).node, server.verbs_asked) == ("n2", ["preempt"])


def test_prioritize_is_asked_with_two_nodes_left_and_not_with_one(server: Server):
    """What filter leaves decides whether there is anything left to prioritize."""
    server.verbs["prioritize"] = lambda _: json_reply([])
    rules = rules_with(extender(server, "filter", "prioritize", weight=1))
    found = []
    for left in (["n2"], ["n2", "n3"]):
        server.asked.clear()
        server.verbs["filter"] = passing(*left)
        found.append((decided(rules, *ROOMY).node, server.verbs_asked))
    assert found == [("n2", ["filter"]), ("n2", ["filter", "prioritize"])]


def test_priorities_count_ten_times_their_weight(server: Server):
    """Scores up to 10 are brought to 100 and weighed; the trace holds the chosen node's."""
    scores = [{"Host": "n3", "Score": 7}, {"Host": "n2", "Score": 2}, {"Host": "gone", "Score": 9}]
    server.verbs["prioritize"] = lambda _: json_reply(scores)
    decision = decided(rules_with(extender(server, "prioritize", weight=3)), *ROOMY)
    name = f"extender {server.url}/"
    assert (decision.node, decision.trace.scores[-1]) == ("n3", (name, 3, 70))


def test_the_weight_of_an_extender_decides_how_much_its_scores_count(server: Server):
    """One point of ten for the fuller node outweighs its lower own score only with weight."""
    server.verbs["prioritize"] = lambda _: json_reply([{"Host": "n3", "Score": 1}])
    objects = (*ROOMY, pod("a", on="n3", cpu="2"))
    found = [
        decided(rules_with(extender(server, "prioritize", weight=weight)), *objects).node
        for weight in (1, 9)
    ]
    assert found == ["n1", "n3"]


def test_a_failure_of_prioritize_never_matters(server: Server):
    """The scheduler's own scores decide alone."""
    server.verbs["prioritize"] = broken
    decision = decided(rules_with(extender(server, "prioritize", weight=9)), *ROOMY)
    assert (decision.outcome.value, decision.node) == ("bind", "n1")


def test_a_nominated_node_is_asked_about_alone_and_first(server: Server):
    """Where the extender leaves it, no other node is asked about; where not, all are."""
    waiting = pod("new")
    waiting["status"]["nominatedNodeName"] = "n2"
    objects = (*ROOMY[:3], waiting)
    rules = rules_with(extender(server, "filter"))
    found = []
    for refused in ("n1", "n2"):
        server.asked.clear()
        server.verbs["filter"] = lambda request, refused=refused: json_reply(
            {"NodeNames": [n for n in request["NodeNames"] if n != refused]}
        )
        decision = decided(rules, *objects)
        found.append((decision.node, [request["NodeNames"] for _, request in server.asked]))
    assert found == [("n2", [["n2"]]), ("n1", [["n2"], ["n1", "n2", "n3"]])]


def test_extenders_are_asked_in_order_each_with_what_the_former_left(server: Server):
    """The second extender sees the first one's nodes, and its candidates."""
    other = Server()
    try:
        server.verbs = {"filter": passing("n2", "n3"), "preempt": keeping(n1=["a"])}
        other.verbs = {"filter": passing("n3"), "preempt": keeping(n1=["a"])}
        verbs = ("filter", "preempt")
        rules = rules_with(extender(server, *verbs), extender(other, *verbs))
        nodes = [decided(rules, *ROOMY).node, decided(rules, *FULL).node]
        asked = [other.asked[0][1]["NodeNames"], list(other.asked[1][1]["NodeNameToMetaVictims"])]
    finally:
        other.close()
    assert (nodes, asked) == (["n3", "n1"], [["n2", "n3"], ["n1"]])


def test_an_extender_is_not_asked_about_pods_without_its_resources(server: Server):
    """managedResources: requests and limits of containers, also of init containers."""
    limited = pod("new")
    limited["spec"]["initContainers"] = [
        {"name": "first", "resources": {"limits": {"example.com/gpu": "0"}}}
    ]
    server.verbs["filter"] = passing("n2")
    managed = [{"name": "example.com/gpu"}]
    rules = rules_with(extender(server, "filter", managedResources=managed))
    nodes = [decided(rules, *ROOMY[:3], new).node for new in (pod("new"), limited)]
    assert (nodes, server.verbs_asked) == (["n1", "n2"], ["filter"])


def test_a_resource_may_be_left_to_its_extender(server: Server):
    """ignoredByScheduler: the node lists no such resource, and the pod fits all the same."""
    server.verbs["filter"] = passing("n2")
    found = []
    for ignored in (False, True):
        managed = [{"name": "example.com/gpu", "ignoredByScheduler": ignored}]
        rules = rules_with(extender(server, "filter", managedResources=managed))
        new = pod("new", **{"example.com_gpu": "1"})
        found.append(decided(rules, *ROOMY[:3], new).node)
    assert found == [None, "n2"]


def test_without_verbs_nobody_is_asked(server: Server):
    """An extender that only binds has no say in where."""
    decision = decided(rules_with(extender(server)), *ROOMY)
    assert (decision.node, decision.trace.extender_calls, server.asked) == ("n1", (), [])


# --- the request ---------------------------------------------------------------------------------


def test_full_form_holds_the_objects_and_null_for_the_other_form(server: Server):
    """Without a node cache the extender gets nodes and pods, keys named as in Go."""
    server.verbs = {"filter": passing(), "preempt": keeping(n1=["a"])}
    rules = rules_with(extender(server, "filter", "preempt", nodeCacheCapable=False))
    decided(rules, *ROOMY)
    decided(rules, *FULL)
    (_, filtering), (_, preempting) = server.asked
    assert (
        list(filtering),
        [n["metadata"]["name"] for n in filtering["Nodes"]["items"]],
        filtering["NodeNames"],
        filtering["Pod"]["metadata"]["name"],
        {n: v["Pods"][0]["spec"]["priority"] for n, v in preempting["NodeNameToVictims"].items()},
        preempting["NodeNameToMetaVictims"],
        server.headers[0]["Content-Type"],
    ) == (
        ["NodeNames", "Nodes", "Pod"],
        ["n1", "n2", "n3"],
        None,
        "new",
        {"n1": 1, "n2": 2},
        None,
        "application/json",
    )


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_filter_ends_the_cycle_unless_it_may_be_ignored(server: Server):
    """Otherwise nothing is tried, and the pod keeps waiting with the extender's words."""
    server.verbs["filter"] = lambda _: json_reply({"NodeNames": ["n2"], "Error": "cannot decide"})
    found = []
    for ignorable in (False, True):
        rules = rules_with(extender(server, "filter", ignorable=ignorable))
        decision = decided(rules, *ROOMY)
        found.append((decision.outcome.value, decision.node, decision.trace.message))
    assert found == [("error", None, "cannot decide"), ("bind", "n1", "")]


def test_a_failed_preempt_ends_the_preemption_unless_it_may_be_ignored(server: Server):
    """An ignorable extender leaves the candidates as they were."""
    server.verbs["preempt"] = keeping(n2=["stranger"])
    found = []
    for ignorable in (False, True):
        rules = rules_with(extender(server, "preempt", ignorable=ignorable))
        decision = decided(rules, *FULL)
        found.append((decision.outcome.value, decision.node, decision.trace.message))
    text = (
        f"preemption: extender: {server.url}/ claims to preempt pod (UID: &{{uid-stranger}}) on "
        "node: n2, but the pod is not found on that node"
    )
    assert found == [("error", None, text), ("preempt", "n1", "")]


@pytest.mark.parametrize(
    ("answer", "node"),
    [
        ({"n1": {"Pods": []}, "n2": {"Pods": [{"UID": "uid-b"}]}}, "n2"),
        ({"n1": None, "n2": {"Pods": [{"UID": "uid-b"}]}}, "n2"),
        ({"n1": {"Pods": []}, "n2": None}, None),
    ],
)
def test_an_ignorable_extender_loses_only_the_nodes_without_victims(
    server: Server, answer: Manifest, node: str | None
):
    """Nodes without victims are dropped; a null entry, which crashes the original, is one."""
    server.verbs["preempt"] = lambda _: json_reply({"NodeNameToMetaVictims": answer})
    rules = rules_with(extender(server, "preempt", ignorable=True))
    assert decided(rules, *FULL).node == node


def test_a_nomination_stays_where_an_extender_leaves_no_candidate(server: Server):
    """The dry run found candidates, so the pod's nomination is not taken away."""
    waiting = pod("new", cpu="4", priority=10)
    waiting["status"]["nominatedNodeName"] = "n1"
    server.verbs["preempt"] = keeping()
    decision = decided(rules_with(extender(server, "preempt")), *FULL[:4], waiting)
    assert (decision.outcome.value, decision.effects.nomination.value, decision.trace.message) == (
        "no-candidate",
        "leave",
        "preemption: no candidate node for preemption",
    )


def test_a_pod_that_only_the_extender_wants_to_leave_says_so(server: Server):
    """Added victims are evicted, and told apart from those that no filter let come back."""
    small = pod("small", on="n1", cpu="0", priority=50)
    server.verbs["preempt"] = keeping(n1=["a", "small"])
    decision = decided(rules_with(extender(server, "preempt")), *FULL, small)
    assert [(v.pod, v.filter) for v in decision.victims] == [
        ("shop/a", "resources"),
        ("shop/small", "extender"),
    ]


@pytest.mark.parametrize(
    ("settings", "sent", "chosen"),
    [({}, 1, "n2"), ({"answeredViolations": "forgotten"}, 0, "n1")],
)
def test_violated_budgets_of_an_answer_count_from_1_24_on(
    server: Server, settings: dict[str, str], sent: int, chosen: str
):
    """Before, the short form had none, and those of an answer were forgotten."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 0},
    }
    labelled = {**FULL[2], "metadata": {**FULL[2]["metadata"], "labels": {"app": "a"}}}
    server.verbs["preempt"] = lambda request: json_reply(
        {"NodeNameToMetaVictims": request["NodeNameToMetaVictims"]}
    )
    rules = rules_with(extender(server, "preempt", **settings))
    decision = decided(rules, *FULL[:2], labelled, *FULL[3:], budget)
    ((_, request),) = server.asked
    offered = request["NodeNameToMetaVictims"]["n1"]["NumPDBViolations"]
    assert (offered, decision.node) == (sent, chosen)


@pytest.mark.parametrize(
    ("base", "unmentioned", "dry_run"),
    [("kube-1.35", "unresolvable", ["n1"]), ("kube-1.28", "without-status", ["n1", "n3"])],
)
def test_failed_nodes_are_dry_run_unresolvable_ones_are_not(
    server: Server, base: str, unmentioned: str, dry_run: list[str]
):
    """FailedAndUnresolvableNodes wins; a node left out without a word is dry-run up to 1.31."""
    server.verbs["filter"] = passing(
        FailedNodes={"n1": "busy", "n2": "busy"}, FailedAndUnresolvableNodes={"n2": "never"}
    )
    asked = extender(server, "filter", unmentionedNodes=unmentioned)
    decision = decided(rules_with(asked, base=base), *ROOMY)
    statuses = decision.trace.filter_statuses
    assert (
        list(decision.trace.potential_nodes),
        statuses["n1"].reasons,
        statuses["n2"].reasons,
    ) == (
        dry_run,
        ("busy",),
        ("never",),
    )


def test_a_later_extenders_word_about_a_node_counts(server: Server):
    """The second extender takes back, or takes away, the hope that the first one left."""
    other = Server()
    try:
        server.verbs["filter"] = passing(
            "n3", FailedNodes={"n1": "busy"}, FailedAndUnresolvableNodes={"n2": "never"}
        )
        other.verbs["filter"] = passing(
            FailedNodes={"n2": "later"}, FailedAndUnresolvableNodes={"n1": "gone", "n3": "gone"}
        )
        decision = decided(
            rules_with(extender(server, "filter"), extender(other, "filter")), *ROOMY
        )
    finally:
        other.close()
    statuses = {n: (s.code.label, s.reasons) for n, s in decision.trace.filter_statuses.items()}
    assert statuses == {
        "n1": ("UnschedulableAndUnresolvable", ("gone",)),
        "n2": ("Unschedulable", ("later",)),
        "n3": ("UnschedulableAndUnresolvable", ("gone",)),
    }


def test_a_filter_may_leave_only_nodes_that_it_was_asked_about(server: Server):
    """A name that was not in the request is a failure of the call."""
    server.verbs["filter"] = passing("n1", "elsewhere")
    decision = decided(rules_with(extender(server, "filter")), *ROOMY)
    assert (decision.outcome.value, decision.trace.message) == (
        "error",
        f'extender "{server.url}/" claims a filtered node "elsewhere" which is not found in the '
        "input node list",
    )


def test_extenders_must_be_answered_for(server: Server):
    """A rule set that names extenders is not decided as if they agreed."""
    snapshot = Snapshot.from_manifests(ROOMY, now=NOW)
    with pytest.raises(DecisionError, match="none are given"):
        decide(snapshot, rules_with(extender(server, "filter")), "shop/new")
