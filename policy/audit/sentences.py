"""What a decision's parts mean, one sentence each: for `preempt`, `explain` and what follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from policy.cluster import times
from policy.decision import messages
from policy.decision.model import MAX_EXAMPLES, Code, ObstacleKind, StatusCount
from policy.text.words import number

if TYPE_CHECKING:
    from policy.decision.model import (
        BudgetCount,
        BudgetViolation,
        Candidate,
        LeavingPod,
        Obstacle,
        PodCheck,
        Victim,
    )
    from policy.decision.record import TraceRecord
    from policy.store.model.decisions import ServedCall
    from policy.store.outcomes import OutcomeRow


NO_REASONS: Final[Mapping[str, str]] = MappingProxyType({})


def preempts(victims: Sequence[Victim], node: str | None) -> str:
    """`preempts 2 pods on node-1`; who is leaving already is not preempted."""
    leaving = sum(victim.already_terminating for victim in victims)
    fresh = len(victims) - leaving
    going = f"{number(leaving, 'pod')} that {'is' if leaving == 1 else 'are'} leaving already"
    if not leaving:
        return f"preempts {number(fresh, 'pod')} on {node}"
    if not fresh:
        return f"waits on {node} for {going}, and evicts none"
    return f"preempts {number(fresh, 'pod')} on {node}, and waits for {going}"


def cycle_ended(document: Mapping[str, Any]) -> str:
    """How the cycle of a pod group ended: `preempts 2 pods`; document: its canonical one."""
    effects = document["effects"]
    bound = number(len(effects["bind"]), "member")
    said = {
        "scheduled": f"is scheduled, {bound} bound",
        "preempting": f"preempts {number(len(effects['evict']), 'pod')}",
        "unschedulable": "cannot be scheduled",
        "error": "could not be decided",
        "not-tried": "was not tried: every member is held back",
    }
    return said[document["outcome"]]


def group_preemption(document: Mapping[str, Any]) -> str:
    """`victims were found; 2 units may leave`; document: `preemption` of a cycle."""
    none = document["message"] or "no victims were found"
    found = "victims were found" if document["code"] == Code.SUCCESS.label else none
    return f"{found}; {number(document['potential'], 'unit')} may leave"


def session_ended(*, bound: int, evicted: int, waiting: int) -> str:
    """What a batch session came to: `bound 2 pods and evicted none; 1 job still waits`."""
    jobs = number(waiting, "job") if waiting else "no job"
    evictions = number(evicted, "pod") if evicted else "none"
    waits = "waits" if waiting < 2 else "wait"
    bindings = number(bound, "pod") if bound else "no pod"
    return f"bound {bindings} and evicted {evictions}; {jobs} still {waits}"


def counted(budget: BudgetCount) -> str:
    """`shop/web (allowed 1, then 0)`"""
    return f"{budget.budget} (allows {budget.allowed_before} before, {budget.allowed_after} after)"


def violation(found: BudgetViolation) -> str:
    """`shop/web-1 violates shop/web, which allows no disruption`"""
    allows = (
        "no disruption"
        if not found.disruptions_allowed
        else (
            f"{number(found.disruptions_allowed, 'disruption')}; more important pods of"
            f" {found.node} leave {max(0, found.allowed_before)} of that"
            if found.allowed_before != found.disruptions_allowed
            else number(found.disruptions_allowed, "disruption")
        )
    )
    return f"{found.pod} violates budget {found.budget}, which allows {allows}"


_CONTRADICTED: Final = {
    "victim-still-runs": "{pod} still ran",
    "victim-still-there": "nothing showed the deletion of {pod} within its grace period",
    "preemptor-elsewhere": "no pod left, and {pod} was placed on another node",
    "preemptor-gone": "no pod left, and {pod} was gone",
    "no-victim-left": "no pod left for {pod}",
}
"""What a later state showed, by the reason that is stored."""


def contradicted(one: OutcomeRow) -> str:
    """What a later state of the cluster contradicts of a decision."""
    seen = _CONTRADICTED[one.reason].format(pod=one.pod)
    at = times.to_text(one.at_ms)
    return f"not carried out: {seen} at revision {one.revision} ({at})"


_ANSWERED: Final = {
    "offered": "everything that it had offered",
    "chosen": "this decision's node and victims",
    "none": "no candidate",
}
WOULD_HAVE: Final = (
    "These are what the rules would have done: the scheduler was answered otherwise."
)


def answered(call: ServedCall) -> str:
    """`enforce mode: the scheduler was answered no candidate, because the pod is gone`"""
    because = f", because {call.failure}" if call.failure else ""
    return f"{call.mode} mode: the scheduler was answered {_ANSWERED[call.answer]}{because}"


def waiting(pod: LeavingPod) -> str:
    """`default/old on node-1 (priority 1) is leaving since ..., until ... at most`"""
    return (
        f"{pod.pod} on {pod.node} (priority {pod.priority}) is leaving since"
        f" {times.to_text(pod.since_ms)}, until {times.to_text(pod.until_ms)} at most"
    )


def would_leave(pods: Sequence[str], leaving: Collection[str]) -> str:
    """`default/a would leave; default/b is leaving already`, of the victims of a candidate."""
    fresh = [pod for pod in pods if pod not in leaving]
    gone = [pod for pod in pods if pod in leaving]
    parts = [f"{', '.join(fresh)} would leave"] if fresh else []
    if gone:
        parts.append(f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} leaving already")
    return "; ".join(parts) or "no pod would leave"


def freed_already(
    best: Sequence[Candidate], leaving: Collection[str], *, tied: bool
) -> Iterator[str]:
    """Candidates that wait only for pods that leave anyway, where another one was chosen.

    best: the chosen one first. tied: no criterion told them apart.
    """
    if not best or not any(pod not in leaving for pod in best[0].victims):
        return
    for other in best[1:]:
        if other.victims and all(pod in leaving for pod in other.victims):
            text = f"{other.node} is being freed already by {', '.join(other.victims)}"
            blind = tied and other.eliminated_by not in other.values
            yield text + (", and no criterion of the ranking looks at that" if blind else "")


def reprieved(check: PodCheck) -> str:
    """Why a potential victim stays."""
    if not check.ahead_of:
        return "tried after the victims, and there is room for it"
    if check.ahead_by == "victims.reprieve":
        first = "it violates a budget" if check.pdb_violating else "it violates no budget"
        return f"tried before {check.ahead_of}: {first}"
    return f"tried before {check.ahead_of} by `{check.ahead_by}`"


def obstacle(found: Obstacle, *, priority: int, reasons: Mapping[str, str] = NO_REASONS) -> str:
    """What stands in the way on a node.

    priority: the preemptor's; reasons: those of rules by id, where they are known.
    """
    pods = names(found.pods, found.pod_count)
    where = f"{found.topology_key}={found.domain}" if found.domain else f"no {found.topology_key}"
    stays = "stays" if found.pod_count == 1 else "stay"
    match found.kind:
        case ObstacleKind.AFFINITY if found.pod_count:
            only = "pod" if found.pod_count == 1 else "pods"
            return f"the only {only} with {where} that its pod affinity matches would leave: {pods}"
        case ObstacleKind.AFFINITY:
            return f"no pod with {where} matches its pod affinity"
        case ObstacleKind.ANTI_AFFINITY:
            return f"its anti-affinity keeps it away from {pods} ({where})"
        case ObstacleKind.EXISTING_ANTI_AFFINITY:
            return f"the anti-affinity of {pods} keeps it away ({where})"
        case ObstacleKind.SPREAD:
            return (
                f"topology spread: {where} holds {found.pod_count} matching"
                f" {'pod' if found.pod_count == 1 else 'pods'} ({pods or 'none'}), the fewest"
                f" elsewhere are {found.others_min}, maxSkew is {found.max_skew}"
            )
        case ObstacleKind.NOMINATED:
            verb = "is" if found.pod_count == 1 else "are"
            return f"the room is kept for {pods}, which {verb} nominated there"
        case _:
            why = kept(
                found.kind,
                found.rule,
                found.pod_count,
                priority=priority,
                reason=reasons.get(found.rule, ""),
            )
            return f"{pods} {stays}{'' if found.kind is ObstacleKind.RULE else ':'} {why}"


def kept(kind: ObstacleKind, rule: str, count: int, *, priority: int, reason: str) -> str:
    """Why pods may not be victims.

    priority: the preemptor's; reason: the rule's, "" where it is not known.
    """
    match kind:
        case ObstacleKind.RULE:
            return f"by rule `{rule}`" + (f" ({reason})" if reason else "")
        case ObstacleKind.SAME_PRIORITY:
            return f"same priority ({priority})"
        case ObstacleKind.HIGHER_PRIORITY:
            return f"higher priority than {priority}"
        case ObstacleKind.POD_GROUP:
            return "the whole pod group would have to leave, and may not"
        case _:
            return f"no rule allows {'it' if count == 1 else 'them'}"


def because(filter_name: str, reasons: Iterable[str]) -> str:
    """`resources: Insufficient cpu`"""
    text = ", ".join(reasons)
    return f"{filter_name}: {text}" if filter_name and text else filter_name or text


def why_leaves(filter_name: str, reasons: Iterable[str]) -> str:
    """Why a victim could not stay: the filter that fails with it put back, and its reasons."""
    if filter_name == messages.BY_EXTENDER:
        return "it was offered; as the recorded state is, it could have stayed"
    return because(filter_name, reasons)


def beyond_eviction(trace: TraceRecord) -> Iterator[str]:
    """Why nodes do not take the pod whoever leaves them, the most frequent reason first."""
    found = [
        (status.nodes, because(status.filter, status.reasons))
        for status in trace.filter_statuses
        if status.code is Code.UNRESOLVABLE and isinstance(status, StatusCount)
    ]
    ordered = sorted((one for one in found if one[1]), key=lambda one: (-one[0], one[1]))
    for count, text in ordered[:_SHOWN]:
        yield f"{number(count, 'node')}: {text}, whatever pods leave"
    if len(ordered) > _SHOWN:
        yield f"{len(ordered) - _SHOWN} further such reasons: `policy explain ID` lists them"


def refused(trace: TraceRecord) -> Iterator[str]:
    """Why nodes are no candidates although victims were found for them, or offered."""
    found = [
        (status.nodes, because(status.filter, status.reasons))
        for status in trace.dry_run_statuses
        if isinstance(status, StatusCount) and not _WITHOUT_VICTIMS.issuperset(status.reasons)
    ]
    for count, text in sorted(found, key=lambda one: (-one[0], one[1])):
        yield f"{number(count, 'node')}: {text}"


_WITHOUT_VICTIMS: Final = frozenset({messages.NO_VICTIMS, messages.NOT_HELPFUL})
"""What is said of the other nodes; `in_the_way` says more of them."""
_SHOWN: Final = 5
"""Reasons that no eviction helps, of those that are said at once."""


def names(pods: Sequence[str], count: int) -> str:
    """The named pods, and how many more there are."""
    text = ", ".join(pods)
    more = count - len(pods)
    return f"{text} and {more} more" if more > 0 else text


def in_the_way(trace: TraceRecord, *, priority: int) -> Iterator[str]:
    """`node-1: a; b`, a line for each node; and how many statuses were not looked into."""
    lines: dict[str, list[str]] = {}
    for one in trace.obstacles:
        lines.setdefault(one.node, []).append(obstacle(one, priority=priority))
    for node, parts in lines.items():
        yield f"{node}: {'; '.join(parts)}"
    looked_at = [
        *(found for found in trace.dry_run_statuses if found.code),
        *(found for found in trace.filter_statuses if found.code is Code.UNRESOLVABLE),
    ]
    if lines and len(looked_at) > MAX_EXAMPLES:
        yield (
            f"{len(looked_at) - MAX_EXAMPLES} rarer statuses of nodes were not looked into;"
            " `policy explain ID --why-not NODE` looks into a node"
        )
