"""What decides here? The rule sets, and one of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from policy.server import views
from policy.server.http import in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    found = await in_thread(views.rule_sets, pages.service)
    return pages.page(request, principal, "rules.html", found=found)


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    found = await in_thread(views.rule_set, pages.service, request.path_params["name"])
    told = views.described(found)
    judged = await in_thread(views.judged, request.path_params["name"], found)
    other = request.query_params.get("diff", "")
    changes = None
    if other:
        old = await in_thread(views.rule_set, pages.service, other[:253])
        changes = views.differences(old, found)
    return pages.page(
        request,
        principal,
        "rule_set.html",
        told=told,
        judged=judged,
        other=other,
        changes=changes,
    )
