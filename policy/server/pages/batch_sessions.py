"""Batch sessions: the list, and one of them."""

from __future__ import annotations

from itertools import islice
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.sentences import session_ended
from policy.server import batch_sessions
from policy.server.api.table import EXPORT_SESSIONS, SESSIONS, sessions_wanted
from policy.server.batch_sessions import STEPS
from policy.server.http import in_thread
from policy.server.pages.parameters import require_choice
from policy.server.pages.session_lists import show_list
from policy.server.pages.surface import Pages, after
from policy.server.security.access import Principal
from policy.server.service import PolicyService


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    return await show_list(
        pages,
        request,
        principal,
        "sessions.html",
        operation=SESSIONS,
        export=EXPORT_SESSIONS,
        wanted=sessions_wanted,
        read=batch_sessions.sessions,
    )


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    wanted, behind = request.path_params["id"], after(request)
    require_choice(request.query_params, "show", ("effects",))
    if principal.limited:
        values = await in_thread(_own, pages.service, principal, wanted, behind or 0)
        return await pages.page(request, principal, "session_own.html", **values)
    effective = request.query_params.get("show") == "effects"
    values = await in_thread(_one, pages.service, principal, wanted, effective, behind)
    return await pages.page(request, principal, "session.html", **values)


def _one(
    service: PolicyService,
    principal: Principal,
    wanted: str,
    effective: bool,
    behind: int | None,
) -> dict[str, Any]:
    """What the page shows of a session; behind: position of the last step before. Raises NotFound.

    effective: only steps that bound or evicted a pod.
    """
    found = batch_sessions.page_of(service, principal, wanted, effective=effective, after=behind)
    told = found["told"]
    address = f"/sessions/{told['id']}"
    kept = {"show": "effects"} if effective else {}
    start = f"{address}?{urlencode(kept)}" if kept else address
    more = {} if found["after"] is None else {**kept, "after": found["after"]}
    return {
        **found,
        "ended": session_ended(
            bound=told["bound"], evicted=told["evicted"], waiting=told["waiting"]
        ),
        "effective": effective,
        "all": told["bound"] + told["evicted"] if effective else found["count"],
        "page": STEPS,
        "address": address,
        "first": "" if behind is None else start,
        "next": f"{address}?{urlencode(more)}" if more else "",
    }


def _own(service: PolicyService, principal: Principal, wanted: str, behind: int) -> dict[str, Any]:
    """What a limited viewer is shown; behind: how many of its steps came before. Raises NotFound.

    Its steps are counted, and not named by their positions, which tell of those of others.
    """
    told = batch_sessions.own_session(service, principal, wanted)
    address = f"/sessions/{told['id']}"
    shown = list(islice(told["steps"], behind, behind + STEPS))
    more = behind + len(shown) < len(told["steps"])
    return {
        "told": told,
        "steps": shown,
        "behind": behind,
        "page": STEPS,
        "first": address if behind else "",
        "next": f"{address}?after={behind + len(shown)}" if more else "",
    }
