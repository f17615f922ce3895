"""How a group's cycle ends: members, victims, nominations, conditions and messages.

Source: kube-scheduler 1.36; the texts are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from policy.cluster.tables import NOWHERE, TERMINATING
from policy.decision import messages
from policy.decision.groups import (
    NO_GROUP_EFFECTS,
    GroupConditionChange,
    GroupEffects,
    GroupMember,
    GroupOutcome,
    MemberPreemption,
)
from policy.decision.model import Decision, NominationChange, Outcome, Victim
from policy.groups.passes import CycleInputs, Misfit, PassResult
from policy.groups.preemption import GROUP_UNSCHEDULABLE, Preempted
from policy.preemption.candidates import listed_victims
from policy.preemption.victims import Attempt
from policy.rules.group_rules import MemberDeletions, Nominations

WAITING: Final = (
    f"{GROUP_UNSCHEDULABLE}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
TO_COMPLETE: Final = "pod group is waiting for preemption to complete"
FOUND: Final = "found a placement for podgroup, preempting {count} victims"
NOT_FOR_ITSELF: Final = "preemption: not eligible due to workload aware preemption enabled"
NO_NODES: Final = "no nodes available to schedule pods"
_CONDITION: Final = "PodGroupScheduled"
NO_ERRORS: Final[Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    outcome: GroupOutcome
    code: str
    message: str
    members: tuple[GroupMember, ...] = ()
    victims: tuple[Victim, ...] = ()
    effects: GroupEffects = NO_GROUP_EFFECTS


def not_tried() -> Conclusion:
    """No member got past its gates."""
    return Conclusion(outcome=GroupOutcome.NOT_TRIED, code="", message="")


def error(task: CycleInputs, text: str, own: Mapping[int, str] = NO_ERRORS) -> Conclusion:
    """The cycle failed: every member says so and loses its nomination.

    own: by position, the errors of members that failed by themselves; they say their own.
    """
    members = tuple(
        _member(
            task,
            position,
            message=own.get(position, text),
            reason="SchedulerError",
            nomination="",
        )
        for position in range(task.size)
    )
    effects = _effects(members, task, condition=_change(task, "False", "SchedulerError", text))
    return Conclusion(
        outcome=GroupOutcome.ERROR, code="Error", message=text, members=members, effects=effects
    )


def conclude(task: CycleInputs, first: PassResult, preempted: Preempted | None) -> Conclusion:
    """What follows from the first pass, and from the preemption where there was one."""
    if preempted is None and first.success and not first.decisions_preempt:
        return _scheduled(task, first)
    own = {
        position: decision
        for position, decision in first.decisions.items()
        if decision.outcome is Outcome.PREEMPT
    }
    message = GROUP_UNSCHEDULABLE
    preempting = False
    if preempted is not None:
        preempting = preempted.success
        if not preempting:
            message = f"{message}, {preempted.result.message}"
        elif task.groups.victims_in_message:
            message = f"{message}, {FOUND.format(count=len(preempted.victims))}"
    elif first.quorum != NOWHERE and own:
        preempting = True
        message = f"{message}, {TO_COMPLETE}"
    outcome = GroupOutcome.PREEMPTING if preempting else GroupOutcome.UNSCHEDULABLE
    members = tuple(
        _pending(task, first, position, preempted, message=message, preempting=preempting)
        for position in range(task.size)
    )
    withheld = not preempting and task.groups.member_deletions is MemberDeletions.WITH_QUORUM
    victims, deleted, cleared = _leaving(task, preempted, {} if withheld else own)
    effects = _effects(
        members,
        task,
        condition=_change(task, "False", "Unschedulable", message),
        deleted=deleted,
        cleared=cleared,
    )
    return Conclusion(
        outcome=outcome,
        code="Unschedulable",
        message=message,
        members=members,
        victims=victims,
        effects=effects,
    )


def _scheduled(task: CycleInputs, first: PassResult) -> Conclusion:
    members = []
    for position, node in enumerate(first.nodes):
        if node != NOWHERE:
            members.append(_member(task, position, first=first, bound=True))
        else:
            text = _fit_error(task, first, position)
            members.append(_member(task, position, first=first, message=text))
    effects = _effects(tuple(members), task, condition=_change(task, "True", "Scheduled", ""))
    return Conclusion(
        outcome=GroupOutcome.SCHEDULED,
        code="Success",
        message="",
        members=tuple(members),
        effects=effects,
    )


def _pending(
    task: CycleInputs,
    first: PassResult,
    position: int,
    preempted: Preempted | None,
    *,
    message: str,
    preempting: bool,
) -> GroupMember:
    """A member that stays pending: its text, and what happens to its nomination."""
    names = task.snapshot.nodes.names
    decision = first.decisions.get(position)
    own = decision if decision is not None and decision.outcome is Outcome.PREEMPT else None
    fitted = first.nodes[position] != NOWHERE
    if own is not None:
        # Without the quorum its victims are gone for nothing; its message is that of the others.
        text = _fit_error(task, first, position) if preempting else WAITING
        nomination = own.node if preempting else ""
        return _member(task, position, first=first, message=text, nomination=nomination, own=own)
    if fitted:
        text = message if preempting else WAITING
        nomination = names[first.nodes[position]] if preempting else ""
    else:
        text = _fit_error(task, first, position)
        nomination = None if names else ""
        if decision is not None and decision.effects.nomination is NominationChange.CLEAR:
            nomination = ""
    if preempting and preempted is not None and task.groups.nominations is Nominations.PLACED:
        node = preempted.nodes[position]
        nomination = names[node] if node != NOWHERE else nomination
        text = message if node != NOWHERE else text
    return _member(task, position, first=first, message=text, nomination=nomination)


def _fit_error(task: CycleInputs, first: PassResult, position: int) -> str:
    misfit = first.misfits[position]
    nodes = len(task.snapshot.nodes)
    if not nodes:
        return NO_NODES
    claims = task.rules.effects.claims_message
    if task.groups.gates.workload_aware_preemption:
        return misfit.message(nodes=nodes, preemption=NOT_FOR_ITSELF, claims=claims)
    decision = first.decisions.get(position)
    if decision is None:
        return misfit.message(nodes=nodes, preemption="", claims=claims)
    return messages.fit_error(decision, nodes=nodes, claims=claims)


def _member(
    task: CycleInputs,
    position: int,
    *,
    first: PassResult | None = None,
    message: str = "",
    reason: str = "Unschedulable",
    nomination: str | None = None,
    bound: bool = False,
    own: Decision | None = None,
) -> GroupMember:
    """nomination: a node, "" to clear it, None to leave it; it is written where it changes."""
    member = task.muster.members[position]
    node = first.nodes[position] if first is not None else NOWHERE
    misfit = first.misfits.get(position, Misfit()) if first is not None else Misfit()
    unchanged = nomination is None or nomination == member.pod.status.nominated_node_name
    change = NominationChange.LEAVE
    if not unchanged:
        change = NominationChange.SET if nomination else NominationChange.CLEAR
    preemption = None
    if own is not None:
        preemption = MemberPreemption(
            node=own.node or "",
            victims=tuple(v.pod for v in own.victims),
            deleted=own.effects.evict,
        )
    return GroupMember(
        pod=member.key,
        uid=member.pod.metadata.uid,
        priority=member.priority,
        placed=task.snapshot.nodes.names[node] if node != NOWHERE and own is None else "",
        quorum=first is not None and first.quorum == position,
        bound=bound,
        nomination=change,
        nominated_node=(nomination or "") if change is NominationChange.SET else "",
        message=message,
        reason="" if bound else reason,
        statuses=misfit.statuses,
        preemption=preemption,
    )


def _leaving(
    task: CycleInputs, preempted: Preempted | None, own: Mapping[int, Decision]
) -> tuple[tuple[Victim, ...], tuple[str, ...], tuple[str, ...]]:
    """Victims, pods to delete (each once), and nominations of others that are cleared."""
    snapshot = task.snapshot
    if preempted is None:
        by_key: dict[str, Victim] = {}
        cleared: dict[str, None] = {}
        deleted: dict[str, None] = {}
        for decision in own.values():
            for victim in decision.victims:
                by_key.setdefault(victim.pod, victim)
            deleted.update(dict.fromkeys(decision.effects.evict))
            cleared.update(dict.fromkeys(decision.effects.clear_nominations))
        return tuple(by_key.values()), tuple(deleted), tuple(cleared)
    rows = np.array([row for row, _ in preempted.victims], dtype=np.int64)
    attempts = [_attempt(row, preempted, position) for row, position in preempted.victims]
    terminating = snapshot.column(TERMINATING)
    delete_again = task.rules.effects.delete_terminating_victims
    deleted_rows = rows[delete_again | ~terminating[rows]]
    return (
        listed_victims(snapshot, rows, attempts),
        tuple(snapshot.keys[row] for row in deleted_rows.tolist()),
        (),
    )


def _attempt(row: int, preempted: Preempted, position: int) -> Attempt:
    unit = preempted.result.units[position]
    reason = (unit.blocked_message,) if unit.blocked_message else ()
    return Attempt(
        row=row,
        lead=row,
        violating=unit.violating,
        reprieved=False,
        ahead_of=NOWHERE,
        filter="pod-group",
        reasons=reason,
    )


def _effects(
    members: Sequence[GroupMember],
    task: CycleInputs,
    *,
    condition: GroupConditionChange | None,
    deleted: tuple[str, ...] = (),
    cleared: tuple[str, ...] = (),
) -> GroupEffects:
    rules = task.rules.effects
    marked = deleted if rules.disruption_condition else ()
    return GroupEffects(
        bind={m.pod: m.placed for m in members if m.bound},
        mark_disrupted=marked,
        evict=deleted,
        clear_nominations=cleared,
        nominate={
            m.pod: m.nominated_node for m in members if m.nomination is not NominationChange.LEAVE
        },
        condition=condition,
    )


def _change(
    task: CycleInputs, status: str, reason: str, message: str
) -> GroupConditionChange | None:
    """The condition as it is written; None where it says the same. True is never set back."""
    group = task.muster.group
    if group is None:
        return None
    old = next((c for c in group.status.conditions or () if c.type == _CONDITION), None)
    if old is not None:
        same = (old.status, old.reason or "", old.message or "") == (status, reason, message)
        generation = (old.observed_generation or 0) == group.metadata.generation
        if (old.status == "True" and status != "True") or (same and generation):
            return None
    return GroupConditionChange(status=status, reason=reason, message=message)
