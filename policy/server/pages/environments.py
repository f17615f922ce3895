"""What is active, since when, by whom? Activations and rollbacks."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from policy.server import views
from policy.server.http import Failure, in_thread, of_store
from policy.server.pages.surface import Pages, form_of, require_own
from policy.server.security.access import Principal
from policy.store import StoreError


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    rows = await in_thread(pages.service.store.read.environments)
    found = [views.environment(row) for row in rows]
    return pages.page(request, principal, "environments.html", found=found)


async def show_one(
    pages: Pages, request: Request, principal: Principal, *, message: str = "", status: int = 200
) -> Response:
    store = pages.service.store
    row = await in_thread(store.read.environment, request.path_params["name"])
    activations = await in_thread(store.read.activations, row.name)
    return pages.page(
        request,
        principal,
        "environment.html",
        status=status,
        told=views.environment(row),
        activations=[views.activation(one) for one in activations],
        names=[one["name"] for one in views.rule_sets(pages.service) if one["shipped"]],
        message=message,
    )


async def activate(pages: Pages, request: Request, principal: Principal) -> Response:
    def change(name: str, form: dict[str, str]) -> None:
        views.activate(
            pages.service,
            principal,
            name,
            rules=form.get("rules", ""),
            reason=form.get("reason", ""),
        )

    return await _changed(pages, request, principal, change)


async def roll_back(pages: Pages, request: Request, principal: Principal) -> Response:
    def change(name: str, form: dict[str, str]) -> None:
        views.roll_back(pages.service, principal, name, reason=form.get("reason", ""))

    return await _changed(pages, request, principal, change)


async def _changed(
    pages: Pages,
    request: Request,
    principal: Principal,
    change: Callable[[str, dict[str, str]], None],
) -> Response:
    form = await form_of(request)
    require_own(pages.access, request, form)
    name = request.path_params["name"]
    try:
        await in_thread(change, name, form)
    except Failure as exc:
        return await show_one(pages, request, principal, message=exc.message, status=exc.status)
    except StoreError as exc:
        refused = of_store(exc)
        return await show_one(
            pages, request, principal, message=refused.message, status=refused.status
        )
    return RedirectResponse(f"/environments/{quote(name, safe='')}", status_code=303)
