"""The service as one ASGI application: configuration in, routes out, nothing global."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from policy.server import health
from policy.server.config import LOOPBACK
from policy.server.extender import routes as extender
from policy.server.http import (
    API,
    CLIENT_GONE,
    PAGES,
    Failure,
    Surroundings,
    in_own_thread,
    of_store,
    part_of,
    problem,
)
from policy.server.later import Later
from policy.server.security.access import Access
from policy.server.service import PolicyService
from policy.store import StoreError


def build(service: PolicyService, access: Access) -> Starlette:
    """The application over an open service, which it closes when it ends."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await service.close()
            await in_own_thread(access.close)

    async def refused(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        failure = _refusal(request, exc, routes=[*app.routes, *for_people.routes])
        if _for_a_person(request):
            answer = await _as_page(service, access, request, failure)
        else:
            answer = problem(failure)
        answer.headers.update(exc.headers or {})
        return answer

    hosts = LOOPBACK if access.open_to_all else None
    app = Starlette(
        routes=[route for part in (health, extender) for route in part.routes(service, access)],
        middleware=[
            Middleware(Surroundings, metrics=service.metrics, hosts=hosts, tracing=service.tracing)
        ],
        exception_handlers={
            Failure: _failed,
            StoreError: _store_failed,
            HTTPException: refused,
            ClientDisconnect: _gone,
        },
        lifespan=lifespan,
    )
    # It would redirect to a whole URL, with whatever name the request gave as its host.
    app.router.redirect_slashes = False
    # What these import takes a fifth of the start of a process, and many processes are called by
    # schedulers alone.
    for_people = Later(lambda: _for_people(service, access))
    app.router.default = for_people
    return app


def _for_people(service: PolicyService, access: Access) -> Sequence[BaseRoute]:
    """The API and the pages."""
    from policy.server.api import routes as api
    from policy.server.pages import routes as pages

    return [*api.routes(service, access), *pages.routes(service, access)]


def _failed(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, Failure)
    return problem(exc)


def _store_failed(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, StoreError)
    return problem(of_store(exc))


_API_HELP: Final = (
    f"the page /api lists the addresses of the API, and {API}/openapi.json describes them"
)


def _refusal(request: Request, exc: HTTPException, *, routes: Sequence[BaseRoute]) -> Failure:
    """routes: all that there are."""
    if exc.status_code == 405:
        return Failure(405, "bad-request", f"`{request.method}` is not possible here")
    path = request.url.path
    without = path.rstrip("/")
    raw: bytes = request.scope["raw_path"]
    other = {**request.scope, "path": without, "raw_path": raw.rstrip(b"/")}
    told = _API_HELP if part_of(path) == "api" else ""
    if path != without and any(route.matches(other)[0] is not Match.NONE for route in routes):
        told = f"addresses have no slash at their end: {without}"
    return Failure(exc.status_code, "not-found", "there is no such page", help=told)


def _for_a_person(request: Request) -> bool:
    """Does a browser want a page, where there are pages?"""
    return part_of(request.url.path) == PAGES and "text/html" in request.headers.get("accept", "")


async def _as_page(
    service: PolicyService, access: Access, request: Request, failure: Failure
) -> Response:
    from policy.server.pages.surface import Pages  # the routes that were looked at have it

    return await Pages(service, access).failed(request, access.principal(request), failure)


def _gone(_: Request, __: Exception) -> Response:
    """The client went away before its request was begun: the status is for the figures only."""
    return Response(status_code=CLIENT_GONE)
