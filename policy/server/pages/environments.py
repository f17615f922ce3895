"""What is active, since when, by whom? Activations and rollbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from policy.audit.rule_sets import RulesKind, shipped_kinds, single_pod_names
from policy.server import environments, views
from policy.server.api.models import MOST_JUDGED
from policy.server.http import Failure, in_thread, of_store
from policy.server.pages import judging
from policy.server.pages.surface import UNSENT, Pages, form_of, require_own
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import NotFound, StoreError
from policy.store.record.environments import ActivationChanged

NEWEST: Final = 100
"""Decisions that a candidate is tried on where the reader says no number."""
_TRY: Final = "try"
"""The form that tries a candidate."""
_ACTIVE: Final = "active"
"""Field of a form: the activation that its page shows as the active one, 0 for none."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    rows = await in_thread(pages.service.store.read.environments)
    found = [environments.environment(row) for row in rows]
    return await pages.page(request, principal, "environments.html", found=found)


async def opened(pages: Pages, request: Request, principal: Principal) -> Response:
    """The page of one; the address of one of its forms, opened again, leads back to it."""
    try:
        return await show_one(pages, request, principal)
    except NotFound:
        name, _, form = request.path_params["name"].rpartition("/")
        if not name or form not in FORMS:
            raise
        return _back(name, unsent=form if UNSENT in request.query_params else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A form that did nothing, and why."""

    form: str  #: of `FORMS`, or `_TRY`
    failure: Failure
    entered: Mapping[str, str]  #: what the page shows in it again


async def show_one(
    pages: Pages, request: Request, principal: Principal, *, refused: Refused | None = None
) -> Response:
    """The page of one; refused: what led here."""
    given = request.query_params
    candidate = given.get("candidate", "")[:253]
    name = request.path_params["name"]
    values, problem = await pages.work(
        request, principal, bool(candidate), _one, pages.service, name, given
    )
    if problem is not None:
        refused = Refused(form=_TRY, failure=problem, entered={})
    newest = values["told"]["active"]
    fields = {"rules": candidate, "reason": "", _ACTIVE: newest["id"] if newest else 0}
    return await pages.page(
        request,
        principal,
        "environment.html",
        status=200 if refused is None else refused.failure.status,
        failure=None if refused is None else refused.failure,
        # What is wrong is wrong with a field of that form: others have fields of the same name.
        failures={} if refused is None else {refused.form: refused.failure},
        forms={
            form: {**fields, **(refused.entered if refused and refused.form == form else {})}
            for form in FORMS
        },
        unsent=given.get(UNSENT) if given.get(UNSENT) in FORMS else "",
        candidate=candidate,
        most=MOST_JUDGED,
        longest=environments.REASON,
        **values,
    )


def _one(
    service: PolicyService, name: str, given: Mapping[str, str]
) -> tuple[dict[str, Any], Failure | None]:
    """What the page shows, and why a candidate cannot be judged. Raises Failure, NotFound."""
    with service.store.reading() as rooms:
        read = rooms.read
        row = read.environment(name)
        active = read.active_rule_set(name) if row.active is not None else None
        target = read.rollback_target(name)
        activations = read.activations(name)
    batch = active is not None and active.batch
    values: dict[str, Any] = {
        "told": environments.environment(row),
        "activations": [environments.activation(one) for one in activations],
        "target": None if target is None else environments.activation(target),
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
    try:
        if not candidate:
            judging.require_rules(given, "candidate", ("n",))
            return values, None
        values["n"] = judging.count_of(given, NEWEST)
        values["report"] = judging.report(service, candidate, n=values["n"], cluster=row.cluster)
    except Failure as exc:
        return values, exc
    return values, None


async def activate(pages: Pages, request: Request, principal: Principal) -> Response:
    fields = ("rules", "reason")
    return await _changed(pages, request, principal, "activate", environments.activate, fields)


async def roll_back(pages: Pages, request: Request, principal: Principal) -> Response:
    return await _changed(
        pages, request, principal, "rollback", environments.roll_back, ("reason",)
    )


async def _changed(
    pages: Pages,
    request: Request,
    principal: Principal,
    form: str,
    change: Callable[..., object],
    fields: Sequence[str],
) -> Response:
    """form: of `FORMS`; change: of an environment, by the fields that people fill in."""
    sent = await form_of(request)
    name = request.path_params["name"]
    kept: list[str] = [field for field in fields if field in sent]

    def changed() -> None:
        typed = {field: sent.get(field, "") for field in fields}
        change(pages.service, principal, name, expected_activation=_seen(sent), **typed)

    try:
        require_own(pages.access, request, sent, shown_again=True)
        await pages.work(request, principal, False, changed)
    except ActivationChanged as exc:
        failure = of_store(exc, field=_ACTIVE)
    except StoreError as exc:
        failure = of_store(exc)
    except Failure as exc:
        failure = exc
    else:
        return _back(name)
    # Who mends a field of it has not been told what was activated since they chose.
    if failure.field != _ACTIVE and _ACTIVE in sent:
        kept.append(_ACTIVE)
    entered = {field: sent[field] for field in kept}
    refused = Refused(form=form, failure=failure, entered=entered)
    return await show_one(pages, request, principal, refused=refused)


def _seen(form: Mapping[str, str]) -> int:
    """The activation that was active on the page of a form, 0 for none. Raises Failure."""
    given = form.get(_ACTIVE, "")
    if not views.is_number(given):
        told = "the form does not say what was active when its page was loaded"
        advice = "nothing was done; check what is active now, and send it again"
        raise Failure(400, "invalid", told, help=advice, field=_ACTIVE)
    return int(given)


def _back(name: str, *, unsent: str = "") -> Response:
    """To the page of an environment; unsent: the form that was not sent before somebody came."""
    address = f"/environments/{quote(name, safe='')}"
    return RedirectResponse(f"{address}?{UNSENT}={unsent}" if unsent else address, status_code=303)


FORMS: Final = {"activate": activate, "rollback": roll_back}
"""What the forms of the page of an environment do, by the end of their addresses."""
