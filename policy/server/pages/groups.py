"""Cycles of pod groups: the list, and one of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from policy.server import cycles
from policy.server.http import in_thread
from policy.server.pages.surface import PAGE, Pages, after
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    rows, lines = await in_thread(
        cycles.cycles, pages.service, principal, limit=PAGE, before_id=after(request)
    )
    return pages.page(
        request,
        principal,
        "groups.html",
        lines=lines,
        older=f"/groups?after={rows[-1].id}" if len(rows) == PAGE else "",
    )


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    told = await in_thread(cycles.cycle, pages.service, principal, request.path_params["id"])
    return pages.page(request, principal, "group.html", told=told)
