"""Codes of the record in words, where pages and commands show them."""

from __future__ import annotations

import pytest

from policy.audit.sentences import group_preemption
from policy.batch.explaining import step_in_words
from policy.batch.nodes import Refusal
from policy.batch.recording import Operation, Reason, Rejection, StepOutcome, TaskStep


@pytest.mark.parametrize(
    ("code", "message", "potential", "said"),
    [
        ("Success", "", 2, "victims were found; 2 units may leave"),
        ("Unschedulable", "it never preempts", 0, "it never preempts; 0 units may leave"),
        ("Unschedulable", "", 1, "no victims were found; 1 unit may leave"),
    ],
)
def test_the_preemption_of_a_group(code: str, message: str, potential: int, said: str) -> None:
    """A rule may deny it without a reason: then no victims were found all the same."""
    found = {"code": code, "message": message, "potential": potential}
    assert group_preemption(found) == said


def a_step(refusal: Refusal | None = None, rejection: Rejection | None = None) -> TaskStep:
    return TaskStep(
        position=0,
        action="allocate",
        turn=0,
        operation=Operation.REJECT,
        job="ml/wide",
        task="ml/wide-0",
        node="",
        statement=0,
        outcome=StepOutcome.FAILED,
        refusal=refusal,
        rejection=rejection,
    )


def test_why_a_step_had_no_effect() -> None:
    """Nodes by reason, the most first; every refusal of a node has its words."""
    nodes = {Reason.NO_POTENTIAL_VICTIMS.value: 1, "taints": 3, "a-filter-of-tomorrow": 1}
    assert step_in_words(a_step(rejection=Rejection(nodes=nodes))) == (
        "3 nodes: taint not tolerated, 1 node: a-filter-of-tomorrow,"
        " 1 node: there is no pod to evict"
    )
    assert {refusal: step_in_words(a_step(refusal=refusal)) for refusal in Refusal} == {
        Refusal.OTHER_NODE: "the pod names another node",
        Refusal.HERE: "the pod is on the node already",
        Refusal.NO_ROOM: "too little room",
    }
