"""Where a decision that was made again parts from the one that is recorded.

A record holds all of a decision but what grows with the cluster: the statuses of single nodes and
the candidates beyond the kept ones are in its digest only. Both sides are therefore reduced to
what a record holds, in the shape of the canonical document, and compared in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.cluster import times
from policy.decision.model import Decision, NodeStatuses
from policy.store import StoredDecision, StoredFilter
from policy.store.record.decisions import MAX_STATUSES

ONLY_DIGEST: Final = "digest"
"""Path of a difference in a part of which only the digest is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two decisions differ; None stands for a value that is not there."""

    path: str  #: as `victims[0].pod`, into the canonical document
    recorded: Any
    replayed: Any


def first_difference(stored: StoredDecision, again: Decision) -> Difference:
    """The first difference of two decisions whose digests differ."""
    kept = stored.row.kept_candidates
    found = first_of_documents(of_record(stored), of_decision(again, kept=kept))
    return found or Difference(path=ONLY_DIGEST, recorded=stored.row.digest, replayed=again.digest)


def first_of_documents(one: Any, other: Any, path: str = "") -> Difference | None:
    """The first place where two documents differ, in the order of the first; None for none."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in [*one, *(key for key in other if key not in one)]:
            inner = f"{path}.{name}" if path else str(name)
            found = first_of_documents(one.get(name), other.get(name), inner)
            if found is not None:
                return found
        return None
    if _is_list(one) and _is_list(other):
        for i in range(max(len(one), len(other))):
            left, right = (part[i] if i < len(part) else None for part in (one, other))
            found = first_of_documents(left, right, f"{path}[{i}]")
            if found is not None:
                return found
        return None
    return None if one == other else Difference(path=path, recorded=one, replayed=other)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


# --- both sides in one shape -------------------------------------------------------------------


def of_record(stored: StoredDecision) -> dict[str, Any]:
    """What is recorded of a decision."""
    row, rest = stored.row, stored.document
    return {
        "engineVersion": row.engine_version,
        "preemptor": row.preemptor,
        "preemptorUid": row.preemptor_uid,
        "preemptorPriority": row.preemptor_priority,
        "ruleSet": row.rule_set_digest,
        "snapshot": row.snapshot_digest,
        "now": row.now_ms,
        "seed": row.seed,
        "evaluateAll": row.evaluate_all,
        "outcome": row.outcome,
        "node": row.node,
        "victims": [_victim(victim) for victim in stored.victims],
        "candidates": {
            "count": row.candidate_count,
            "criteria": rest["criteria"],
            "best": [_candidate(candidate) for candidate in stored.candidates],
        },
        "trace": {
            "fits": row.fits,
            "eligible": row.eligible,
            "rejected": rest["rejected"],
            "filterStatuses": _recorded(stored.filters, "filter"),
            "rules": [_fields(rule) for rule in stored.rules],
            "potentialNodes": rest["potentialNodes"],
            "sampling": rest["sampling"],
            "dryRunStatuses": _recorded(stored.filters, "dry-run"),
            "ranking": rest["ranking"],
            "decidedBy": row.decided_by,
            "checks": rest["checks"],
            "message": row.message,
            "scores": rest["scores"],
            "extenderCalls": rest.get("extenderCalls", ()),
        },
        "effects": rest["effects"],
    }


def of_decision(decision: Decision, *, kept: int) -> dict[str, Any]:
    """What would be recorded of a decision with so many candidates."""
    trace = decision.trace
    return {
        "engineVersion": decision.engine_version,
        "preemptor": decision.preemptor,
        "preemptorUid": decision.preemptor_uid,
        "preemptorPriority": decision.preemptor_priority,
        "ruleSet": decision.rule_set_digest,
        "snapshot": decision.snapshot_digest,
        "now": decision.now_ms,
        "seed": decision.seed,
        "evaluateAll": decision.evaluate_all,
        "outcome": decision.outcome.value,
        "node": decision.node,
        "victims": [_victim(victim) for victim in decision.victims],
        "candidates": {
            "count": len(decision.candidates),
            "criteria": decision.candidates.criteria,
            "best": [_candidate(candidate) for candidate in decision.candidates[:kept]],
        },
        "trace": {
            "fits": trace.fits,
            "eligible": trace.eligible,
            "rejected": trace.rejected,
            "filterStatuses": _counted(trace.filter_statuses),
            "rules": [_fields(rule) for rule in trace.rules],
            "potentialNodes": len(trace.potential_nodes),
            "sampling": None if trace.sampling is None else _fields(trace.sampling),
            "dryRunStatuses": _counted(trace.dry_run_statuses),
            "ranking": [_fields(step) for step in trace.ranking],
            "decidedBy": trace.decided_by,
            "checks": [_fields(check) for check in trace.checks],
            "message": trace.message,
            "scores": trace.scores,
            "extenderCalls": [_fields(call) for call in trace.extender_calls],
        },
        "effects": _fields(decision.effects),
    }


_VICTIM: Final = (
    "pod",
    "uid",
    "node",
    "priority",
    "priority_class",
    "owner",
    "run_seconds",
    "cpu_milli",
    "memory_bytes",
    "pdb_violating",
    "already_terminating",
    "filter",
    "reasons",
)


def _victim(victim: Any) -> dict[str, Any]:
    start = None if victim.start_ms == times.MISSING else victim.start_ms
    return {**{name: getattr(victim, name) for name in _VICTIM}, "start_ms": start}


def _candidate(candidate: Any) -> dict[str, Any]:
    return {
        "node": candidate.node,
        "victims": candidate.victims,
        "pdbViolations": candidate.pdb_violations,
        "values": candidate.values,
        "eliminatedBy": candidate.eliminated_by,
    }


def _recorded(filters: Sequence[StoredFilter], phase: str) -> list[dict[str, Any]]:
    return [
        {"code": f.code, "filter": f.filter, "reasons": f.reasons, "nodes": f.node_count}
        for f in filters
        if f.phase == phase
    ]


def _counted(statuses: NodeStatuses) -> list[dict[str, Any]]:
    """Distinct statuses with their nodes, summed up where a record sums them up."""
    counted = statuses.counts()
    if len(counted) > MAX_STATUSES:
        sums: dict[tuple[int, str], int] = {}
        for status, nodes in counted:
            key = (int(status.code), status.filter)
            sums[key] = sums.get(key, 0) + nodes
        return [
            {"code": code, "filter": name, "reasons": (), "nodes": nodes}
            for (code, name), nodes in sums.items()
        ]
    return [
        {"code": int(s.code), "filter": s.filter, "reasons": s.reasons, "nodes": nodes}
        for s, nodes in counted
    ]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
