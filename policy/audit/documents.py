"""A decision as programs and pages see it: its line in a list, its document, its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from policy.audit import sentences
from policy.cluster import times
from policy.decision.record import line_of, record_of, values_of

if TYPE_CHECKING:
    from policy.decision.model import StatusCount, Victim
    from policy.scheduling.cycle import Step
    from policy.store import DecisionRow, NominationRow, StoredDecision, StoredSession
    from policy.store.outcomes import OutcomeRow

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
    return _summary({**values_of(row), "id": row.id or None})


def listed(row: DecisionRow, victims: Iterable[Victim]) -> dict[str, Any]:
    """The same line with all that lists for programs have, whatever the others of a list are."""
    return {
        **summary(row),
        "cluster": row.cluster,
        "origin": row.origin,
        "answer": row.answer,
        "decided_by": row.decided_by,
        "victim_pods": [victim.pod for victim in victims],
    }


LISTED: Final = (
    *("id", "now", "cluster", "preemptor", "priority", "outcome", "node", "victims"),
    *("victim_pods", "decided_by", "pdb_violations", "rule_set", "origin", "answer"),
)
"""Its fields, in the order of a table."""


def _summary(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": line["id"],
        "now": instant(line["now_ms"]),
        "preemptor": line["preemptor"],
        "priority": line["preemptor_priority"],
        "outcome": line["outcome"] if line.get("carried_out", True) else "not-carried-out",
        "node": line["node"],
        "victims": line["victim_count"],
        "pdb_violations": line["pdb_violations"],
        "rule_set": line["rule_set"],
    }


def step_summary(step: Step) -> dict[str, Any]:
    """The same line for a decision that was just made."""
    line = line_of(record_of(step.decision, keep="chosen"))
    number = None if step.recording is None else step.recording.decision_id
    return _summary({**line, "id": number})


def document(stored: StoredDecision) -> dict[str, Any]:
    """Everything that is known of a decision, with the names of the tables' columns."""
    row, record = stored.row, stored.record
    trace = record.trace
    line = {**values_of(row), "id": row.id or None}
    del line["carried_out"]  # `not_carried_out` says more
    for name in ("at_ms", "now_ms", "queued_ms"):
        line[name.removesuffix("_ms")] = instant(line.pop(name)) or None
    evicted = record.evicted(hypothetical=row.hypothetical or row.is_judgement_only)
    evicted -= {one.pod for one in stored.outcomes}
    whole = {
        **values_of(record),
        **values_of(trace),
        **line,
        "criteria": record.candidates.criteria,
        "candidates": record.candidates.best,
        "candidate_violations": record.candidates.violations,
        "filters": [
            *_statuses("filter", trace.filter_statuses),
            *_statuses("dry-run", trace.dry_run_statuses),
        ],
        "victims": [
            {
                "position": position,
                **values_of(victim),
                "start_ms": None if victim.start_ms == times.MISSING else victim.start_ms,
                "started": instant(victim.start_ms) or None,
                "evicted": victim.pod in evicted,
            }
            for position, victim in enumerate(record.victims)
        ],
        "ledger": stored.ledger,
    }
    if stored.served is not None:
        served = values_of(stored.served)
        arrived = instant(served.pop("arrived_ms"))
        whole["served"] = {**served, "arrived": arrived}
    if stored.outcomes:
        whole["not_carried_out"] = not_carried_out(stored.outcomes)
    plain: dict[str, Any] = to_builtins({k: v for k, v in whole.items() if k not in _IN_OTHER_FORM})
    return plain


def recorded_cycle(stored: StoredSession) -> dict[str, Any]:
    """What the record says of a cycle of a pod group, beside the document of what was decided."""
    row = stored.row
    return {
        "cluster": row.cluster,
        "now": instant(row.now_ms),
        "at": instant(row.at_ms),
        "actor": row.actor,
        "environment": row.environment,
        "base_revision": row.base_revision,
        "revision": row.revision,
        "hypothetical": row.hypothetical,
        "digest": row.digest,
        "not_carried_out": not_carried_out(stored.outcomes),
    }


def not_carried_out(outcomes: Iterable[OutcomeRow]) -> list[dict[str, Any]]:
    """What a later state of the cluster contradicts of a decision or session."""
    return [
        {
            "pod": one.pod,
            "reason": one.reason,
            "revision": one.revision,
            "at": instant(one.at_ms),
        }
        for one in outcomes
    ]


_IN_OTHER_FORM: Final = ("now_ms", "trace", "filter_statuses", "dry_run_statuses")


def _statuses(phase: str, statuses: Iterable[StatusCount]) -> Iterator[dict[str, Any]]:
    for status in statuses:
        yield {
            "phase": phase,
            "filter": status.filter,
            "code": status.code.label,
            "reasons": status.reasons,
            "node_count": status.nodes,
        }


def verdict(stored: StoredDecision) -> str:
    """The decision in one sentence."""
    row = stored.row
    return {
        "bind": f"fits on {row.node} without preemption",
        "preempt": sentences.preempts(stored.record.victims, row.node),
        "not-eligible": "may not preempt",
        "no-candidate": "fits nowhere, and no preemption that is allowed would help",
        "rejected": "is rejected for all nodes at once",
        "error": "cannot be scheduled",
    }[row.outcome]


def causes(stored: StoredDecision) -> Iterator[str]:
    """Whose leaving is waited for, what stands in the way, and which budgets are violated."""
    row, trace = stored.row, stored.record.trace
    yield from (sentences.waiting(pod) for pod in trace.waits_for)
    yield from trace.rejected
    if row.outcome == "no-candidate":
        yield from sentences.beyond_eviction(trace)
        yield from sentences.refused(trace)
    yield from sentences.in_the_way(trace, priority=row.preemptor_priority)
    if row.outcome == "preempt":
        yield from (
            sentences.violation(broken)
            for broken in stored.record.candidates.violations
            if broken.node == row.node
        )


def nomination(row: NominationRow, *, kept: int) -> dict[str, Any]:
    """A nomination, with the names of the columns of `v_nominations`.

    kept: how many later cycles of its pod left it as it was.
    """
    return {
        "cluster": row.cluster,
        "pod": row.pod,
        "priority": row.priority,
        "node": row.node,
        "made_revision": row.made_revision,
        "made_decision": row.made_decision,
        "made_at": instant(row.made_ms),
        "kept": kept,
        "outcome": row.outcome,
        "ended_by": row.ended_by,
        "ended_revision": row.ended_revision,
        "ended_decision": row.ended_decision,
        "ended_at": instant(row.ended_ms) or None,
    }


def instant(millis: int | None) -> str:
    """An instant as people and programs read it; empty where there is none."""
    return "" if millis is None else times.to_text(millis) or ""
