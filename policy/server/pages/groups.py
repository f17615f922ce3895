"""Cycles of pod groups: the list, and one of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.sentences import contradicted, cycle_ended
from policy.decision.groups import GroupOutcome
from policy.server import cycles
from policy.server.api.table import CYCLES, EXPORT_CYCLES, cycles_wanted
from policy.server.http import in_thread
from policy.server.pages.session_lists import show_list
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    return await show_list(
        pages,
        request,
        principal,
        "groups.html",
        operation=CYCLES,
        export=EXPORT_CYCLES,
        wanted=cycles_wanted,
        read=cycles.cycles,
        outcomes=[one.value for one in GroupOutcome],
    )


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    values = await in_thread(_one, pages.service, principal, request.path_params["id"])
    return await pages.page(request, principal, "group.html", **values)


def _one(service: PolicyService, principal: Principal, wanted: str) -> dict[str, Any]:
    """What the page shows. Raises NotFound."""
    told = cycles.cycle(service, principal, wanted)
    simulated = told["cluster"] in service.store.read.kept_simulations()
    only = told["cluster"] if simulated else ""
    if principal.limited:
        return {"told": told, "in_cluster": only}
    outcomes = service.store.read.outcomes_of_sessions([told["id"]])
    return {
        "told": told,
        "in_cluster": only,
        "ended": cycle_ended(told),
        "contradicted": [contradicted(one) for one in outcomes.get(told["id"], ())],
        "vain": {one["pod"] for one in told["not_carried_out"]},
    }
