"""Why a node was not taken: what every attempt of a session had against it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policy.batch import BatchRules
from policy.batch.explaining import trial_in_words
from policy.batch.trials import trials
from policy.cluster.objects import ClusterObject, Pod, PodGroup, PodGroupStatus
from tests.support.batch import a_class, a_gang, a_node, a_queue, cluster

SCHEDULERS = ["kube-batch", "volcano"]


def words(
    semantics: str, actions: str, node: str, *parts: ClusterObject | list[ClusterObject]
) -> list[str]:
    plugins: list[Any] = [{"name": n} for n in ("priority", "gang", "predicates", "nodeorder")]
    rules = BatchRules.load(
        {
            "apiVersion": "policy/v1",
            "kind": "BatchRules",
            "metadata": {"name": "trials"},
            "spec": {
                "semantics": semantics,
                "actions": actions.split(),
                "tiers": [{"plugins": plugins}],
            },
        }
    )
    objects: list[ClusterObject] = []
    for obj in (o for part in parts for o in (part if isinstance(part, list) else [part])):
        if isinstance(obj, Pod):
            objects.append(replace(obj, spec=replace(obj.spec, scheduler_name=semantics)))
        elif isinstance(obj, PodGroup):
            objects.append(replace(obj, status=PodGroupStatus(phase="Inqueue")))
        else:
            objects.append(obj)
    found = trials(cluster(*objects), rules, node=node, tasks={"default/j-0"})
    return [line for trial in found for line in trial_in_words(trial)]


@pytest.mark.parametrize("semantics", SCHEDULERS)
def test_a_lower_score_is_shown_beside_the_best(semantics: str) -> None:
    """Plugin by plugin, for the node and for the one that was taken."""
    head, room, score = words(
        semantics,
        "allocate",
        "small",
        a_node("big", cpu=8),
        a_node("small", cpu=2),
        a_queue("default"),
        a_gang("j", waiting=1, cpu=1),
    )
    assert head == "allocate of default/j-0 on small: it could be used, and big scores higher"
    assert room == "  cpu: asked for 1, idle 2, being released 0"
    assert score.startswith("  nodeorder: scores ")
    assert ", big " in score


@pytest.mark.parametrize("semantics", SCHEDULERS)
def test_checks_and_room_come_before_scores(semantics: str) -> None:
    """A node that a check rejects, one without room, and one that is equal and comes later."""
    parts = (
        a_node("n1", cpu=2),
        a_node("n2", cpu=2),
        a_node("full", cpu="500m"),
        replace(a_node("shut", cpu=2), spec=replace(a_node("shut").spec, unschedulable=True)),
        a_queue("default"),
        a_gang("j", waiting=1, cpu=1),
    )
    assert words(semantics, "allocate", "shut", *parts)[0].endswith("on shut: rejected, cordoned")
    assert words(semantics, "allocate", "full", *parts)[:2] == [
        "allocate of default/j-0 on full: too little room",
        "  cpu: asked for 1, idle 0.5, being released 0",
    ]
    assert words(semantics, "allocate", "n1", *parts)[0].endswith("on n1: the best node")
    assert words(semantics, "allocate", "n2", *parts)[0].endswith(
        "it could be used, and scores as high as n1, which comes first by name"
    )


@pytest.mark.parametrize("semantics", SCHEDULERS)
def test_who_is_spared_on_the_node_is_named(semantics: str) -> None:
    """What preempt hears about evicting there, and from which plugin."""
    found = words(
        semantics,
        "preempt",
        "n1",
        a_node("n1", cpu=1),
        a_node("n2", cpu=1),
        a_queue("default"),
        a_class("low", 10),
        a_class("high", 1000),
        a_gang("kept", klass="high", minimum=0, on=["n1"], cpu=1),
        a_gang("gone", klass="low", minimum=0, on=["n2"], cpu=1),
        a_gang("j", klass="high", waiting=1, cpu=1),
    )
    assert (found[0], found[-1]) == (
        "preempt of default/j-0 on n1: everybody there is spared",
        "    priority spares default/kept-0",
    )
