"""A decision, its trace, its effects and its ledger entry: one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, insert

from policy.cluster.digest import Change
from policy.decision.model import Decision
from policy.decision.record import History, Keep, record_of
from policy.store import rows
from policy.store.decision_rows import Place, rows_of
from policy.store.errors import StaleRevision, StoreError
from policy.store.ledger import entries
from policy.store.model import Cause, QueueInfo, Recorded
from policy.store.record import rule_sets
from policy.store.record.rule_sets import RuleSetText
from policy.store.state.versions import Head, inserting, lock_head, puts_and_deletes, write_revision
from policy.store.tables import CYCLES, RULE_SETS

_NEW_CYCLE: Final = insert(CYCLES).returning(CYCLES.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who decided, when, and for which environment."""

    actor: str
    at_ms: int
    environment: str = ""


def record(
    connection: Connection,
    cluster: str,
    decision: Decision,
    changes: Sequence[Change],
    *,
    expected_revision: int,
    rule_set: RuleSetText,
    envelope: Envelope,
    queue: QueueInfo,
    keep: Keep,
    cause: Cause,
    hypothetical: bool,
    history: History | None = None,
) -> Recorded:
    """Write everything that the decision leaves behind. Raises StaleRevision."""
    if hypothetical and changes:
        raise StoreError("a hypothetical decision changes nothing")
    head = lock_head(connection, cluster)
    # What is only supposed may start from any state of the past.
    base = min(expected_revision, head.number) if hypothetical else head.number
    if base != expected_revision:
        raise StaleRevision(cluster=cluster, expected=expected_revision, actual=head.number)
    rules = rule_sets.ensure(connection, rule_set, at_ms=envelope.at_ms)
    revision = head.number + 1 if changes else None
    cycle = _cycle(head, decision, envelope, queue, base=base, revision=revision)
    inserted = connection.execute(_NEW_CYCLE, cycle)
    cycle["id"] = decision_id = inserted.scalar_one()
    lines = [rows.line(CYCLES, cycle), rows.line(RULE_SETS, rules)]

    number, state = head.number, head.digest
    if changes:
        puts, deletes = puts_and_deletes(changes)
        written = write_revision(
            connection,
            head,
            puts,
            deletes,
            at_ms=envelope.at_ms,
            source=f"decision {decision_id}",
            cause=cause,
            decision_id=decision_id,
            taken_away=decision.effects.clear_nominations,
        )
        number, state = written.number, written.digest
        lines += written.lines

    place = Place(
        decision_id=decision_id,
        cluster_id=head.cluster_id,
        rule_set_id=rules["id"],
        base_revision=base,
        revision=revision,
        hypothetical=hypothetical,
    )
    for table, values in rows_of(record_of(decision, keep=keep, history=history), place):
        if values:
            connection.execute(inserting(table), values)
            lines += [rows.line(table, row) for row in values]
    entry = entries.append(
        connection,
        head,
        entries.EntryKind.DECISION,
        lines,
        subject_digest=decision.digest,
        at_ms=envelope.at_ms,
        actor=envelope.actor,
        environment=envelope.environment,
        revision=revision,
        decision_id=decision_id,
    )
    return Recorded(decision_id=decision_id, revision=number, state_digest=state, ledger_hash=entry)


def _cycle(
    head: Head,
    decision: Decision,
    envelope: Envelope,
    queue: QueueInfo,
    *,
    base: int,
    revision: int | None,
) -> dict[str, Any]:
    return {
        "cluster_id": head.cluster_id,
        "at_ms": envelope.at_ms,
        "actor": envelope.actor,
        "environment": envelope.environment,
        "pod": decision.preemptor,
        "attempt": queue.attempt,
        "queued_ms": queue.queued_ms,
        "base_revision": base,
        "revision": revision,
    }
