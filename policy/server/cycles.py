"""Cycles of pod groups as the API and the pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from policy.audit.compare import Comparison
from policy.audit.compare_documents import comparison_document
from policy.audit.documents import recorded_cycle
from policy.audit.group_compare import ComparingCycles
from policy.audit.recorded import Skipped
from policy.rules import RuleSet
from policy.server import views
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store import SessionRow
from policy.store.record.groups import KIND, document_of
from policy.store.record.sessions import no_session


def cycles(
    service: PolicyService,
    principal: Principal,
    wanted: Mapping[str, Any],
    *,
    limit: int,
) -> tuple[list[SessionRow], list[dict[str, Any]]]:
    """Rows and lines of recorded cycles, newest first; with `after_id` walking forward.

    wanted: as of `views.sessions`. Raises Failure.
    """
    rows = views.sessions(service, principal, wanted, kind=KIND, limit=limit)
    ids = [row.id for row in rows]
    evicted = service.store.read.evicted_in(ids) if principal.limited else {}
    return rows, [scope.cycle_line(principal, row, evicted.get(row.id, ())) for row in rows]


def cycle(service: PolicyService, principal: Principal, wanted: str) -> dict[str, Any]:
    """One cycle whole: members, gates, units, passes, victims, effects.

    Raises NotFound, also where the viewer may not know of it.
    """
    stored = views.numbered(
        principal,
        Numbered.SESSION,
        wanted,
        lambda n: service.store.read.session(n, kind=KIND, namespaces=principal.namespaces),
        partial(no_session, kind=KIND),
    )
    if principal.limited:
        return scope.cycle(principal, stored)
    line = scope.cycle_line(principal, stored.row, ())
    return {**document_of(stored), **line, **recorded_cycle(stored)}


def compared(
    service: PolicyService, ids: Sequence[int], rules: RuleSet
) -> list[Comparison | Skipped]:
    """Cycles under other rules, in the order of their numbers. Raises NotFound."""
    return list(ComparingCycles(rules)(service.store, sorted(set(ids))))


def told(found: Comparison | Skipped) -> Mapping[str, Any]:
    """What became of a decision or cycle under other rules."""
    if isinstance(found, Skipped):
        missing = [item.value for item in found.missing]
        return {"id": found.id, "skipped": missing, "detail": found.detail}
    return comparison_document(found)
