"""Where `groups-safe` differs from kube-scheduler 1.36: one small cluster for each difference."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policy import RuleSet, decide
from policy.cluster.objects import LabelSelector, PodAffinityTerm
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Code, OfferedNode, Status
from policy.extenders.protocol import uid_of
from policy.groups.decide import decide_group
from policy.preemption.denials import denials
from policy.preemption.whole_groups import UNITS
from policy.scheduling.group_effects import changes_of_group
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

KUBE = RuleSet.load("kube-1.36-groups")
SAFE = RuleSet.load("groups-safe")
ALONE = {"groups": {"gates": {"workloadAwarePreemption": False}}}


def snapshot(*found: Any) -> Snapshot:
    return Snapshot.from_objects(objects(*found), now_ms=NOW_MS)


def both(cluster: Snapshot, group: str = "default/train") -> tuple[GroupDecision, GroupDecision]:
    return decide_group(cluster, KUBE, group), decide_group(cluster, SAFE, group)


def nominated(decision: GroupDecision) -> dict[str, str]:
    return dict(decision.effects.nominate)


def member(name: str, cpu: int = 4, priority: int = 50):
    return of_group(a_pod(name).priority(priority).cpu(cpu), "train")


def full(node: str, pod: str, priority: int = 1, minutes: int = 60):
    return a_node(node).cpu(4).running(a_pod(pod).priority(priority).cpu(4).started(minutes))


def test_freed_room_is_promised_to_all_members() -> None:
    """1.36 nominates no member that needed victims: any pod may take the room."""
    cluster = snapshot(
        full("n1", "a"),
        full("n2", "b"),
        member("m0"),
        member("m1"),
        a_group("train", priority=100, least=2),
    )
    kube, safe = both(cluster)
    assert kube.effects.evict == safe.effects.evict
    assert (nominated(kube), nominated(safe)) == (
        {},
        {"default/m0": "n1", "default/m1": "n2"},
    )


def test_a_retry_waits_for_the_first_victims() -> None:
    """A second cycle while the victims leave preempts nothing."""
    cluster = snapshot(full("n1", "a"), member("m0"), a_group("train", priority=100, least=1))
    first = decide_group(cluster, SAFE, "default/train")
    again = decide_group(cluster.apply(changes_of_group(cluster, first)), SAFE, "default/train")
    assert again.preemption is not None
    assert (first.effects.evict, again.effects.evict, again.preemption.message) == (
        ("default/a",),
        (),
        "victims of an earlier preemption still leave the nominated nodes",
    )


def test_a_unit_started_when_its_oldest_pod_did() -> None:
    """Two groups of one size: the one with the oldest pod stays, whichever pod is found first."""

    def unit(name: str, group: str, minutes: int):
        return of_group(a_pod(name).priority(1).cpu(2).started(minutes), group)

    cluster = snapshot(
        a_node("n1").cpu(4).running(unit("a0", "old", 1), unit("b0", "young", 30)),
        a_node("n2").cpu(4).running(unit("a1", "old", 90), unit("b1", "young", 30)),
        member("m0", cpu=2),
        member("m1", cpu=2),
        a_group("old", priority=1, mode="PodGroup"),
        a_group("young", priority=1, mode="PodGroup"),
        a_group("train", priority=100, least=2),
    )
    kube, safe = both(cluster)
    assert (set(kube.effects.evict), set(safe.effects.evict)) == (
        {"default/a0", "default/a1"},
        {"default/b0", "default/b1"},
    )


def test_a_group_does_not_evict_its_own_members() -> None:
    """In 1.36 a running member may be the victim and still count for the quorum."""
    running = of_group(a_pod("m0").priority(1).cpu(4).started(60), "train")
    cluster = snapshot(
        a_node("n1").cpu(4).running(running),
        member("m1"),
        a_group("train", priority=100, least=2),
    )
    kube, safe = both(cluster)
    assert (kube.effects.evict, safe.effects.evict) == (("default/m0",), ())


def test_surplus_members_wait_until_the_quorum_runs() -> None:
    """The quorum is placed and has not started yet: room for a further member is not made."""
    placed = of_group(a_pod("m0").priority(50).cpu(4).on("n1"), "train")
    placed = type(placed)(replace(placed.pod, status=replace(placed.pod.status, phase="Pending")))
    cluster = snapshot(
        a_node("n1").cpu(4),
        placed,
        full("n2", "a"),
        member("m1"),
        a_group("train", priority=100, least=1),
    )
    kube, safe = both(cluster)
    assert safe.preemption is not None
    assert (kube.effects.evict, safe.effects.evict, safe.preemption.message) == (
        ("default/a",),
        (),
        "surplus members wait until the quorum runs",
    )


def test_anti_affinity_between_members_is_seen() -> None:
    """One-sided terms: the first member keeps the second away from its node."""
    term = PodAffinityTerm(
        topology_key="kubernetes.io/hostname", label_selector=None, namespaces=["default"]
    )
    term = replace(term, label_selector=LabelSelector(match_labels={"app": "worker"}))
    lead = of_group(a_pod("lead").priority(60).cpu(1).anti_affine_to(term), "train")
    worker = of_group(a_pod("worker").labelled(app="worker").priority(50).cpu(1), "train")
    cluster = snapshot(a_node("n1").cpu(4), lead, worker, a_group("train", priority=100, least=2))
    kube, safe = both(cluster)
    assert (kube.outcome, safe.outcome) == ("scheduled", "unschedulable")


def test_fewer_victims_than_the_greedy_order_finds() -> None:
    """One large pod of the same priority leaves instead of two small ones that are younger."""
    cluster = snapshot(
        full("n1", "large", minutes=90),
        a_node("n2")
        .cpu(4)
        .running(
            a_pod("s1").priority(1).cpu(2).started(10), a_pod("s2").priority(1).cpu(2).started(10)
        ),
        member("m0"),
        a_group("train", priority=100, least=1),
    )
    kube, safe = both(cluster)
    assert (set(kube.effects.evict), set(safe.effects.evict)) == (
        {"default/s1", "default/s2"},
        {"default/large"},
    )


def test_nothing_is_deleted_where_the_group_does_not_start() -> None:
    """Members that preempt for themselves: victims go only with the quorum."""
    cluster = snapshot(
        full("n1", "a"),
        full("n2", "vip", priority=900),
        member("m0"),
        member("m1"),
        a_group("train", priority=100, least=2),
    )
    kube = decide_group(cluster, RuleSet.load("kube-1.36-groups", overrides=ALONE), "default/train")
    safe = decide_group(cluster, RuleSet.load("groups-safe", overrides=ALONE), "default/train")
    assert (kube.outcome, kube.effects.evict, safe.effects.evict) == (
        "unschedulable",
        ("default/a",),
        (),
    )


def of_unit(name: str) -> PodBuilder:
    return of_group(a_pod(name).priority(1).cpu(4).started(60).labelled(app="unit"), "unit")


def test_a_single_pod_takes_a_group_whole() -> None:
    """Both pods leave for one, and each is recorded with its own node."""
    cluster = snapshot(
        a_node("n1").cpu(4).running(of_unit("u0")),
        a_node("n2").cpu(4).running(of_unit("u1")),
        a_pod("single").priority(50).cpu(4),
        a_group("unit", priority=5, mode="PodGroup"),
    )
    kube, safe = (decide(cluster, rules, "default/single") for rules in (KUBE, SAFE))
    assert (kube.effects.evict, safe.effects.evict, safe.node) == (
        ("default/u0",),
        ("default/u0", "default/u1"),
        "n1",
    )
    assert [(v.pod, v.node) for v in safe.victims] == [("default/u0", "n1"), ("default/u1", "n2")]


def test_a_group_does_not_leave_where_the_pod_would_not_fit_without_it() -> None:
    """The pod wants to run beside the group, in a zone that holds no other pod of it."""
    term = PodAffinityTerm(
        topology_key="zone", label_selector=LabelSelector(match_labels={"app": "unit"})
    )
    cluster = snapshot(
        a_node("n1").cpu(4).labelled(zone="a").running(of_unit("u0")),
        a_node("n2").cpu(4).labelled(zone="a").running(of_unit("u1")),
        a_pod("single").priority(50).cpu(4).affine_to(term),
        a_group("unit", priority=5, mode="PodGroup"),
    )
    decision = decide(cluster, SAFE, "default/single")
    assert (decision.outcome, decision.effects.evict) == ("no-candidate", ())
    assert "with the whole groups of its victims gone" in decision.trace.message


def test_a_member_that_preempts_for_itself_spares_its_own_group() -> None:
    """Groups that do not preempt as one: no member takes the others for itself."""
    cluster = snapshot(
        a_node("n1").cpu(4).running(of_unit("u0")),
        a_node("n2").cpu(4).running(of_unit("u1")),
        of_group(a_pod("u2").priority(50).cpu(4), "unit"),
        a_group("unit", priority=5, mode="PodGroup"),
    )
    rules = RuleSet.load("groups-safe", overrides=ALONE)
    assert decide_group(cluster, rules, "default/unit").effects.evict == ()


def test_an_offer_of_a_part_of_a_group_is_refused() -> None:
    """A scheduler that evicts pod by pod offers one member; the rules want both or none."""
    cluster = snapshot(
        a_node("n1").cpu(8).running(of_unit("u0"), a_pod("lone").priority(1).cpu(4)),
        a_node("n2").cpu(4).running(of_unit("u1")),
        a_pod("single").priority(50).cpu(4),
        a_group("unit", priority=5, mode="PodGroup"),
    )
    offer = [
        OfferedNode(node="n1", victims=(_uid(cluster, "default/lone"),), pdb_violations=0),
        OfferedNode(node="n2", victims=(_uid(cluster, "default/u1"),), pdb_violations=0),
    ]
    decision = decide(cluster, SAFE, "default/single", offer=offer)
    assert (decision.node, decision.effects.evict) == ("n1", ("default/lone",))
    statuses = decision.trace.dry_run_statuses
    assert statuses.get("n2") == Status(
        code=Code.UNRESOLVABLE,
        filter="",
        reasons=("the victims are a part of pod group default/unit, which leaves as a whole",),
    )


def _uid(cluster: Snapshot, key: str) -> str:
    pod = cluster.pod(key)
    assert pod is not None
    return uid_of(pod)


@pytest.mark.parametrize(
    ("ordinary", "kept"),
    [
        ("whole", "its pod group leaves as a whole or not at all, and may not leave"),
        ("none", "its pod group leaves as a whole, and not for a single pod"),
    ],
)
def test_what_keeps_a_group_in_place_is_said(ordinary: str, kept: str) -> None:
    """The rules that fired, the obstacle, and who may not leave name the group."""
    cluster = snapshot(
        a_node("n1").cpu(4).running(of_unit("u0")),
        a_node("n2").cpu(4).running(of_unit("u1")),
        a_pod("single").priority(50).cpu(4),
        a_group("unit", priority=500, mode="PodGroup"),
    )
    rules = RuleSet.load("groups-safe", overrides={"groups": {"units": {"ordinary": ordinary}}})
    trace = decide(cluster, rules, "default/single").trace
    fired = [(r.section, r.reason, dict(r.inputs)) for r in trace.rules if r.section == UNITS]
    assert fired == [(UNITS, kept, {"pods": 2})]
    assert [(o.kind, o.pods) for o in trace.obstacles] == [("pod-group", ("default/u0",))]
    assert {key: d.reason for key, d in denials(cluster, rules, "default/single").items()} == {
        "default/u0": kept,
        "default/u1": kept,
    }


def test_what_equal_pods_share_follows_a_group_that_grows() -> None:
    """`ordinary: none`: a second member elsewhere protects the first, on a node left as it was."""
    rules = RuleSet.load("groups-safe", overrides={"groups": {"units": {"ordinary": "none"}}})
    second = of_group(a_pod("u1").priority(1).cpu(1), "unit")
    cluster = snapshot(
        a_node("n1").cpu(4).running(of_unit("u0")),
        a_node("n2").cpu(1),
        second,
        a_pod("single").priority(50).cpu(4),
        a_group("unit", priority=5, mode="PodGroup"),
    )
    before = decide(cluster, rules, "default/single", by_class=True)
    pod = second.pod
    running = replace(pod, spec=replace(pod.spec, node_name="n2"))
    grown = cluster.apply([("Pod", "default/u1", running)])
    shared = decide(grown, rules, "default/single", by_class=True)
    assert (before.effects.evict, shared.effects.evict) == (("default/u0",), ())
    assert shared.digest == decide(grown, rules, "default/single").digest


def test_a_single_pod_takes_nothing_of_a_group_that_outranks_it() -> None:
    """An ordinary pod takes a pod of another unit, not one member of a group that leaves as one."""

    cluster = snapshot(
        a_node("n1").cpu(4).running(of_unit("u0")),
        a_node("n2").cpu(4).running(of_unit("u1")),
        full("n3", "other", priority=5),
        a_pod("single").priority(50).cpu(4),
        a_group("unit", priority=500, mode="PodGroup"),
    )
    found = [decide(cluster, rules, "default/single").effects.evict for rules in (KUBE, SAFE)]
    assert found == [("default/u0",), ("default/other",)]


def test_1_37_promises_room_and_says_how_many_leave() -> None:
    """`kube-1.37-groups`, from the development branch: fixed nodes, all placed are nominated."""
    cluster = snapshot(full("n1", "a"), member("m0"), a_group("train", priority=100, least=1))
    decision = decide_group(cluster, RuleSet.load("kube-1.37-groups"), "default/train")
    assert (nominated(decision), decision.message) == (
        {"default/m0": "n1"},
        "pod group is unschedulable, found a placement for podgroup, preempting 1 victims",
    )


@pytest.mark.parametrize("name", ["kube-1.36-groups", "groups-safe", "kube-1.37-groups"])
def test_shipped_rules_for_groups_read_back(name: str) -> None:
    rules = RuleSet.load(name)
    again = RuleSet.from_canonical(rules.canonical)
    assert (again.digest, again.groups) == (rules.digest, rules.groups)
