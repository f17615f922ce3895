"""What is active, since when, by whom? Activations and rollbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from policy.audit.rule_sets import RulesKind, shipped_kinds, single_pod_names
from policy.server import views
from policy.server.api.models import MOST_JUDGED
from policy.server.http import Failure, in_thread, of_store
from policy.server.pages import judging
from policy.server.pages.surface import Pages, form_of, require_own
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import NotFound, StoreError

NEWEST: Final = 100
"""Decisions that a candidate is tried on where the reader says no number."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    rows = await in_thread(pages.service.store.read.environments)
    found = [views.environment(row) for row in rows]
    return pages.page(request, principal, "environments.html", found=found)


async def opened(pages: Pages, request: Request, principal: Principal) -> Response:
    """The page of one; the address of one of its forms, opened again, leads back to it."""
    try:
        return await show_one(pages, request, principal)
    except NotFound:
        name, _, form = request.path_params["name"].rpartition("/")
        if not name or form not in FORMS:
            raise
        return _back(name)


async def show_one(
    pages: Pages,
    request: Request,
    principal: Principal,
    *,
    failure: Failure | None = None,
    entered: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """The page of one; failure, entered: why a form was refused, and what was in it."""
    given = request.query_params
    values, problem = await in_thread(_one, pages.service, request.path_params["name"], given)
    failure = failure or problem
    candidate = given.get("candidate", "")[:253]
    return pages.page(
        request,
        principal,
        "environment.html",
        status=200 if failure is None else failure.status,
        failure=failure,
        candidate=candidate,
        entered={"rules": candidate, "reason": "", **entered},
        most=MOST_JUDGED,
        **values,
    )


def _one(
    service: PolicyService, name: str, given: Mapping[str, str]
) -> tuple[dict[str, Any], Failure | None]:
    """What the page shows, and why a candidate cannot be judged. Raises Failure, NotFound."""
    store = service.store
    row = store.read.environment(name)
    active = store.read.active_rule_set(name) if row.active is not None else None
    batch = active is not None and active.batch
    values: dict[str, Any] = {
        "told": views.environment(row),
        "activations": [views.activation(one) for one in store.read.activations(name)],
        "batch": batch,
        "names": [
            name
            for name, kind in shipped_kinds().items()
            if active is None or (kind is RulesKind.BATCH) == batch
        ],
        "single_names": single_pod_names(),
        "n": NEWEST,
        "report": None,
    }
    candidate = given.get("candidate", "")[:253]
    if not candidate:
        return values, None
    try:
        values["n"] = judging.count_of(given, NEWEST)
        values["report"] = judging.report(service, candidate, n=values["n"], cluster=row.cluster)
    except Failure as exc:
        return values, exc
    except StoreError as exc:
        return values, of_store(exc)
    return values, None


async def activate(pages: Pages, request: Request, principal: Principal) -> Response:
    def change(name: str, form: dict[str, str]) -> None:
        views.activate(
            pages.service,
            principal,
            name,
            rules=form.get("rules", ""),
            reason=form.get("reason", ""),
        )

    return await _changed(pages, request, principal, change, ("rules", "reason"))


async def roll_back(pages: Pages, request: Request, principal: Principal) -> Response:
    def change(name: str, form: dict[str, str]) -> None:
        views.roll_back(pages.service, principal, name, reason=form.get("reason", ""))

    return await _changed(pages, request, principal, change, ())


async def _changed(
    pages: Pages,
    request: Request,
    principal: Principal,
    change: Callable[[str, dict[str, str]], None],
    kept: Sequence[str],
) -> Response:
    """kept: fields that the page has again where the form is refused."""
    form = await form_of(request)
    require_own(pages.access, request, form)
    name = request.path_params["name"]
    try:
        await in_thread(change, name, form)
    except Failure as exc:
        failure = exc
    except StoreError as exc:
        failure = of_store(exc)
    else:
        return _back(name)
    entered = {field: form.get(field, "")[:2000] for field in kept}
    return await show_one(pages, request, principal, failure=failure, entered=entered)


def _back(name: str) -> Response:
    """To the page of an environment."""
    return RedirectResponse(f"/environments/{quote(name, safe='')}", status_code=303)


FORMS: Final = {"activate": activate, "rollback": roll_back}
"""What the forms of the page of an environment do, by the end of their addresses."""
