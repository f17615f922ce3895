"""Which of several nodes a task gets and why, and the numbers for which a plugin spares a task."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.explaining import choice_in_words, limit_in_words
from policy.batch.recording import ChoiceRule, NodeChoice, Operation
from policy.cluster.objects import (
    ClusterObject,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupStatus,
    Queue,
    QueueGuarantee,
    QueueSpec,
)
from tests.support.batch import a_class, a_gang, a_node, a_pod, a_queue, cluster

PLACED = {Operation.ALLOCATE, Operation.PIPELINE}


def held(
    semantics: str, actions: str, plugins: str, *parts: ClusterObject | list[ClusterObject]
) -> SessionResult:
    """One tier with these plugins; pods are for the scheduler of the semantics."""
    uses: list[dict[str, Any]] = [{"name": name} for name in plugins.split()]
    spec = {"semantics": semantics, "actions": actions.split(), "tiers": [{"plugins": uses}]}
    meta = {"name": "choices"}
    rules = BatchRules.load(
        {"apiVersion": "policy/v1", "kind": "BatchRules", "metadata": meta, "spec": spec}
    )
    objects = [o for part in parts for o in (part if isinstance(part, list) else [part])]
    found = [_of(obj, semantics) for obj in objects]
    return run_session(cluster(*found), rules)


def _of(obj: ClusterObject, scheduler: str) -> ClusterObject:
    if isinstance(obj, PodGroup):
        return replace(obj, status=PodGroupStatus(phase="Inqueue"))
    if not isinstance(obj, Pod):
        return obj
    return replace(obj, spec=replace(obj.spec, scheduler_name=scheduler))


def choices(result: SessionResult) -> list[tuple[str, NodeChoice | None]]:
    return [(step.node, step.choice) for step in result.steps if step.operation in PLACED]


NODES = [a_node(f"n{i}", cpu=4) for i in range(1, 6)]


@pytest.mark.parametrize("semantics", ["kube-batch", "volcano"])
def test_of_equal_nodes_allocate_takes_the_first_by_name(semantics: str) -> None:
    """The record says how many are equal, names three of them, and what settled it."""
    result = held(
        semantics,
        "allocate",
        "gang predicates nodeorder",
        *NODES,
        a_queue("default"),
        a_gang("j", waiting=1, cpu=1),
    )
    ((node, choice),) = choices(result)
    assert choice is not None
    expected = NodeChoice(
        rule=ChoiceRule.FIRST_NAME,
        nodes=5,
        score=choice.score,
        ties=4,
        equal=("n2", "n3", "n4"),
    )
    assert (node, choice) == ("n1", expected)
    assert choice_in_words(choice).endswith(
        " as 4 others of 5 nodes (n2, n3, n4, ...): the first by name is taken"
    )


@pytest.mark.parametrize("semantics", ["kube-batch", "volcano"])
def test_a_higher_score_or_being_alone_is_named(semantics: str) -> None:
    """A node that scores highest is taken for its score, and one alone for being alone."""
    result = held(
        semantics,
        "allocate",
        "gang predicates nodeorder",
        a_node("big", cpu=8),
        a_node("small", cpu=2),
        a_queue("default"),
        a_gang("j", waiting=1, cpu=1),
        a_gang("k", waiting=1, cpu=4),
    )
    assert [(node, c and c.rule, c and c.nodes) for node, c in choices(result)] == [
        ("big", ChoiceRule.SCORE, 2),
        ("big", ChoiceRule.ONLY, 1),
    ]


@pytest.mark.parametrize(
    ("semantics", "node", "rule"),
    [
        # Where kube-batch orders nodes by score, equal ones come out last name first.
        ("kube-batch", "n3", ChoiceRule.LAST_NAME),
        ("volcano", "n1", ChoiceRule.FIRST_NAME),
    ],
)
def test_of_equal_nodes_preempt_says_which(semantics: str, node: str, rule: ChoiceRule) -> None:
    """The nodes from which the same victims would go, and which name decides."""
    names = ["n1", "n2", "n3"]
    result = held(
        semantics,
        "preempt",
        "priority gang",
        *(a_node(name, cpu=1) for name in names),
        a_queue("default"),
        a_class("low", 10),
        a_class("high", 1000),
        a_gang("low", klass="low", minimum=0, on=names, cpu=1),
        a_gang("high", klass="high", waiting=1, cpu=1),
    )
    others = tuple(name for name in names if name != node)
    expected = NodeChoice(rule=rule, nodes=3, score="0.0", ties=2, equal=others)
    assert choices(result) == [(node, expected)]


@pytest.mark.parametrize("semantics", ["kube-batch", "volcano"])
def test_reclaim_tries_nodes_by_name_and_counts_those_in_vain(semantics: str) -> None:
    """A node on which the plugins spare too many is passed over, and the record counts it."""
    result = held(
        semantics,
        "reclaim",
        "gang conformance",
        a_node("n1", cpu=2),
        a_node("n2", cpu=2),
        a_queue("q1"),
        a_queue("q2"),
        a_pod(
            "vital",
            group="theirs",
            node="n1",
            cpu=2,
            spec={"priority_class_name": "system-node-critical"},
        ),
        a_gang("theirs", queue="q1", minimum=0, on=["n2"], cpu=2),
        a_gang("ours", queue="q2", waiting=1, cpu=2),
    )
    ((node, choice),) = choices(result)
    assert choice is not None
    assert (node, choice.rule, choice.passed_over) in [
        ("n2", ChoiceRule.NAME_ORDER, 1),  # Volcano looks at the node before it asks
        ("n2", ChoiceRule.ONLY, 0),  # conformance hints that nothing can go there
    ]


# --- numbers -----------------------------------------------------------------------------------


def words(result: SessionResult) -> list[str]:
    """What spared tasks, in every answer of a rejection."""
    return [
        f"{protection.task}: {limit_in_words(protection.limit)}"
        for step in result.steps
        if step.rejection is not None
        for answer in step.rejection.answers
        for protection in answer.protections
    ]


def full(queue: Queue, *, cpu: int = 4) -> list[ClusterObject | list[ClusterObject]]:
    """A node full of one queue's pods, and a pod of another queue that wants some of it."""
    return [
        a_node("n1", cpu=cpu, memory="0"),
        queue,
        a_queue("b"),
        a_gang("run", queue="a", minimum=0, on=["n1", "n1"], cpu=cpu // 2),
        a_gang("next", queue="b", waiting=1, cpu=1),
    ]


def test_proportion_of_kube_batch_says_what_would_be_left() -> None:
    """In use, deserved, and what the queue would keep without the pod; pod after pod."""
    result = held("kube-batch", "reclaim", "gang proportion", *full(a_queue("a", weight=9)))
    assert words(result) == [
        "default/run-0: proportion: queue a would be left with less than it deserves"
        " (cpu in use 4, deserved 3.6, 2 would be left)",
        "default/run-1: proportion: queue a would be left with less than it deserves"
        " (cpu in use 2, deserved 3.6, 0 would be left)",
    ]


def test_large_amounts_are_no_powers_of_ten() -> None:
    """Of a queue with 40,000 cores."""
    found = full(a_queue("a", weight=9), cpu=40_000)
    assert words(held("kube-batch", "reclaim", "gang proportion", *found))[0] == (
        "default/run-0: proportion: queue a would be left with less than it deserves"
        " (cpu in use 40000, deserved 36000, 20000 would be left)"
    )


def test_plugins_of_volcano_say_what_protects_a_queue() -> None:
    """capacity: what is deserved, and what is guaranteed."""

    def of(**spec: Any) -> list[str]:
        found = Queue(metadata=ObjectMeta(name="a"), spec=QueueSpec(weight=1, **spec))
        other = Queue(
            metadata=ObjectMeta(name="b"), spec=QueueSpec(weight=1, deserved={"cpu": "2"})
        )
        objects = [o for o in full(found) if not (isinstance(o, Queue) and o is not found)]
        return words(held("volcano", "reclaim", "gang capacity", *objects, other))

    assert of(deserved={"cpu": "4"}) == [
        f"default/run-{i}: capacity: queue a holds no more than it deserves (cpu in use 4,"
        " deserved 4, 2 would be left)"
        for i in (1, 0)
    ]
    assert of(guarantee=QueueGuarantee(resource={"cpu": "3"})) == [
        f"default/run-{i}: capacity: queue a would be left with less than it is guaranteed (cpu in"
        " use 4, guaranteed 3, 2 would be left)"
        for i in (1, 0)
    ]
