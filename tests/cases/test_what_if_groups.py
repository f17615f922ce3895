"""What-if with pod groups: the cycle, what follows, and groups that are supposed otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest

from policy.audit.cascade import foresee
from policy.audit.supposed_groups import GroupChange
from policy.audit.what_if import Supposition, WhatIfError, suppose
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import DecisionError
from policy.rules import RuleSet
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

KUBE = RuleSet.load("kube-1.36-groups")


def snapshot(*parts: Any) -> Snapshot:
    return Snapshot.from_objects(objects(*parts), now_ms=NOW_MS)


def member(name: str) -> Any:
    return of_group(a_pod(name).priority(500).cpu(4), "train")


def full(node: str, pod: str, priority: int = 1) -> Any:
    low = a_pod(pod).priority(priority).cpu(4).started(60).owned_by("ReplicaSet", pod)
    return a_node(node).cpu(4).running(low)


TWO = (full("n1", "a"), full("n2", "b", 300), member("m0"), member("m1"))


def foreseen(cluster: Snapshot, *pods: str, depth: int = 3, **supposed: Any) -> list[Any]:
    """Each step as (pod or group, cause, outcome, victims)."""
    found = suppose(cluster, Supposition(**supposed))
    steps = foresee(found.snapshot, KUBE, [*pods, *found.waiting], depth=depth, seed=0)
    return [
        (
            step.pod.removeprefix("default/"),
            step.cause,
            None if step.decision is None else step.decision.outcome.value,
            [] if step.decision is None else [v.pod for v in step.decision.victims],
        )
        for step in steps
    ]


def test_a_group_is_tried_again_when_its_victims_are_gone() -> None:
    """Both members are named, one cycle is made; the victim comes back and finds no room."""
    cluster = snapshot(
        full("n1", "a"),
        full("n2", "b", 2),
        member("m0"),
        member("m1"),
        a_group("train", priority=100, least=2),
    )
    assert foreseen(cluster, "default/m0", "default/m1") == [
        ("train", None, "preempting", ["default/b", "default/a"]),
        ("train", 1, "scheduled", []),
        ("b~2", 1, "no-candidate", []),
        ("a~2", 1, "no-candidate", []),
    ]


@pytest.mark.parametrize(
    ("change", "outcomes"),
    [
        ("train:priority=100", ["unschedulable"]),
        ("train:minCount=1", ["preempting", "scheduled", "no-candidate"]),
        (
            "default/train:priority=1000",
            ["preempting", "scheduled", "no-candidate", "no-candidate"],
        ),
        ("train:minCount=3", ["not-tried"]),
    ],
)
def test_another_min_count_or_priority(change: str, outcomes: list[str]) -> None:
    """The members of the group that is supposed otherwise are what is asked about."""
    cluster = snapshot(*TWO, a_group("train", priority=100, least=2))
    found = foreseen(cluster, group_changes=[GroupChange.parse(change)])
    assert [outcome for _, _, outcome, _ in found] == outcomes


def test_another_disruption_mode() -> None:
    """As one unit, the running group leaves whole."""

    def of_unit(name: str, node: str) -> Any:
        return a_node(node).cpu(4).running(of_group(a_pod(name).priority(1).cpu(4), "unit"))

    cluster = snapshot(
        of_unit("u0", "n1"),
        of_unit("u1", "n2"),
        member("m0"),
        a_group("train", priority=100, least=1),
        a_group("unit", priority=1),
    )
    change = GroupChange.parse("unit:disruptionMode=PodGroup")
    alone = foreseen(cluster, "default/m0", depth=1)[0]
    whole = foreseen(cluster, "default/m0", depth=1, group_changes=[change])[0]
    assert (alone[3], whole[3]) == (["default/u1"], ["default/u0", "default/u1"])


def test_a_class_moves_the_priority_of_its_groups() -> None:
    """A group of the class outranks what it did not outrank before."""
    group = a_group("train", priority=100, least=2, priority_class_name="train")
    found = foreseen(snapshot(*TWO, group), "default/m0", priority_classes={"train": 900})
    assert found[0][2] == "preempting"


def test_a_new_group_with_its_pods() -> None:
    """Neither the pods nor the group that they name exist yet."""
    cluster = snapshot(a_node("n1").cpu(8))
    group = a_group("train", priority=100, least=2)
    pods = [member("m0").pod, member("m1").pod]
    assert foreseen(cluster, pods=pods, groups=[group]) == [("train", None, "scheduled", [])]
    with pytest.raises(WhatIfError, match="the cluster has a pod group `default/train`"):
        suppose(snapshot(group), Supposition(groups=[group]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train", "`train` is not like `NAMESPACE/NAME:minCount=2`"),
        ("train:size=2", "`size` of a pod group: one of minCount, priority, disruptionMode, "),
        ("train:minCount=0", "`0` as minCount: a number from 1 to 2147483647"),
        ("train:priority=x", "`x` as priority: a number from -2147483648 to 1000000000"),
        ("train:disruptionMode=All", "`All` as disruptionMode: one of Pod, PodGroup"),
    ],
)
def test_a_change_that_cannot_be_supposed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        GroupChange.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("other:minCount=2", "no pod group `default/other` in the cluster"),
        ("train:minCount=2", "pod group `default/train` is `basic`: it has no minCount"),
    ],
)
def test_a_group_that_cannot_be_changed(change: str, message: str) -> None:
    cluster = snapshot(a_group("train", least=None))
    with pytest.raises((WhatIfError, DecisionError), match=message):
        suppose(cluster, Supposition(group_changes=[GroupChange.parse(change)]))


def test_a_member_that_runs_is_no_question() -> None:
    cluster = snapshot(
        a_node("n1").cpu(4), member("m0").on("n1"), member("m1"), a_group("train", least=1)
    )
    with pytest.raises(DecisionError):
        foresee(cluster, KUBE, ["default/m0"], depth=1, seed=0)
