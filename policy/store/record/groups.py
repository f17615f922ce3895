"""The cycle of a pod group as it is recorded: its steps as rows, all of it as one document.

A step is about one pod: a member that is bound, nominated or left pending, a unit that was put back
or leaves (`put-back`, of which the first pod names the row), a victim that is evicted. What takes
effect has no `reason`, as in batch sessions, so that the views count evictions of both alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from policy.cluster import canonical
from policy.decision.groups import GroupDecision
from policy.decision.model import NominationChange
from policy.store.model import SessionRecord, SessionStep, StoredSession

KIND: Final = "group"
"""`kind` of the rows of `sessions` that are cycles of pod groups."""

SPARED: Final = "spared"
LEAVES: Final = "leaves"
"""`reason` of a unit that was put back, and of one that could not be."""


def as_group_record(decision: GroupDecision) -> SessionRecord:
    """A group's decision as it is recorded."""
    return SessionRecord(
        kind=KIND,
        subject=decision.group,
        outcome=decision.outcome.value,
        digest=decision.digest,
        now_ms=decision.now_ms,
        snapshot_digest=decision.snapshot_digest,
        seed=decision.seed,
        engine_version=decision.engine_version,
        bound_count=len(decision.effects.bind),
        evicted_count=len(decision.effects.evict),
        steps=list(_steps(decision)),
        document={"decision": canonical.parse(decision.canonical.decode())},
    )


def document_of(stored: StoredSession) -> dict[str, Any]:
    """The canonical document of a recorded group decision."""
    found: dict[str, Any] = stored.document["decision"]
    return found


def _steps(decision: GroupDecision) -> Iterator[SessionStep]:
    for member in decision.members:
        operation, node = "pending", member.placed
        if member.bound:
            operation = "bind"
        elif member.nomination is NominationChange.SET:
            operation, node = "nominate", member.nominated_node
        elif member.nomination is NominationChange.CLEAR:
            operation, node = "clear-nomination", ""
        yield _step(decision, operation, member.pod, node=node, reason=member.message)
    for held in decision.gated:
        yield _step(decision, "gated", held.pod, reason=held.message)
    units = decision.preemption.units if decision.preemption is not None else ()
    for unit in units:
        detail = {
            "pods": list(unit.pods),
            "group": unit.group,
            "priority": unit.priority,
            "violating": unit.violating,
            "blocked": unit.blocked,
        }
        reason = SPARED if unit.reprieved else LEAVES
        yield _step(decision, "put-back", unit.pods[0], reason=reason, detail=detail)
    lead = decision.members[0].pod if decision.members else ""
    wanted_by = {
        pod: member.pod
        for member in reversed(decision.members)
        if member.preemption is not None
        for pod in member.preemption.victims
    }
    evicted = set(decision.effects.evict)
    for victim in decision.victims:
        yield _step(
            decision,
            "evict",
            victim.pod,
            node=victim.node,
            reason="" if victim.pod in evicted else "terminating",
            for_task=wanted_by.get(victim.pod, lead),
        )


def _step(
    decision: GroupDecision,
    operation: str,
    pod: str,
    *,
    node: str = "",
    reason: str = "",
    for_task: str = "",
    detail: dict[str, Any] | None = None,
) -> SessionStep:
    return SessionStep(
        action=KIND,
        operation=operation,
        queue="",
        job=decision.group,
        task=pod,
        node=node,
        for_task=for_task,
        reason=reason,
        detail=detail or {},
    )
