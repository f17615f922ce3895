"""The cycle of a pod group as it is recorded: its steps as rows, all of it as one document.

A step is about one pod: a member that is bound, nominated or left pending, a unit that was put back
or leaves (`put-back`, of which the first pod names the row), a victim that is evicted. What takes
effect has no `reason`, as in batch sessions, so that the views count evictions of both alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Connection, select

from policy.cluster import canonical
from policy.decision.groups import GroupDecision
from policy.decision.model import NominationChange
from policy.store import rows
from policy.store.model.sessions import SessionRecord, SessionStep, StoredSession
from policy.store.record.sessions import TOOK_EFFECT, reading
from policy.store.tables import SESSIONS

KIND: Final = "group"
"""`kind` of the rows of `sessions` that are cycles of pod groups."""

_PARTS: Final = {part.name for part in fields(GroupDecision)} - {"history"}
"""What every document has; figures of the past are in those of cycles that read them."""

SPARED: Final = "spared"
LEAVES: Final = "leaves"
HYPOTHETICAL: Final = "hypothetical"
"""`reason` of what a cycle that is only supposed would bind or evict."""
"""`reason` of a unit that was put back, and of one that could not be."""


def as_group_record(decision: GroupDecision, *, hypothetical: bool = False) -> SessionRecord:
    """A group's decision as it is recorded. hypothetical: it is only supposed, and binds or evicts
    nothing.
    """
    effect = HYPOTHETICAL if hypothetical else TOOK_EFFECT
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
        steps=list(_steps(decision, effect)),
        document={"decision": canonical.parse(decision.canonical.decode())},
        history=decision.history,
    )


def document_of(stored: StoredSession) -> dict[str, Any]:
    """The canonical document of a recorded group decision. Raises DamagedRows."""
    with reading(stored.row.id):
        return _decision(stored.document)


def documents_of(connection: Connection, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """The same of several by number; numbers of other sessions are left out.

    Raises DamagedRows.
    """
    c = SESSIONS.c
    query = select(c.id, c.document).where(c.id.in_(ids), c.kind == KIND)
    found = {}
    for row in connection.execute(query):
        with reading(row.id):
            found[row.id] = _decision(rows.from_json(row.document))
    return found


def _decision(document: Mapping[str, Any]) -> dict[str, Any]:
    """Raises AttributeError, KeyError, TypeError for what is no document of a cycle."""
    found: dict[str, Any] = document["decision"]
    missing = _PARTS - found.keys()
    if missing:
        raise KeyError(*sorted(missing))
    return found


def _steps(decision: GroupDecision, effect: str) -> Iterator[SessionStep]:
    """effect: `reason` of what is bound and evicted."""
    for member in decision.members:
        operation, node, reason = "pending", member.placed, member.message
        if member.bound:
            operation, reason = "bind", effect
        elif member.nomination is NominationChange.SET:
            operation, node = "nominate", member.nominated_node
        elif member.nomination is NominationChange.CLEAR:
            operation, node = "clear-nomination", ""
        yield _step(decision, operation, member.pod, node=node, reason=reason)
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
    evicted = set(decision.effects.evict)
    for victim in decision.victims:
        yield _step(
            decision,
            "evict",
            victim.pod,
            node=victim.node,
            reason=effect if victim.pod in evicted else "terminating",
            for_task=decision.claimants[victim.pod],
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
