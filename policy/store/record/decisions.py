"""A decision, its trace, its effects and its ledger entry: one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Connection, Table, insert

from policy.cluster import times
from policy.cluster.digest import Change, HistoryFigures
from policy.decision.model import Decision, NodeStatuses, Outcome, Status
from policy.store.errors import StoreError
from policy.store.ledger import entries, rows
from policy.store.model import Cause, QueueInfo, Recorded
from policy.store.record import rule_sets
from policy.store.record.basis import Basis
from policy.store.record.rule_sets import RuleSetText
from policy.store.state.versions import Head, inserting, lock_head, puts_and_deletes, write_revision
from policy.store.tables import (
    CANDIDATES,
    CYCLES,
    DECISION_FILTERS,
    DECISION_RULES,
    DECISION_TRACES,
    DECISIONS,
    RULE_SETS,
    VICTIMS,
)

Keep: TypeAlias = int | Literal["all", "chosen"]
"""How many candidates of a decision get a row; the others come back by replay."""

MAX_STATUSES: Final = 64
"""Distinct statuses per phase that get rows of their own; more are summed up per filter."""

Row: TypeAlias = dict[str, Any]

_NEW_CYCLE: Final = insert(CYCLES).returning(CYCLES.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who decided, when, and for which environment."""

    actor: str
    at_ms: int
    environment: str = ""


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
    rule_set: RuleSetText,
    envelope: Envelope,
    queue: QueueInfo,
    keep: Keep,
    cause: Cause,
) -> Recorded:
    """Write everything that the decision leaves behind. Raises StaleRevision, SnapshotMismatch."""
    head = lock_head(connection, cluster)
    basis = Basis.newest(head, expected_revision=expected_revision)
    return _write(
        connection,
        head,
        decision,
        changes,
        basis=basis,
        rule_set=rule_set,
        envelope=envelope,
        queue=queue,
        keep=keep,
        cause=cause,
        hypothetical=False,
    )


def record_hypothetical(
    connection: Connection,
    cluster: str,
    decisions: Iterable[HypotheticalDecision],
    *,
    revision: int,
    rule_set: RuleSetText,
    envelope: Envelope,
    keep: Keep,
) -> list[Recorded]:
    """Write decisions on what is supposed of one revision. Raises NotFound, SnapshotMismatch."""
    head = lock_head(connection, cluster)
    basis = Basis.at(connection, head, revision)
    recorded = []
    for one in decisions:
        basis = basis.supposing(one.supposed)
        recorded.append(
            _write(
                connection,
                head,
                one.decision,
                (),
                basis=basis,
                rule_set=rule_set,
                envelope=envelope,
                queue=QueueInfo(),
                keep=keep,
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

    kept = _kept(decision, keep)
    for table, values in _decision_rows(
        head,
        decision,
        decision_id,
        rules["id"],
        base=base,
        revision=revision,
        kept=kept,
        hypothetical=hypothetical,
        history=decision.history,
    ):
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
) -> Row:
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


def _kept(decision: Decision, keep: Keep) -> int:
    if keep == "all":
        return len(decision.candidates)
    return min(1 if keep == "chosen" else keep, len(decision.candidates))


def _decision_rows(
    head: Head,
    decision: Decision,
    decision_id: int,
    rule_set_id: int,
    *,
    base: int,
    revision: int | None,
    kept: int,
    hypothetical: bool,
    history: HistoryFigures | None,
) -> list[tuple[Table, list[Row]]]:
    trace = decision.trace
    row = {
        "id": decision_id,
        "cluster_id": head.cluster_id,
        "digest": decision.digest,
        "now_ms": decision.now_ms,
        "preemptor": decision.preemptor,
        "preemptor_namespace": decision.preemptor.partition("/")[0],
        "preemptor_uid": decision.preemptor_uid,
        "preemptor_priority": decision.preemptor_priority,
        "outcome": decision.outcome.value,
        "node": decision.node,
        "victim_count": len(decision.victims),
        "pdb_violations": decision.candidates.pdb_violations[0] if decision.candidates else 0,
        "candidate_count": len(decision.candidates),
        "kept_candidates": kept,
        "decided_by": trace.decided_by,
        "nomination": decision.effects.nomination.value,
        "eligible": trace.eligible,
        "fits": trace.fits,
        "message": trace.message,
        "rule_set_id": rule_set_id,
        "snapshot_digest": decision.snapshot_digest,
        "base_revision": base,
        "revision": revision,
        "seed": decision.seed,
        "evaluate_all": decision.evaluate_all,
        "hypothetical": hypothetical,
        "engine_version": decision.engine_version,
    }
    traced = {"decision_id": decision_id, "document": rows.to_json(_document(decision, history))}
    return [
        (DECISIONS, [row]),
        (DECISION_TRACES, [traced]),
        (DECISION_FILTERS, _filters(decision, decision_id)),
        (DECISION_RULES, _rules(head, decision, decision_id, rule_set_id, hypothetical)),
        (CANDIDATES, _candidates(decision, decision_id, kept)),
        (VICTIMS, _victims(head, decision, decision_id, hypothetical)),
    ]


def _document(decision: Decision, history: HistoryFigures | None) -> Mapping[str, Any]:
    """The rest of the trace: all of it that does not grow with the cluster.

    `history` holds the figures that the decision read, `extenderCalls` what extenders answered;
    each is absent where there is none.
    """
    trace, effects = decision.trace, decision.effects
    frozen: dict[str, Any] = {} if history is None else {"history": history}
    if trace.extender_calls:
        frozen["extenderCalls"] = [_fields(call) for call in trace.extender_calls]
    return {
        **frozen,
        "scores": trace.scores,
        "criteria": decision.candidates.criteria,
        "rejected": trace.rejected,
        "potentialNodes": len(trace.potential_nodes),
        "sampling": None if trace.sampling is None else _fields(trace.sampling),
        "ranking": [_fields(step) for step in trace.ranking],
        "checks": [_fields(check) for check in trace.checks],
        "effects": _fields(effects),
    }


def _fields(record: Any) -> Row:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _summed(statuses: NodeStatuses) -> list[tuple[Status, int]]:
    """Distinct statuses with their node counts, a bounded number of them."""
    counted = statuses.counts()
    if len(counted) <= MAX_STATUSES:
        return counted
    sums: dict[tuple[Any, str], int] = {}
    for status, nodes in counted:
        sums[status.code, status.filter] = sums.get((status.code, status.filter), 0) + nodes
    return [(Status(code=c, filter=f, reasons=()), n) for (c, f), n in sums.items()]


def _filters(decision: Decision, decision_id: int) -> list[Row]:
    phases = (
        ("filter", decision.trace.filter_statuses),
        ("dry-run", decision.trace.dry_run_statuses),
    )
    found = [(phase, s, n) for phase, statuses in phases for s, n in _summed(statuses)]
    return [
        {
            "decision_id": decision_id,
            "position": position,
            "phase": phase,
            "filter": status.filter,
            "code": int(status.code),
            "reasons": rows.to_json(status.reasons),
            "node_count": nodes,
        }
        for position, (phase, status, nodes) in enumerate(found)
    ]


def _rules(
    head: Head, decision: Decision, decision_id: int, rule_set_id: int, hypothetical: bool
) -> list[Row]:
    return [
        {
            "decision_id": decision_id,
            "position": position,
            "cluster_id": head.cluster_id,
            "rule_set_id": rule_set_id,
            "hypothetical": hypothetical,
            "section": fired.section,
            "rule": fired.rule,
            "verdict": fired.verdict,
            "reason": fired.reason,
            "inputs": rows.to_json(fired.inputs),
        }
        for position, fired in enumerate(decision.trace.rules)
    ]


def _candidates(decision: Decision, decision_id: int, kept: int) -> list[Row]:
    criteria = decision.candidates.criteria
    return [
        {
            "decision_id": decision_id,
            "position": found.position,
            "node": found.node,
            "victim_count": len(found.victims),
            "pdb_violations": found.pdb_violations,
            "left_behind_at": found.left_behind_at,
            "criteria_values": rows.to_json([found.values[name] for name in criteria]),
            "victims": rows.to_json(found.victims),
        }
        for found in decision.candidates[:kept]
    ]


def _victims(head: Head, decision: Decision, decision_id: int, hypothetical: bool) -> list[Row]:
    takes = decision.outcome is Outcome.PREEMPT and not hypothetical
    evicted = frozenset(decision.effects.evict) if takes else frozenset[str]()
    return [
        {
            "decision_id": decision_id,
            "position": position,
            "cluster_id": head.cluster_id,
            "now_ms": decision.now_ms,
            "evicted": victim.pod in evicted,
            "preemptor_namespace": decision.preemptor.partition("/")[0],
            "pod": victim.pod,
            "namespace": victim.pod.partition("/")[0],
            "uid": victim.uid,
            "node": victim.node,
            "priority": victim.priority,
            "priority_class": victim.priority_class,
            "owner": victim.owner,
            "start_ms": None if victim.start_ms == times.MISSING else victim.start_ms,
            "run_seconds": victim.run_seconds,
            "cpu_milli": victim.cpu_milli,
            "memory_bytes": victim.memory_bytes,
            "pdb_violating": victim.pdb_violating,
            "already_terminating": victim.already_terminating,
            "filter": victim.filter,
            "reasons": rows.to_json(victim.reasons),
        }
        for position, victim in enumerate(decision.victims)
    ]
