"""What all pages share: who may see them, errors in words, forms, and how a page is answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from policy.server.http import (
    NUL,
    Failure,
    body_of,
    in_thread,
    of_store,
    refusal_headers,
    sent_path,
    unforeseen,
)
from policy.server.pages.rendering import page
from policy.server.security.access import Access, Principal
from policy.server.security.gate import allowed, require_still
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.server.views import is_number
from policy.store import StoreError

PAGE: Final = 50
"""Rows of a list that are shown together."""

HTMX: Final = "HX-Request"
"""Header of a request that asks for a part of a page."""

log = logging.getLogger("policy.server")

P = ParamSpec("P")
T = TypeVar("T")


class Pages:
    """What every page works with."""

    def __init__(self, service: PolicyService, access: Access) -> None:
        self.service = service
        self.access = access

    async def page(
        self,
        request: Request,
        principal: Principal | None,
        template: str,
        *,
        status: int = 200,
        long: bool = False,
        **values: Any,
    ) -> Response:
        """The answer that a template makes; long: it may take seconds, as for a result of SQL."""
        made = partial(page, request, self.access, principal, template, status=status, **values)
        if long and principal is not None:
            return await self.work(request, principal, long, made)
        return await in_thread(made)

    async def work(
        self,
        request: Request,
        principal: Principal,
        long: bool,
        work: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Blocking work; long: it may take seconds, as where states are loaded. Raises Failure."""

        def worked() -> T:
            require_still(self.access, request, principal)
            return work(*args, **kwargs)

        if long:
            return await self.service.long_work.of(request, principal.name, worked)
        return await in_thread(worked)

    def guarded(
        self, show: Show, *, role: Role = Role.VIEWER, unlimited: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """The page for whoever may see it; a way to log in, or an error in words, for others."""

        async def answer(pages: Pages, request: Request) -> Response:
            principal = pages.access.principal(request)
            if principal is None:
                return _to_login(request)
            allowed(pages.access, request, role, unlimited=unlimited)
            return await show(pages, request, principal)

        return self.for_everybody(answer)

    def for_everybody(
        self, answer: Callable[[Pages, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """What is answered also without a session; an error in words where that fails.

        A form that another site sent is refused.
        """

        async def endpoint(request: Request) -> Response:
            try:
                if request.method == "POST" and from_own_page(request) is False:
                    told = "the form is not from a page of this service"
                    raise Failure(403, "not-allowed", told)
                return await answer(self, request)
            except Failure as exc:
                failure = exc
            except StoreError as exc:
                failure = of_store(exc)
            except ClientDisconnect:
                raise  # there is no client left to show a page to
            except Exception:
                # People are shown a page whatever happens.
                log.exception("a page failed")
                failure = unforeseen()
            return await self.failed(request, self.access.principal(request), failure)

        return endpoint

    async def failed(
        self, request: Request, principal: Principal | None, failure: Failure
    ) -> Response:
        """An error as a page; in place of all that is shown where htmx asked for a part of one."""
        values: dict[str, Any] = {
            "message": failure.message,
            "help": failure.help,
            "code": failure.status,
        }
        answer = await self.page(request, principal, "error.html", status=failure.status, **values)
        answer.headers.update(refusal_headers(failure))
        if HTMX in request.headers:
            answer.headers["HX-Retarget"] = answer.headers["HX-Reselect"] = "#content"
            answer.headers["HX-Reswap"] = "outerHTML"
        return answer


Show: TypeAlias = Callable[[Pages, Request, Principal], Awaitable[Response]]


UNSENT: Final = "unsent"
"""Parameter of an address to which somebody is led whose form found no session."""


def _to_login(request: Request) -> Response:
    """Back to the same address afterwards, with its query where that was only to be read."""
    address = sent_path(request)
    if request.method == "POST":
        address += f"?{UNSENT}=1"
    elif request.url.query:
        address += f"?{request.url.query}"
    target = f"/login?next={quote(address, safe='/')}"
    if HTMX in request.headers:
        # A redirect it would follow itself, and look for the part of a page in the login page.
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, status_code=303)


def require_own(
    access: Access, request: Request, form: Mapping[str, str], *, shown_again: bool = False
) -> None:
    """Refuse a form that is not from a page of this session. Raises Failure.

    shown_again: by the page that answers, with what was typed.
    """
    if not access.is_own_form(request, form.get("form_token", "")):
        raise Failure(
            403,
            "not-allowed",
            "the form is from an earlier session, or from before the service was started again",
            help="nothing was done; check it as it is shown now, and send it again"
            if shown_again
            else "nothing was done; load the page again, and send it from there",
        )


def from_own_page(request: Request) -> bool | None:
    """Does the browser say that a page of this service sent the form? None where nothing says so.

    What is no browser says nothing. Browsers leave the one header out where the address is not
    https, and some do not know it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    if origin is None:
        return None
    return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()


def mendable(exc: Failure | StoreError) -> Failure:
    """What a page shows above its form, so that what was given can be mended.

    Raises it from status 500 on, where there is nothing to mend.
    """
    failure = of_store(exc) if isinstance(exc, StoreError) else exc
    if failure.status >= 500:
        raise failure
    return failure


def after(request: Request) -> int | None:
    """The number that the page before ended with; None for the first page. Raises Failure."""
    given = request.query_params.get("after", "")
    if not given:
        return None
    if not is_number(given):
        raise Failure(400, "invalid", "query: `after`: not a whole number")
    return int(given)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent. Raises Failure."""
    content = await body_of(request, limit=64 << 10)
    if b"%00" in content or b"\0" in content:
        raise Failure(400, "bad-request", f"the form holds {NUL}")
    try:
        return dict(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as exc:
        raise Failure(400, "bad-request", "the form cannot be read") from exc
