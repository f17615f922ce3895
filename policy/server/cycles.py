"""Cycles of pod groups as the API and the pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policy.audit.compare import Comparison
from policy.audit.documents import instant
from policy.audit.group_compare import ComparingCycles
from policy.audit.recorded import Skipped
from policy.rules import RuleSet
from policy.server.service import PolicyService
from policy.store import NotFound, SessionRow
from policy.store.record.groups import KIND, document_of


def cycles(
    service: PolicyService, cluster: str | None, *, limit: int, after: int | None
) -> list[SessionRow]:
    """Recorded cycles, newest first. after: only older ones than this."""
    return service.store.read.sessions(cluster, kind=KIND, limit=limit, before_id=after)


def line(row: SessionRow) -> dict[str, Any]:
    """A cycle in a list."""
    return {
        "id": row.id,
        "now": instant(row.now_ms),
        "group": row.subject,
        "outcome": row.outcome,
        "bound": row.bound_count,
        "evicted": row.evicted_count,
        "rule_set": row.rule_set,
        "cluster": row.cluster,
    }


def cycle(service: PolicyService, wanted: str) -> dict[str, Any]:
    """One cycle whole: members, gates, units, passes, victims, effects. Raises NotFound."""
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 19 else 0
    stored = service.store.read.session(number)
    if stored.row.kind != KIND:
        raise NotFound(f"there is no cycle {number} of a pod group")
    row = stored.row
    return {
        **document_of(stored),
        **line(row),
        "at": instant(row.at_ms),
        "actor": row.actor,
        "environment": row.environment,
        "base_revision": row.base_revision,
        "revision": row.revision,
        "hypothetical": row.hypothetical,
        "digest": row.digest,
    }


def compared(
    service: PolicyService, ids: Sequence[int], rules: RuleSet
) -> list[Comparison | Skipped]:
    """Cycles under other rules, in the order of their numbers. Raises NotFound."""
    return list(ComparingCycles(rules)(service.store, sorted(set(ids))))


def told(found: Comparison | Skipped) -> Mapping[str, Any]:
    """What became of a decision or cycle under other rules."""
    if isinstance(found, Skipped):
        return {"id": found.id, "skipped": [item.value for item in found.missing]}
    return {
        "id": found.id,
        "change": found.change.value,
        "before": {"outcome": found.before.outcome.value, "node": found.before.node},
        "after": {"outcome": found.after.outcome.value, "node": found.after.node},
    }
