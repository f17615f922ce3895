"""Preemptions of real schedulers, and what the rules that a team wants would have done."""

from __future__ import annotations

from typing import Any, Final

from policy.audit.documents import instant
from policy.server import views
from policy.server.http import Failure
from policy.server.service import PolicyService
from policy.store.observed import ObservationRow, VerdictClass

MOST: Final = 200
"""How many the page looks at, the newest."""


def observed(service: PolicyService, *, verdict: str, rules: str) -> dict[str, Any]:
    """The newest ones; rules: what they are set against, "" for nothing. Raises Failure."""
    verdicts = [one.value for one in VerdictClass]
    if verdict and verdict not in verdicts:
        raise Failure(400, "invalid", f"`verdict` is none of {', '.join(verdicts)}")
    rows = service.store.read.observations(verdict=verdict or None, limit=MOST)
    gaps = service.store.read.gaps()
    values: dict[str, Any] = {
        "lines": [_line(row) for row in rows],
        "verdict": verdict,
        "verdicts": verdicts,
        "most": MOST,
        "gaps": [
            {
                "kind": gap.kind,
                "since": "" if gap.since_ms is None else instant(gap.since_ms),
                "until": instant(gap.until_ms),
                "reason": gap.reason,
                "cluster": gap.cluster,
            }
            for gap in gaps[:10]
        ],
        "gap_count": len(gaps),
        "rules": rules,
        "against": None,
    }
    if rules:
        values["against"] = _against(service, rows, rules)
    return values


def _line(row: ObservationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "cluster": row.cluster,
        "at": instant(row.now_ms),
        "preemptor": row.preemptor,
        "node": row.node,
        "victims": [victim.victim for victim in row.victims],
        "confidence": row.confidence,
        "verdict": row.verdict,
        "reason": row.reason,
    }


def _against(service: PolicyService, rows: list[ObservationRow], rules: str) -> dict[str, Any]:
    from policy.audit.observed.against import compare, sums, total

    compared = list(compare(service.store, rows, views.rule_set(service, rules)))
    lines = sums(compared)
    return {
        "lines": lines,
        "total": total(lines),
        "undecided": [
            {"id": row.observation.id, "why": row.detail} for row in compared if not row.outcome
        ],
        "count": len(compared),
    }
