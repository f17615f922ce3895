"""What is kept of a decision: all of it but what grows with the cluster.

One value is made of a decision here, and everything else of that value: the rows of the database,
what a dry run shows, and the differences of two decisions. The statuses of single nodes and the
candidates beyond the kept ones are in the digest only; a replay brings them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from policy.decision.model import (
    BudgetViolation,
    Candidate,
    Candidates,
    Decision,
    DecisionFields,
    KeptCandidates,
    NodeStatuses,
    Outcome,
    PodCheck,
    StatusCount,
    TraceFields,
    field_names,
)

Keep: TypeAlias = int | Literal["all", "chosen"]
"""How many candidates of a decision are kept; the others come back by replay."""

MAX_STATUSES: Final = 64
"""Distinct statuses per phase that are kept one by one; more are summed up per filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord(TraceFields):
    """How the decision came about, as far as it is kept."""

    filter_statuses: tuple[StatusCount, ...]
    potential_nodes: int
    dry_run_statuses: tuple[StatusCount, ...]
    checks: tuple[PodCheck, ...]


@dataclass(frozen=True, kw_only=True)
class DecisionRecord(DecisionFields):
    """Everything that is kept of a decision."""

    candidates: KeptCandidates
    trace: TraceRecord
    digest: str  #: of the decision, not of this record

    def evicted(self, *, hypothetical: bool) -> frozenset[str]:
        """The victims that really leave, by namespace/name."""
        takes = self.outcome is Outcome.PREEMPT and not hypothetical
        return frozenset(self.effects.evict) if takes else frozenset()


def record_of(decision: Decision, *, keep: Keep = "all") -> DecisionRecord:
    """What is kept of a decision."""
    trace, found = decision.trace, decision.candidates
    kept = {"all": len(found), "chosen": 1}[keep] if isinstance(keep, str) else keep
    summed = {
        "filter_statuses": counted(trace.filter_statuses),
        "potential_nodes": len(trace.potential_nodes),
        "dry_run_statuses": counted(trace.dry_run_statuses),
        "checks": tuple(trace.checks),
    }
    best: tuple[Candidate, ...] = tuple(found[:kept])
    candidates = KeptCandidates(
        count=len(found),
        criteria=found.criteria,
        pdb_violations=found.pdb_violations[0] if found else 0,
        best=best,
        violations=_violations_of(best, found),
    )
    parts = {"candidates": candidates, "trace": TraceRecord(**{**values_of(trace), **summed})}
    return DecisionRecord(**{**values_of(decision), **parts}, digest=decision.digest)


def _violations_of(best: Sequence[Candidate], found: Candidates) -> tuple[BudgetViolation, ...]:
    """Those of some of the candidates found."""
    if len(best) == len(found):
        return tuple(found.violations)
    nodes = {candidate.node for candidate in best}
    return tuple(broken for broken in found.violations if broken.node in nodes)


def line_of(record: DecisionRecord) -> dict[str, Any]:
    """The record's single values by name, those of its trace included, and what counts the rest."""
    found = record.candidates
    return {
        **values_of(record),
        **values_of(record.trace),
        "outcome": record.outcome.value,
        "victim_count": len(record.victims),
        "pdb_violations": found.pdb_violations,
        "candidate_count": found.count,
        "kept_candidates": len(found.best),
        "nomination": record.effects.nomination.value,
    }


def values_of(value: Any) -> dict[str, Any]:
    """The fields of a part of a decision by name, not copied."""
    kind: type = type(value)
    names, read = _reader(kind)
    return dict(zip(names, read(value), strict=True))


@cache
def _reader(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of the fields, of which there are several, and what reads all of them at once."""
    names = field_names(kind)
    assert len(names) > 1
    return names, attrgetter(*names)


def counted(statuses: NodeStatuses) -> tuple[StatusCount, ...]:
    """Distinct statuses with their node counts, a bounded number of them."""
    counted = statuses.counts()
    if len(counted) <= MAX_STATUSES:
        return tuple(StatusCount(**values_of(status), nodes=n) for status, n in counted)
    sums: dict[tuple[Any, str], int] = {}
    for status, nodes in counted:
        sums[status.code, status.filter] = sums.get((status.code, status.filter), 0) + nodes
    return tuple(
        StatusCount(code=code, filter=name, reasons=(), nodes=nodes)
        for (code, name), nodes in sums.items()
    )
