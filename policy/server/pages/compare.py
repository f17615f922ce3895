"""What would other rules have done?"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.recorded import Skipped
from policy.audit.rule_sets import single_pod_names
from policy.server.api.models import MOST_JUDGED
from policy.server.http import Failure, in_thread
from policy.server.pages import judging
from policy.server.pages.surface import Pages, mendable
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import StoreError

NEWEST: Final = 200
"""Decisions that are judged where the reader says no number."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    """The report; where a field is wrong, the error in its place, so that it can be mended."""
    given = request.query_params
    wanted = {name: given.get(name, "")[:253] for name in ("rules", "cluster", "open")}
    # The address of one change alone judges that one alone.
    listed = bool(wanted["rules"]) and (not wanted["open"] or "n" in given)
    values: dict[str, Any] = {"report": None, "one": None, "sides": None}
    failure = None
    try:
        judging.require_rules(given, "rules", ("n", "cluster", "open"))
        n = judging.count_of(given, NEWEST)
        values |= await pages.service.long_work.of(
            request, principal.name, _judged, pages.service, wanted, n, listed=listed
        )
    except (Failure, StoreError) as exc:
        failure = mendable(exc)
    values |= await in_thread(_choices, pages.service)
    return await pages.page(
        request,
        principal,
        "compare.html",
        status=200 if failure is None else failure.status,
        failure=failure,
        rules=wanted["rules"],
        cluster=wanted["cluster"],
        open=wanted["open"],
        n=given.get("n", "").strip()[:20] or NEWEST,
        most=MOST_JUDGED,
        shown=judging.SHOWN,
        **values,
    )


def _choices(service: PolicyService) -> dict[str, Any]:
    """What the fields of the form propose."""
    return {
        "names": single_pod_names(),
        "clusters": sorted({row.cluster for row in service.store.read.environments()}),
    }


def _judged(
    service: PolicyService, wanted: dict[str, str], n: int, *, listed: bool
) -> dict[str, Any]:
    """What is shown below the form. Raises Failure, StoreError."""
    rules, one = wanted["rules"], None
    report = judging.report(service, rules, n=n, cluster=wanted["cluster"]) if listed else None
    if rules and wanted["open"]:
        one = judging.opened(service, rules, wanted["open"])
    return {
        "in_cluster": wanted["cluster"],
        "report": report,
        "one": one,
        "sides": None
        if one is None or isinstance(one.found, Skipped)
        else judging.sides(one.found),
    }
