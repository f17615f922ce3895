"""Why there, why these pods? One decision."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from policy.rules.criteria import instant_criteria
from policy.server import views
from policy.server.http import Failure, in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.store import NotFound


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    wanted = request.path_params["id"]
    stored = await in_thread(views.stored_decision, pages.service, principal, wanted)
    told = views.decision(principal, stored)
    node = request.query_params.get("why_not", "").strip()
    answer = ""
    if node and not principal.limited:
        try:
            found = await in_thread(views.why_not, pages.service, stored, node[:253])
            answer = found["text"]
        except Failure as exc:
            answer = exc.message
    return pages.page(
        request,
        principal,
        "decision.html",
        told=told,
        node=node,
        answer=answer,
        instants=await in_thread(_instants, pages, stored.row.rule_set_digest),
    )


def _instants(pages: Pages, digest: str) -> frozenset[str]:
    """Criteria whose values are instants; none where the rule set is gone."""
    try:
        return instant_criteria(pages.service.store.read.rule_set(digest))
    except NotFound:
        return frozenset()
