"""Preemptions of real schedulers, and what the rules that a team wants would have done."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant
from policy.audit.rule_sets import single_pod_names
from policy.server import views
from policy.server.http import Failure, in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store.observed import ObservationRow, VerdictClass

MOST: Final = 200
"""How many the page looks at, the newest."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    given = request.query_params
    verdict, rules = given.get("verdict", "")[:20], given.get("rules", "")[:253]
    found = await in_thread(observed, pages.service, principal, verdict=verdict, rules=rules)
    names = single_pod_names()
    return pages.page(
        request,
        principal,
        "observed.html",
        names=names,
        limited=principal.limited,
        **found,
    )


def observed(
    service: PolicyService, principal: Principal, *, verdict: str, rules: str
) -> dict[str, Any]:
    """The newest ones; rules: what they are set against, "" for nothing. Raises Failure.

    Who is limited to namespaces sees their part of each, and neither sums nor gaps.
    """
    verdicts = [one.value for one in VerdictClass]
    if verdict and verdict not in verdicts:
        raise Failure(400, "invalid", f"`verdict` is none of {', '.join(verdicts)}")
    wanted = {"verdict": verdict or None}
    rows, documents = views.observations(service, principal, wanted, limit=MOST)
    gaps = [] if principal.limited else service.store.read.gaps()
    values: dict[str, Any] = {
        "lines": [_line(one) for one in documents],
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
    if rules and not principal.limited:
        values["against"] = _against(service, rows, rules)
    return values


def _line(told: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "cluster", "preemptor", "node", "confidence", "verdict")
    return {
        **{name: told[name] for name in names},
        "at": told["now"],
        "victims": [victim["victim"] for victim in told["victims"]],
        "reason": told.get("reason", ""),
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
