"""A decision, its trace, its effects and its ledger entry: one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, insert

from policy.cluster.digest import Change
from policy.decision.model import Decision
from policy.decision.record import Keep, record_of
from policy.store import identity, rows
from policy.store.decision_rows import Place, rows_of
from policy.store.errors import StoreError
from policy.store.ledger import entries
from policy.store.model import Cause, Origin, QueueInfo, Recorded
from policy.store.record import environments, rule_sets
from policy.store.record.basis import Basis
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state.versions import Head, inserting, lock_head, puts_and_deletes, write_revision
from policy.store.tables import CYCLES, RULE_SETS

DEFAULT_CANDIDATES_KEPT: Final = 10
_NEW_CYCLE: Final = insert(CYCLES).returning(CYCLES.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who decided, when, for which environment, and on whose behalf."""

    actor: str
    at_ms: int
    environment: str = ""
    origin: Origin = Origin.DECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class HypotheticalDecision:
    """A decision on a state that never was."""

    decision: Decision
    #: what is supposed beside the decisions before this one, one step after the other
    supposed: Sequence[Sequence[Change]] = ()


def record(
    connection: Connection,
    cluster: str,
    decision: Decision,
    changes: Sequence[Change],
    *,
    expected_revision: int,
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    at_ms: int,
    queue: QueueInfo | None = None,
    candidates_kept: Keep = DEFAULT_CANDIDATES_KEPT,
    cause: Cause = Cause.DECISION,
    origin: Origin = Origin.DECIDED,
) -> Recorded:
    """Keep a decision together with the state changes that it causes.

    Raises StaleRevision where the cluster is no longer at `expected_revision`, RuleSetChanged
    where another rule set is active in the environment by now: decide again. Raises
    SnapshotMismatch for a decision that was made on another state than that revision's.
    """
    if environment:
        environments.require_active(
            connection, environment, cluster=cluster, digest=decision.rule_set_digest
        )
    head = lock_head(connection, cluster)
    return _write(
        connection,
        head,
        decision,
        changes,
        basis=Basis.newest(head, expected_revision=expected_revision),
        rule_set=RuleSetText.of(rules),
        envelope=Envelope(actor=actor, at_ms=at_ms, environment=environment, origin=origin),
        queue=queue or QueueInfo(),
        keep=candidates_kept,
        cause=cause,
        hypothetical=False,
    )


def record_hypothetical(
    connection: Connection,
    cluster: str,
    supposed: Iterable[HypotheticalDecision],
    *,
    revision: int,
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    at_ms: int,
    candidates_kept: Keep = DEFAULT_CANDIDATES_KEPT,
    origin: Origin = Origin.DECIDED,
) -> list[Recorded]:
    """Keep decisions on what is supposed of a revision, all or none of them.

    Each is on the state that the suppositions up to its own lead to; none changes anything.
    Raises NotFound for an unknown revision, SnapshotMismatch where a decision was made on
    another state.
    """
    head = lock_head(connection, cluster)
    basis = Basis.at(connection, head, revision)
    rule_set = RuleSetText.of(rules)
    recorded = []
    for one in supposed:
        basis = basis.supposing(one.supposed)
        recorded.append(
            _write(
                connection,
                head,
                one.decision,
                (),
                basis=basis,
                rule_set=rule_set,
                envelope=Envelope(actor=actor, at_ms=at_ms, environment=environment, origin=origin),
                queue=QueueInfo(),
                keep=candidates_kept,
                cause=Cause.DECISION,
                hypothetical=True,
            )
        )
    return recorded


def _write(
    connection: Connection,
    head: Head,
    decision: Decision,
    changes: Sequence[Change],
    *,
    basis: Basis,
    rule_set: RuleSetText,
    envelope: Envelope,
    queue: QueueInfo,
    keep: Keep,
    cause: Cause,
    hypothetical: bool,
) -> Recorded:
    base = basis.revision
    basis.require(
        decision.snapshot_digest,
        now_ms=decision.now_ms,
        history=decision.history,
        subject=f"the decision of `{decision.preemptor}`",
    )
    if rule_set.digest != decision.rule_set_digest:
        raise StoreError(
            f"the decision of `{decision.preemptor}` was not made by rule set `{rule_set.name}`,"
            " with which it is to be recorded"
        )
    rules = rule_sets.ensure(connection, rule_set, at_ms=envelope.at_ms)
    revision = head.number + 1 if changes else None
    cycle = _cycle(head, decision, envelope, queue, base=base, revision=revision)
    cycle |= identity.columns(connection)
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
            # The state is that of the time decided for; when it was recorded, the ledger says.
            at_ms=decision.now_ms,
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
        origin=envelope.origin,
        hypothetical=hypothetical,
    )
    for table, values in rows_of(record_of(decision, keep=keep), place):
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
