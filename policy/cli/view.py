"""A decision as people and programs see it, recorded or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from policy.cli import output, session
from policy.cluster import times
from policy.decision.model import Code, Decision, NodeStatuses

if TYPE_CHECKING:
    from policy.scheduling.cycle import Step
    from policy.store import DecisionRow, StoredDecision

SUMMARY: Final = (
    "id",
    "now",
    "preemptor",
    "priority",
    "outcome",
    "node",
    "victims",
    "pdb_violations",
    "rule_set",
)
"""Columns of a list of decisions."""

SUMMARY_RIGHT: Final = ("id", "priority", "victims", "pdb_violations")


def summary(row: DecisionRow) -> dict[str, Any]:
    """One line of a list of decisions; id 0 means that it was not recorded."""
    return {
        "id": row.id or None,
        "now": session.instant(row.now_ms),
        "preemptor": row.preemptor,
        "priority": row.preemptor_priority,
        "outcome": row.outcome,
        "node": row.node,
        "victims": row.victim_count,
        "pdb_violations": row.pdb_violations,
        "rule_set": row.rule_set,
    }


def step_summary(step: Step) -> dict[str, Any]:
    """The same line for a decision that was just made."""
    decision = step.decision
    found = decision.candidates
    return {
        "id": None if step.recording is None else step.recording.decision_id,
        "now": session.instant(decision.now_ms),
        "preemptor": decision.preemptor,
        "priority": decision.preemptor_priority,
        "outcome": decision.outcome.value,
        "node": decision.node,
        "victims": len(decision.victims),
        "pdb_violations": found.pdb_violations[0] if len(found) else 0,
        "rule_set": decision.rule_set,
    }


def document(stored: StoredDecision) -> dict[str, Any]:
    """Everything that is known of a decision, with the names of the tables' columns."""
    row = stored.row
    fields = {**asdict(row), "id": row.id or None}
    for name in ("at_ms", "now_ms", "queued_ms"):
        fields[name.removesuffix("_ms")] = session.instant(fields.pop(name)) or None
    rest = stored.document
    return {
        **fields,
        "rules": [asdict(rule) for rule in stored.rules],
        "filters": [{**asdict(f), "code": Code(f.code).label} for f in stored.filters],
        "candidates": [asdict(candidate) for candidate in stored.candidates],
        "victims": [
            {**asdict(victim), "started": session.instant(victim.start_ms) or None}
            for victim in stored.victims
        ],
        "ranking": rest["ranking"],
        "checks": rest["checks"],
        "sampling": rest["sampling"],
        "effects": rest["effects"],
    }


def unsaved(
    decision: Decision,
    *,
    cluster: str,
    environment: str,
    revision: int,
    at_ms: int,
    actor: str,
) -> StoredDecision:
    """A decision of a dry run in the form of a recorded one, with all its candidates."""
    from policy.store import (
        StoredCandidate,
        StoredDecision,
        StoredRule,
        StoredVictim,
    )

    trace = decision.trace
    return StoredDecision(
        row=_row(
            decision,
            cluster=cluster,
            environment=environment,
            revision=revision,
            at_ms=at_ms,
            actor=actor,
        ),
        filters=(
            *_statuses("filter", trace.filter_statuses),
            *_statuses("dry-run", trace.dry_run_statuses),
        ),
        rules=tuple(StoredRule(**_fields(rule)) for rule in trace.rules),
        candidates=tuple(StoredCandidate(**_fields(c)) for c in decision.candidates),
        victims=tuple(
            StoredVictim(
                **{
                    **_fields(victim),
                    "start_ms": None if victim.start_ms == times.MISSING else victim.start_ms,
                },
                position=position,
                evicted=False,
            )
            for position, victim in enumerate(decision.victims)
        ),
        document={
            "criteria": decision.candidates.criteria,
            "rejected": trace.rejected,
            "potentialNodes": len(trace.potential_nodes),
            "sampling": None if trace.sampling is None else _fields(trace.sampling),
            "ranking": [_fields(step) for step in trace.ranking],
            "checks": [_fields(check) for check in trace.checks],
            "effects": _fields(decision.effects),
        },
    )


def _row(
    decision: Decision,
    *,
    cluster: str,
    environment: str,
    revision: int,
    at_ms: int,
    actor: str,
) -> DecisionRow:
    from policy.store import DecisionRow

    found, trace = decision.candidates, decision.trace
    return DecisionRow(
        id=0,
        cluster=cluster,
        at_ms=at_ms,
        now_ms=decision.now_ms,
        actor=actor,
        environment=environment,
        preemptor=decision.preemptor,
        preemptor_uid=decision.preemptor_uid,
        preemptor_priority=decision.preemptor_priority,
        outcome=decision.outcome.value,
        node=decision.node,
        victim_count=len(decision.victims),
        pdb_violations=found.pdb_violations[0] if len(found) else 0,
        candidate_count=len(found),
        kept_candidates=len(found),
        decided_by=trace.decided_by,
        nomination=decision.effects.nomination.value,
        eligible=trace.eligible,
        fits=trace.fits,
        message=trace.message,
        rule_set=decision.rule_set,
        rule_set_digest=decision.rule_set_digest,
        snapshot_digest=decision.snapshot_digest,
        base_revision=revision,
        revision=None,
        seed=decision.seed,
        evaluate_all=decision.evaluate_all,
        hypothetical=True,
        engine_version=decision.engine_version,
        digest=decision.digest,
        attempt=None,
        queued_ms=None,
    )


def _statuses(phase: str, statuses: NodeStatuses) -> Iterable[Any]:
    from policy.store import StoredFilter

    return [
        StoredFilter(
            phase=phase,
            filter=status.filter,
            code=int(status.code),
            reasons=status.reasons,
            node_count=nodes,
        )
        for status, nodes in statuses.counts()
    ]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


# --- for people --------------------------------------------------------------------------------


def verdict(stored: StoredDecision) -> str:
    """The decision in one sentence."""
    row = stored.row
    pods = f"{row.victim_count} {'pod' if row.victim_count == 1 else 'pods'}"
    return {
        "bind": f"fits on {row.node} without preemption",
        "preempt": f"preempts {pods} on {row.node}",
        "not-eligible": "may not preempt",
        "no-candidate": "fits nowhere, and no preemption would help",
        "rejected": "is rejected for all nodes at once",
        "error": "cannot be scheduled",
    }[row.outcome]


def victim_rows(stored: StoredDecision) -> list[dict[str, Any]]:
    """Pods that leave, with the reason why each could not be reprieved."""
    return [
        {
            "pod": victim.pod,
            "priority": victim.priority,
            "started": session.instant(victim.start_ms),
            "owner": victim.owner,
            "pdb violated": victim.pdb_violating,
            "terminating": victim.already_terminating,
            "why it cannot stay": because(victim.filter, victim.reasons),
        }
        for victim in stored.victims
    ]


def because(filter_name: str, reasons: Iterable[str]) -> str:
    """`resources: Insufficient cpu`"""
    text = ", ".join(reasons)
    return f"{filter_name}: {text}" if filter_name and text else filter_name or text


def print_short(stored: StoredDecision) -> None:
    """What `policy preempt` says: the decision, and who leaves."""
    row = stored.row
    output.line(f"{row.preemptor} (priority {row.preemptor_priority}) {verdict(stored)}")
    if row.message and not row.fits:
        output.line(f"  {row.message}")
    if stored.victims and row.outcome == "preempt":
        columns = tuple(victim_rows(stored)[0])
        output.print_table(victim_rows(stored), columns=columns, right=("priority",))
    cleared = stored.document["effects"]["clear_nominations"]
    if cleared:
        output.line(f"nominations cleared: {', '.join(cleared)}")


def inputs(values: Mapping[str, Any]) -> str:
    """The values that a rule looked at."""
    return ", ".join(f"{name}={output.cell(value)}" for name, value in values.items())
