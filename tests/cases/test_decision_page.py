"""What the page of a decision is made of: its node, who was spared, what its rules did."""

from __future__ import annotations

from policy.audit.fired import MarkedRule, marked_rules
from policy.audit.node_change import Fate, changed
from policy.audit.sentences import why_leaves
from policy.audit.spared import reprieved
from policy.cluster.objects import Node, Pod
from policy.decision.model import ObstacleKind, OfferedNode
from policy.decision.record import record_of
from policy.extenders.protocol import uid_of
from policy.preemption.decide import decide
from policy.preemption.obstacles import KeptPods, kept_on
from policy.server.pages.decision_bars import node_bars
from tests.support.builders import a_node, a_pod, objects, rule_set, snapshot

RULES = rule_set("protected")
NODE = (
    a_node("n1")
    .cpu(6)
    .running(
        a_pod("peer").priority(10).cpu(1),
        a_pod("boss").priority(11).cpu(1),
        a_pod("kept").priority(0).cpu(1).labelled(preemption="never"),
        a_pod("big").priority(1).cpu(2).started(30),
        a_pod("small").priority(2).cpu(1).started(30),
    )
)
HIGH = a_pod("high").priority(10).cpu(2)


def test_pods_that_may_not_leave_are_named_with_what_keeps_them() -> None:
    """A rule by its id, a priority as such; potential victims are not among them."""
    assert kept_on(snapshot(NODE, HIGH), RULES, "default/high", "n1") == (
        KeptPods(kind=ObstacleKind.RULE, rule="protected-label", pods=("default/kept",)),
        KeptPods(kind=ObstacleKind.HIGHER_PRIORITY, rule="", pods=("default/boss",)),
        KeptPods(kind=ObstacleKind.SAME_PRIORITY, rule="", pods=("default/peer",)),
    )


def test_a_reprieved_pod_comes_with_the_one_that_leaves_in_its_place() -> None:
    record = record_of(decide(snapshot(NODE, HIGH), RULES, "default/high"))
    assert [(one.pod, one.ahead_of, one.why) for one in reprieved(record)] == [
        ("default/small", "default/big", "tried before default/big by `victim.priority`")
    ]


def test_rules_are_marked_with_what_they_did() -> None:
    """Those that decided, filtered or put a pod ahead; the others are there and say nothing."""
    record = record_of(decide(snapshot(NODE, HIGH), RULES, "default/high"))
    found = marked_rules(RULES, record)
    assert {(one.section, one.rule): one.did for one in found if one.did} == {
        ("eligibility", "otherwise"): "allow",
        ("filters", "resources"): ("fails: 1 node; would fail again with a victim back: 1 victim"),
        ("victims.eligible", "protected-label"): (
            "deny, 1 pod: the pod is labelled preemption=never"
        ),
        ("victims.eligible", "lower-priority"): "allow, 2 pods",
        ("victims.eligible", ""): "deny, 2 pods",
        ("victims.importance", "priority"): "put 1 pod ahead of a victim",
    }
    assert {one.section for one in found if not one.did} >= {"ranking", "scoring", "filters"}
    assert not any(one.section == "settings" for one in found)


def test_a_victim_that_could_have_stayed_is_said_to_be_offered() -> None:
    """No filter of that name exists, and none fails with it put back."""
    big, small = a_pod("big").priority(1).cpu(2), a_pod("small").priority(2).cpu(1)
    there = snapshot(a_node("n1").cpu(3).running(big, small), HIGH)
    rules = rule_set("kube-1.36")
    uids = tuple(uid_of(pod) for _, _, pod in there.in_order() if pod.spec.node_name)
    offer = [OfferedNode(node="n1", victims=uids, pdb_violations=0)]
    record = record_of(decide(there, rules, "default/high", offer=offer))
    assert [(v.pod, why_leaves(v.filter, v.reasons)) for v in record.victims] == [
        ("default/big", "resources: Insufficient cpu"),
        ("default/small", "it was offered; as the recorded state is, it could have stayed"),
    ]
    did = {one.rule: one.did for one in marked_rules(rules, record) if one.section == "filters"}
    assert {rule: told for rule, told in did.items() if told} == {
        "resources": "fails: 1 node; would fail again with a victim back: 1 victim"
    }


def test_rules_that_are_gone_are_those_that_the_record_names() -> None:
    record = record_of(decide(snapshot(NODE, HIGH), RULES, "default/high"))
    assert marked_rules(None, record)[0] == MarkedRule(
        section="eligibility",
        rule="otherwise",
        text="",
        why="",
        did="allow",
        inputs=record.trace.rules[0].inputs,
    )


def test_a_ranking_says_how_many_candidates_it_left() -> None:
    two = [a_node(f"n{i}").cpu(1).running(a_pod(f"low-{i}").priority(i).cpu(1)) for i in (1, 2)]
    pod = a_pod("high").priority(10).cpu(1)
    record = record_of(decide(snapshot(*two, pod), RULES, "default/high"))
    assert [one.did for one in marked_rules(RULES, record) if one.section == "ranking"][:2] == [
        "",
        "left 1 of 2 candidates, decided",
    ]


def a_change():
    """Who is on a node of 4 CPUs, with a pod that is leaving already and one that has ended."""
    found = objects(
        a_node("n1")
        .cpu(4)
        .running(
            a_pod("stays").priority(3).cpu(1),
            a_pod("going").priority(2).cpu(1).terminating(),
            a_pod("victim").priority(1).cpu(2).owned_by("ReplicaSet", "web"),
        ),
        a_pod("done").on("n1").priority(9).cpu(4).ended(),
        a_pod("high").priority(10).cpu(2),
        a_pod("waits").priority(5).cpu(1),
        a_pod("loses").priority(1).cpu(1),
    )
    (node,) = (one for one in found if isinstance(one, Node))
    pods = {one.metadata.name: one for one in found if isinstance(one, Pod)}
    return changed(
        node,
        [pods[name] for name in ("stays", "going", "victim", "done")],
        incoming=pods["high"],
        leaving={"default/victim"},
        nominated=[pods["waits"], pods["loses"], pods["high"]],
        cleared=("default/loses",),
        revision=7,
    )


def test_a_node_before_and_after() -> None:
    """Pods that have ended hold nothing; nominated ones are named and hold nothing yet."""
    change = a_change()
    assert [(one.pod, one.fate, one.owner) for one in change.pods] == [
        ("default/stays", Fate.STAYS, ""),
        ("default/going", Fate.LEAVING, ""),
        ("default/victim", Fate.LEAVES, "ReplicaSet/web"),
        ("default/high", Fate.COMES, ""),
        ("default/waits", Fate.NOMINATED, ""),
        ("default/loses", Fate.LOSES_NOMINATION, ""),
    ]
    assert [
        (change.requested_before(name), change.requested_after(name)) for name in ("cpu", "pods")
    ] == [(4000, 4000), (3, 3)]


def test_bars_show_each_pod_where_it_begins_and_what_is_free() -> None:
    """Both bars of a resource have one scale, also where more is requested than there is."""
    bars = node_bars(a_change())
    cpu = next(one for one in bars.resources if one["name"] == "cpu")
    assert {
        name: [(part["kind"], part["x"], part["width"]) for part in cpu[name]["parts"]]
        for name in ("before", "after")
    } == {
        "before": [("stays", 0, 150), ("leaving", 150, 150), ("leaves", 300, 300)],
        "after": [("stays", 0, 150), ("leaving", 150, 150), ("comes", 300, 300)],
    }
    assert (cpu["before"]["left"], cpu["after"]["left"], cpu["room"]) == ("0 free", "0 free", "4")
    assert [(row["pod"], row["words"]) for row in bars.rows[-2:]] == [
        ("default/waits", "is nominated to the node, and waits for room"),
        ("default/loses", "loses its nomination to the node"),
    ]
