"""The sentences that kube-scheduler's users know, made from a decision's parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from policy.decision.model import Decision, NodeStatuses, Outcome

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NEEDLESS: Final = 'expected at least one victim pod on node "{node}"'
TOO_MANY_VICTIMS: Final = "{needed} victims needed, maxVictims allows {limit}"
UNFIT: Final = "node(s) would not fit the pod with the whole groups of its victims gone"
NOT_SATISFIED: Final = "node(s) didn't satisfy plugin(s) [{plugins}]"
NO_CANDIDATE: Final = "no candidate node for preemption"
UNKNOWN_NODE: Final = "the node is not in the recorded state"
UNKNOWN_VICTIM: Final = "a victim is not on the node in the recorded state"
NOTHING_OFFERED: Final = "no victims were offered"
DENIED: Final = "a victim is denied by rule {rule}"
UNMENTIONED: Final = "a victim is allowed by no rule"
KEPT: Final = "a victim stays: {reason}"
SPLIT: Final = "the victims are a part of pod group {group}, which leaves as a whole"
FORBIDDEN: Final = "a victim is held back by victims.forbid"
UNKNOWN_NAMESPACE: Final = "the namespace of a victim is not in the recorded state"
AS_SENT: Final = "as the scheduler has the pods, {why}"
PROMISED: Final = "the room is promised to a nominated pod"
PREFIX: Final = "preemption: "

BY_EXTENDER: Final = "extender"
"""In place of a filter's name: an extender decided the status of a node, or who offered the victims
of one named a pod that could have stayed."""


def histogram(counts: Mapping[str, int]) -> str:
    """`2 x, 10 y` with the parts sorted as strings (so "10 x" stands before "2 x")."""
    return ", ".join(sorted(f"{n} {reason}" for reason, n in counts.items()))


def unavailable(*, nodes: int, counts: Mapping[str, int]) -> str:
    """`0/N nodes are available: ...`, without reasons where there are none."""
    told = histogram(counts)
    return f"0/{nodes} nodes are available" + (f": {told}." if told else ".")


def errors(texts: Sequence[str]) -> str:
    """One error as it is, several in brackets."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def count_reasons(statuses: Iterable[NodeStatuses]) -> dict[str, int]:
    """How many nodes give each reason; a node with several reasons counts for each."""
    counts: dict[str, int] = {}
    for part in statuses:
        for status, n in part.counts():
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + n
    return counts


def preemption_failure(*, nodes: int, dry_run: NodeStatuses) -> str:
    """Why no candidate was found: dry-run nodes by their reasons, all others as not helpful."""
    counts = count_reasons([dry_run])
    others = nodes - len(dry_run)
    if others:
        counts[NOT_HELPFUL] = counts.get(NOT_HELPFUL, 0) + others
    return PREFIX + unavailable(nodes=nodes, counts=counts)


def fit_error(decision: Decision, *, nodes: int, claims: bool) -> str:
    """Text of the FailedScheduling event (1.27 and later); "" where the pod fits.

    nodes: of the cluster, also those without a status. claims: the rule set's
    `effects.claimsMessage`.
    """
    trace = decision.trace
    if trace.fits:
        return ""
    return no_node(
        nodes=nodes,
        rejected=trace.rejected,
        counts=count_reasons([trace.filter_statuses]),
        message=trace.message,
        claims=claims and decision.outcome is not Outcome.ERROR,
    )


def no_node(
    *, nodes: int, rejected: Sequence[str], counts: Mapping[str, int], message: str, claims: bool
) -> str:
    """Why no node takes the pod, and what preemption says of it.

    counts: nodes by reason; rejected: why a filter rejected the pod for all nodes at once.
    """
    if rejected:
        return f"0/{nodes} nodes are available: {_joined(rejected)}. not found"
    told = histogram(counts)
    text = f"0/{nodes} nodes are available:" + (f" {told}." if told else "")
    if not message:
        return text
    return f"{text} no new claims to deallocate, {message}" if claims else f"{text} {message}"


def _joined(reasons: Sequence[str]) -> str:
    return ", ".join(reasons)
