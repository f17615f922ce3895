"""The routes of the API: the table's operations, the export, the events, the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from policy.server import views
from policy.server.api import openapi
from policy.server.api.models import DecisionsQuery
from policy.server.api.operations import BASE, query_of, route
from policy.server.api.table import EVENTS, EXPORT, OPERATIONS, STREAMS, wanted_of
from policy.server.http import Failure, in_thread, json_response
from policy.server.security.access import Access, Principal
from policy.server.security.gate import viewer
from policy.server.service import PolicyService

_KEEP_ALIVE_SECONDS = 15.0


def routes(service: PolicyService, access: Access) -> list[Route]:
    described = openapi.document(OPERATIONS, STREAMS)

    async def document(request: Request) -> Response:
        viewer(access, request)
        return json_response(described, headers={"Cache-Control": "private, no-cache"})

    async def export(request: Request) -> Response:
        """All decisions of a list, as lines of JSON."""
        principal = viewer(access, request)
        query = query_of(EXPORT, request)
        assert isinstance(query, DecisionsQuery)  # the model that `EXPORT` names
        lines = await in_thread(views.exported, service, principal, wanted_of(query))
        return StreamingResponse(
            _ndjson(lines),
            media_type=EXPORT.media_type,
            headers={"Content-Disposition": 'attachment; filename="decisions.ndjson"'},
        )

    async def events(request: Request) -> Response:
        """New decisions as they are recorded."""
        principal = viewer(access, request)
        given = request.headers.get("last-event-id", "")
        if given and not (given.isdigit() and len(given) < 19):
            raise Failure(400, "invalid", "`Last-Event-ID` is not the id of a decision")
        after = int(given) if given else None
        return StreamingResponse(_events(service, principal, after), media_type=EVENTS.media_type)

    return [
        Route(f"{BASE}/openapi.json", document),
        Route(BASE + EXPORT.path, export),
        Route(BASE + EVENTS.path, events),
        *(route(operation, service, access) for operation in OPERATIONS),
    ]


async def _ndjson(lines: Iterator[object]) -> AsyncIterator[bytes]:
    def some() -> bytes:
        part = []
        for line in lines:
            part.append(msgspec.json.encode(line) + b"\n")
            if len(part) == 500:
                break
        return b"".join(part)

    while part := await in_thread(some):
        yield part


async def _events(
    service: PolicyService, principal: Principal, after: int | None
) -> AsyncIterator[bytes]:
    """Server-sent events; polled, so that what other processes record is seen as well."""
    if after is None:
        newest, _ = await in_thread(views.decisions, service, principal, {}, limit=1)
        after = newest[0].id if newest else 0
    yield b": decisions follow\n\n"
    quiet = 0.0
    while not service.stopping.is_set():
        rows, lines = await in_thread(
            views.decisions, service, principal, {"after_id": after}, limit=100
        )
        for row, line in zip(rows, lines, strict=True):
            after = row.id
            data = msgspec.json.encode(line)
            yield b"id: %d\nevent: decision\ndata: %s\n\n" % (row.id, data)
        if rows:
            quiet = 0.0
        elif (quiet := quiet + service.config.poll_seconds) >= _KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(service.config.poll_seconds)
