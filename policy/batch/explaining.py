"""Sentences about a session, for people: the edge at which codes become words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from policy.batch.recording import NodeAnswer, Reason, Rejection
from policy.batch.result import JobReason, SessionResult

_JOB: Final[Mapping[Reason, str]] = {
    Reason.LEFT_OUT: "its queue or its pod group does not exist",
    Reason.TOO_FEW_TASKS: "it has fewer pods than its minimum",
    Reason.QUEUE_OVERUSED: "its queue already has what it deserves",
    Reason.WAITS_FOR_RELEASE: "it is promised room that is still being released",
    Reason.GANG_INCOMPLETE: "not enough of its pods found a node to start together",
    Reason.NO_NODE: "there is no node for one of its pods",
    Reason.NOT_TRIED: "no action came to it",
}

_NODE: Final[Mapping[str, str]] = {
    Reason.NO_ROOM: "too little room",
    Reason.NO_POTENTIAL_VICTIMS: "there is no pod to evict",
    Reason.VICTIMS_VETOED: "everybody there is spared",
    Reason.NOT_ENOUGH_VICTIMS: "too little room even after evictions",
    Reason.CHOSEN: "chosen",
    "pods": "no further pod allowed",
    "node-conditions": "not ready",
    "node-unschedulable": "cordoned",
    "node-affinity": "node selector or affinity",
    "node-ports": "host port taken",
    "taints": "taint not tolerated",
    "node-pressure": "under pressure",
    "pod-affinity": "pod affinity",
}


def why_waiting(result: SessionResult, job: str) -> list[str]:
    """Why tasks of a job still wait after the session; empty where none does."""
    found = result.reasons.get(job)
    return [] if found is None else list(_lines(result, found))


def _lines(result: SessionResult, reason: JobReason) -> Iterator[str]:
    yield (
        f"{reason.job} (queue {reason.queue or 'unknown'}): {_JOB[reason.reason]};"
        f" minimum {reason.minimum}, ready {reason.ready}, promised {reason.waiting},"
        f" pending {reason.pending}"
    )
    if reason.rejection is not None:
        yield f"{reason.action} found no node for {reason.task}: {_counts(reason.rejection)}"
        for answer in reason.rejection.answers:
            yield from _answer(answer)
    for statement in result.statements:
        if statement.job == reason.job and not statement.committed:
            steps = [result.steps[i] for i in statement.steps]
            evicted = sum(step.operation == "evict" for step in steps)
            if evicted:
                yield f"{statement.action} evicted {evicted} in trial and took all of it back"


def _counts(rejection: Rejection) -> str:
    return ", ".join(
        f"{number} {'node' if number == 1 else 'nodes'}: {_NODE.get(reason, reason)}"
        for reason, number in rejection.nodes.items()
    )


def _answer(answer: NodeAnswer) -> Iterator[str]:
    yield f"  on {answer.node}: {_NODE[answer.verdict]}"
    for plugin, spared in answer.vetoes.items():
        yield f"    {plugin} spares {', '.join(spared)}"
