"""What would other rules have done?"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.recorded import Skipped
from policy.audit.rule_sets import single_pod_names
from policy.server.api.models import MOST_JUDGED
from policy.server.http import in_thread
from policy.server.pages import judging
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService

NEWEST: Final = 200
"""Decisions that are judged where the reader says no number."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    given = request.query_params
    wanted = {name: given.get(name, "")[:253] for name in ("rules", "cluster", "open")}
    n = judging.count_of(given, NEWEST)
    # The address of one change alone judges that one alone.
    listed = bool(wanted["rules"]) and (not wanted["open"] or "n" in given)
    values = await in_thread(_found, pages.service, wanted, n, listed=listed)
    return pages.page(
        request,
        principal,
        "compare.html",
        rules=wanted["rules"],
        cluster=wanted["cluster"],
        open=wanted["open"],
        n=n,
        most=MOST_JUDGED,
        shown=judging.SHOWN,
        **values,
    )


def _found(
    service: PolicyService, wanted: dict[str, str], n: int, *, listed: bool
) -> dict[str, Any]:
    """What the page shows. Raises Failure, NotFound."""
    rules, one = wanted["rules"], None
    report = judging.report(service, rules, n=n, cluster=wanted["cluster"]) if listed else None
    if rules and wanted["open"]:
        one = judging.opened(service, rules, wanted["open"])
    return {
        "names": single_pod_names(),
        "clusters": sorted({row.cluster for row in service.store.read.environments()}),
        "report": report,
        "one": one,
        "sides": None
        if one is None or isinstance(one.found, Skipped)
        else judging.sides(one.found),
    }
