"""Findings in words and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from policy.proving.questions import Proof, ProvenClaim
from policy.proving.solver import version
from policy.proving.world import ASSUMPTIONS
from policy.rules.ruleset import RuleSet

NOT_COMPARED: Final = (
    "`maxVictims`",
    "filters",
    "importance and ranking",
    "which nodes are candidates",
    "effects and extenders",
)
"""What claims do not speak of: they are about who may be a victim, for whom."""

_WORST: Final = (Proof.REFUTED, Proof.UNKNOWN, Proof.BUDGETS, Proof.PROVED)


def overall(findings: Sequence[ProvenClaim]) -> Proof:
    """The worst verdict of all claims."""
    return min((finding.verdict for finding in findings), key=_WORST.index)


def words(rules: RuleSet, findings: Sequence[ProvenClaim]) -> Iterator[str]:
    """Lines for people."""
    for finding in findings:
        yield f"{finding.verdict.value}: {finding.claim} ({finding.solver_seconds:.2f} s)"
        yield from (f"  {line}" for line in _details(finding))
    yield f"about: `{rules.name}`, {rules.digest}"
    yield f"assumed: {'; '.join(ASSUMPTIONS)}"
    yield f"not compared: {', '.join(NOT_COMPARED)}"


def _details(finding: ProvenClaim) -> Iterator[str]:
    if finding.detail:
        yield finding.detail
    for name, side in finding.sides:
        yield f"`{name}` {side}"
    if finding.example is not None:
        yield from finding.example.text.splitlines()
    for part in finding.not_understood:
        yield f"not understood, so it may have any value: `{part}`"


def document(rules: RuleSet, findings: Sequence[ProvenClaim]) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "rules": rules.name,
        "digest": rules.digest,
        "verdict": overall(findings).value,
        "findings": [_finding(finding) for finding in findings],
        "assumed": list(ASSUMPTIONS),
        "notCompared": list(NOT_COMPARED),
        "solver": version(),
    }


def _finding(finding: ProvenClaim) -> dict[str, Any]:
    return {
        "claim": finding.claim,
        "verdict": finding.verdict.value,
        "detail": finding.detail,
        "sides": [
            {"rules": name, "taken": side.taken, "section": side.section, "rule": side.rule}
            for name, side in finding.sides
        ],
        "case": finding.example.text if finding.example is not None else None,
        "notUnderstood": list(finding.not_understood),
        "solverSeconds": round(finding.solver_seconds, 3),
        "wallSeconds": round(finding.wall_seconds, 3),
    }
