"""Group cycles where the recordings have no example: what kube-scheduler 1.36's source says.

Gates, errors, conditions and empty clusters; one small cluster each.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from policy import RuleSet, Snapshot
from policy.cluster.objects import (
    GroupCondition,
    SchedulingGate,
    SchedulingPodGroup,
    SchedulingPodGroupStatus,
)
from policy.decision.groups import GroupDecision
from policy.groups.decide import decide_group
from tests.support.builders import PodBuilder, a_node, a_pod, snapshot
from tests.support.groups import a_group, of_group

KUBE = RuleSet.load("kube-1.36-groups")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
TRAIN = "default/train"
FAILED = "pod group is unschedulable, No preemption victims found for incoming preemptor"


def decided(*found: Any, rules: RuleSet = KUBE, group: str = TRAIN) -> GroupDecision:
    return decide_group(snapshot(*found), rules, group)


def member(name: str, cpu: int = 1, priority: int = 50) -> PodBuilder:
    return of_group(a_pod(name).priority(priority).cpu(cpu), "train")


def waiting_for(pod: PodBuilder, *gates: str) -> PodBuilder:
    held = [SchedulingGate(name=name) for name in gates]
    return PodBuilder(replace(pod.pod, spec=replace(pod.pod.spec, scheduling_gates=held)))


def gated(decision: GroupDecision) -> dict[str, tuple[str, str]]:
    return {one.pod: (one.plugin, one.message) for one in decision.gated}


def test_a_member_behind_scheduling_gates_stays_behind() -> None:
    """It counts for the gate of the gang and not for the quorum; the others are tried."""
    decision = decided(
        a_node("n1").cpu(4),
        member("m0"),
        waiting_for(member("m1"), "example.com/a", "example.com/b"),
        a_group("train", priority=100, least=2),
    )
    text = "waiting for scheduling gates: [example.com/a example.com/b]"
    assert (decision.outcome, gated(decision), [m.pod for m in decision.members]) == (
        "unschedulable",
        {"default/m1": ("SchedulingGates", text)},
        ["default/m0"],
    )


def test_ended_members_count_for_nothing() -> None:
    """Of three members two have ended: a gang of two waits for another pod."""
    decision = decided(
        a_node("n1").cpu(4),
        member("m0"),
        member("m1").on("n1").ended("Succeeded"),
        member("m2").on("n1").ended("Failed"),
        a_group("train", priority=100, least=2),
    )
    text = "waiting for minCount pods from a gang to appear in scheduling queue"
    assert (decision.outcome, gated(decision), decision.assigned) == (
        "not-tried",
        {"default/m0": ("GangScheduling", text)},
        0,
    )


def test_a_pending_member_that_is_deleted_is_dropped() -> None:
    """It counted for the gate, is not tried, and the quorum is not met without it."""
    decision = decided(
        a_node("n1").cpu(4),
        member("m0"),
        member("m1").terminating(),
        a_group("train", priority=100, least=2),
    )
    assert (decision.outcome, [m.pod for m in decision.members]) == (
        "unschedulable",
        ["default/m0"],
    )


def test_a_leaving_member_on_a_node_counts_for_the_quorum() -> None:
    decision = decided(
        a_node("n1").cpu(4).running(member("m0").terminating()),
        member("m1"),
        a_group("train", priority=100, least=2),
    )
    assert (decision.outcome, decision.effects.bind) == ("scheduled", {"default/m1": "n1"})


def test_members_of_another_namespace_are_another_group() -> None:
    decision = decided(
        a_node("n1").cpu(4),
        member("m0"),
        member("m1").in_namespace("other"),
        a_group("train", priority=100, least=2),
        a_group("train", priority=100, least=1, namespace="other"),
    )
    assert decision.outcome == "not-tried"


def test_members_name_one_scheduler() -> None:
    """Otherwise all of them fail, and lose their nominations."""
    decision = decided(
        a_node("n1").cpu(4),
        member("m0").scheduled_by("one").nominated_to("n1"),
        member("m1").scheduled_by("two"),
        a_group("train", priority=100, least=1),
    )
    text = (
        "all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "one" and "two"'
    )
    assert [(m.reason, m.message) for m in decision.members] == [("SchedulerError", text)] * 2
    assert (decision.outcome, decision.effects.nominate) == ("error", {"default/m0": ""})


def test_without_nodes_no_member_is_placed() -> None:
    """Each says so and loses its nomination; there is no unit to preempt."""
    decision = decided(member("m0").nominated_to("gone"), a_group("train", priority=100, least=1))
    assert (decision.outcome, decision.message) == ("unschedulable", FAILED)
    assert [(m.reason, m.message) for m in decision.members] == [
        ("Unschedulable", "no nodes available to schedule pods")
    ]
    assert decision.effects.nominate == {"default/m0": ""}


def test_preemption_needs_the_group_itself() -> None:
    """Without the gate of gangs nothing waits for a group that does not exist."""
    rules = RuleSet.load(
        "kube-1.36-groups", overrides={"groups": {"gates": {"gangScheduling": False}}}
    )
    decision = decided(a_node("n1").cpu(1), member("m0", cpu=2), rules=rules)
    text = 'failed to get pod group object: podgroup.scheduling.k8s.io "train" not found'
    assert (decision.outcome, decision.message, decision.effects.condition) == (
        "error",
        text,
        None,
    )


def with_condition(
    group: SchedulingPodGroup, status: str, reason: str, message: str, generation: int
) -> SchedulingPodGroup:
    condition = GroupCondition(
        type="PodGroupScheduled",
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
    )
    return replace(group, status=SchedulingPodGroupStatus(conditions=[condition]))


@pytest.mark.parametrize(
    ("cpu", "status", "reason", "message", "generation", "written"),
    [
        pytest.param(1, "True", "Scheduled", "", 1, None, id="the same"),
        pytest.param(1, "True", "Scheduled", "", 0, "True", id="of an older generation"),
        pytest.param(1, "False", "Unschedulable", "x", 1, "True", id="it starts"),
        pytest.param(9, "True", "Scheduled", "", 0, None, id="never set back"),
        pytest.param(9, "False", "Unschedulable", FAILED, 1, None, id="fails again"),
        pytest.param(9, "False", "Unschedulable", FAILED, 0, "False", id="fails in a new shape"),
        pytest.param(9, "False", "SchedulerError", FAILED, 1, "False", id="another reason"),
    ],
)
def test_the_condition_is_written_where_it_changes(
    cpu: int, status: str, reason: str, message: str, generation: int, written: str | None
) -> None:
    """Status, reason, message or observed generation; True is never set back to False."""
    group = a_group("train", priority=100, least=1)
    found = with_condition(group, status, reason, message, generation)
    change = decided(a_node("n1").cpu(4), member("m0", cpu=cpu), found).effects.condition
    assert (None if change is None else change.status) == written


def test_absent_priority_is_zero() -> None:
    """A group without priority preempts pods of negative priority, and no others."""
    low = a_pod("low").priority(-1).cpu(4)
    zero = a_pod("zero").priority(0).cpu(4)
    group = a_group("train", least=1)
    group = replace(group, spec=replace(group.spec, priority=None))
    decision = decided(
        a_node("n1").cpu(4).running(low), a_node("n2").cpu(4).running(zero), member("m0", 4), group
    )
    assert decision.effects.evict == ("default/low",)


def test_an_unknown_disruption_mode_is_that_of_pods() -> None:
    """Only the exact word makes the pods leave together."""

    def unit(name: str, node: str) -> PodBuilder:
        return of_group(a_pod(name).priority(1).cpu(4).on(node), "unit")

    decision = decided(
        a_node("n1").cpu(4),
        a_node("n2").cpu(4),
        unit("u0", "n1"),
        unit("u1", "n2"),
        member("m0", 4),
        a_group("unit", priority=500, mode="podgroup"),
        a_group("train", priority=100, least=1),
    )
    assert len(decision.effects.evict) == 1


def _manifests(claim_on: str) -> list[dict[str, Any]]:
    """Two nodes, of which one has devices; a group of two, one of which claims them."""
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": [claim_on]}]}]
    allocation = {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}} if claim_on else {}

    def node(name: str, **labels: str) -> dict[str, Any]:
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        }

    def pod(name: str, **spec: Any) -> dict[str, Any]:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        group = {"podGroupName": "train"}
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "spec": {"priority": 50, "containers": [container], "schedulingGroup": group, **spec},
        }

    return [
        node("n1"),
        node("n2", gpu="yes"),
        pod("m0", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
        pod("m1"),
        {
            "kind": "ResourceClaim",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": {"name": "mine", "namespace": "default"},
            "status": allocation,
        },
        {
            "kind": "PodGroup",
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "metadata": {"name": "train"},
            "spec": {"priority": 100, "schedulingPolicy": {"gang": {"minCount": 2}}},
        },
    ]


def test_a_member_goes_where_its_devices_are() -> None:
    cluster = Snapshot.from_manifests(_manifests("yes"), now=NOW)
    decision = decide_group(cluster, KUBE, TRAIN)
    assert decision.effects.bind == {"default/m0": "n2", "default/m1": "n1"}


def test_devices_that_are_not_allocated_leave_the_group_undecided() -> None:
    """The member says so in its own words, the others that another one failed."""
    cluster = Snapshot.from_manifests(_manifests(""), now=NOW)
    decision = decide_group(cluster, KUBE, TRAIN)
    own = (
        "cannot be decided: ResourceClaim `default/mine` is not allocated, and devices are not "
        "modelled"
    )
    others = f"failed to schedule other pod from a pod group: {own}"
    assert (decision.outcome, [m.message for m in decision.members]) == ("error", [own, others])
    assert (decision.effects.bind, decision.effects.evict) == ({}, ())
