"""Figures of the first page: is preemption healthy now?"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant
from policy.server import views
from policy.server.http import in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import DecisionRow
from policy.store.model.decisions import Origin

_HOUR_MS: Final = 3_600_000
_LOOKED_AT: Final = 1000


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    figures = await in_thread(overview, pages.service, principal)
    return pages.page(request, principal, "overview.html", **figures)


def overview(service: PolicyService, principal: Principal) -> dict[str, Any]:
    """The last 24 hours, of the newest decisions at most; environments, and the ledger."""
    now_ms = service.clock()
    since_ms = now_ms - 24 * _HOUR_MS
    rows, lines = views.decisions(service, principal, {"since_ms": since_ms}, limit=_LOOKED_AT)
    preempting = [row for row in rows if row.outcome == "preempt" and _carried_out(row)]
    by_hour = Counter((row.now_ms - since_ms) // _HOUR_MS for row in preempting)
    victims = service.store.read.victims_of([row.id for row in preempting])
    hit: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    for found in victims.values():
        for victim in found:
            namespace, _, name = victim.pod.partition("/")
            # One that was leaving already is a victim again without being hit again.
            if not victim.already_terminating and principal.sees(namespace):
                namespaces[namespace] += 1
                hit[f"{namespace}/{victim.owner.partition('/')[2] or name}"] += 1
    most = max(by_hour.values(), default=0)
    store = service.store
    limited = principal.limited
    return {
        "lines": lines[:10],
        "preemptions": len(preempting),
        "capped": len(rows) == _LOOKED_AT,
        "bars": [
            {
                "x": 4 + i * 12,
                "y": 60 - round(56 * by_hour[i] / most) if most else 60,
                "height": round(56 * by_hour[i] / most) if most else 0,
                "count": by_hour[i],
                "hour": instant(since_ms + i * _HOUR_MS)[11:16],
            }
            for i in range(24)
        ],
        "observed": _observed(service, principal),
        "outcomes": Counter(row.outcome for row in rows).most_common(),
        "namespaces": namespaces.most_common(8),
        "hit": hit.most_common(8),
        "environments": []
        if limited
        else [views.environment(row) for row in store.read.environments()],
        "heads": []
        if limited
        else [
            {"cluster": head.cluster, "sequence": head.sequence, "at": instant(head.at_ms)}
            for head in store.ledger.heads()
        ],
        "spool": 0 if limited else service.spool.depth(),
    }


def _observed(service: PolicyService, principal: Principal) -> list[tuple[str, int]]:
    """The newest preemptions by the clusters' own schedulers: how many of each verdict."""
    rows = service.store.read.observations(limit=_LOOKED_AT, namespaces=principal.namespaces)
    return Counter(row.verdict for row in rows).most_common()


def _carried_out(row: DecisionRow) -> bool:
    """Was it more than the judgement of a call that was answered otherwise, as in shadow mode?"""
    return row.origin != Origin.EXTENDER or row.revision is not None
