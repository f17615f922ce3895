"""Logging in and out."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from policy.server.pages.surface import UNSENT, Pages, form_of, from_own_page, require_own
from policy.server.security.access import SESSION_SECONDS


async def login(pages: Pages, request: Request) -> Response:
    """Exchange a token for a session."""
    wrong = False
    target = _local(request.query_params.get("next", "/"))
    if request.method == "POST":
        form = await form_of(request)
        target = _local(form.get("next", "/"))
        value = pages.access.session(form.get("token", ""))
        if value is not None:
            answer = RedirectResponse(target, status_code=303)
            answer.set_cookie(
                pages.access.cookie(request),
                value,
                max_age=SESSION_SECONDS,
                httponly=True,
                secure=request.url.scheme == "https",
                samesite="strict",
            )
            return answer
        wrong = True
    return await pages.page(
        request,
        None,
        "login.html",
        status=401 if wrong else 200,
        wrong=wrong,
        target=target,
        unsent=UNSENT in dict(parse_qsl(urlsplit(target).query)),
    )


async def logout(pages: Pages, request: Request) -> Response:
    """End the session of this browser."""
    form = await form_of(request)
    # In another tab there may be a page of an earlier session, whose form is of that one.
    if not from_own_page(request):
        require_own(pages.access, request, form)
    answer = RedirectResponse("/login", status_code=303)
    # Browsers ignore an answer about a `__Host-` cookie that is not `Secure`.
    answer.delete_cookie(
        pages.access.cookie(request),
        path="/",
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="strict",
    )
    return answer


def _local(target: str) -> str:
    """A path of this service; whatever leads elsewhere becomes the first page."""
    plain = target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"
