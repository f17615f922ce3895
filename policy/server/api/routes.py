"""The routes of the API: the table's operations, the export, the events, the document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from policy.server import cycles, views
from policy.server.api import events, openapi
from policy.server.api.models import CyclesExportQuery, DecisionsExportQuery
from policy.server.api.operations import BASE, query_of, read, route
from policy.server.api.table import (
    DOCUMENT,
    EVENTS,
    EXPORT,
    EXPORT_CYCLES,
    OPERATIONS,
    STREAMS,
    wanted_of,
)
from policy.server.http import in_thread
from policy.server.security.access import Access
from policy.server.security.gate import viewer
from policy.server.service import PolicyService


def routes(service: PolicyService, access: Access) -> list[Route]:
    described = openapi.document(OPERATIONS, STREAMS)

    async def document(request: Request) -> Response:
        viewer(access, request)
        query_of(DOCUMENT, request)
        return read(request, described)

    async def export(request: Request) -> Response:
        """All decisions of a list, as lines of JSON."""
        principal = viewer(access, request)
        query = query_of(EXPORT, request)
        assert isinstance(query, DecisionsExportQuery)  # the model that `EXPORT` names
        lines = await in_thread(
            views.exported, service, principal, wanted_of(query), most=query.limit
        )
        return StreamingResponse(
            _ndjson(lines),
            media_type=EXPORT.media_type,
            headers={"Content-Disposition": 'attachment; filename="decisions.ndjson"'},
        )

    async def export_cycles(request: Request) -> Response:
        """All cycles of pod groups, as lines of JSON."""
        principal = viewer(access, request)
        query = query_of(EXPORT_CYCLES, request)
        assert isinstance(query, CyclesExportQuery)  # the model that `EXPORT_CYCLES` names
        lines = await in_thread(
            cycles.exported,
            service,
            principal,
            query.cluster,
            before_id=query.after,
            most=query.limit,
        )
        return StreamingResponse(
            _ndjson(lines),
            media_type=EXPORT_CYCLES.media_type,
            headers={"Content-Disposition": 'attachment; filename="groups.ndjson"'},
        )

    async def stream(request: Request) -> Response:
        """New decisions and cycles of pod groups as they are recorded."""
        principal = viewer(access, request)
        query_of(EVENTS, request)
        given = request.headers.get("last-event-id", "")
        begun = await in_thread(events.positions, service, principal, given)
        following = events.events(service, principal, begun)
        return StreamingResponse(following, media_type=EVENTS.media_type)

    return [
        Route(f"{BASE}/openapi.json", document),
        Route(BASE + EXPORT.path, export),
        Route(BASE + EXPORT_CYCLES.path, export_cycles),
        Route(BASE + EVENTS.path, stream),
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
