"""The routes of the API: the table's operations, the export, the events, the document."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain, islice
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from policy.server import cycles, views
from policy.server.api import events, openapi
from policy.server.api.models import CyclesExportQuery, DecisionsExportQuery
from policy.server.api.operations import BASE, Stream, query_of, read, route
from policy.server.api.table import (
    DOCUMENT,
    EVENTS,
    EXPORT,
    EXPORT_CSV,
    EXPORT_CYCLES,
    OPERATIONS,
    STREAMS,
    wanted_of,
)
from policy.server.http import in_thread
from policy.server.security.access import Access
from policy.server.security.gate import viewer
from policy.server.service import PolicyService
from policy.text.csv_cells import csv_cell

_LINES: Final = 500
"""Of an export that are sent at once."""


def routes(service: PolicyService, access: Access) -> list[Route]:
    described = openapi.document(OPERATIONS, STREAMS)

    async def document(request: Request) -> Response:
        viewer(access, request)
        query_of(DOCUMENT, request)
        return read(request, described)

    async def exported(stream: Stream, request: Request) -> Iterator[Mapping[str, object]]:
        """The lines of the decisions that the request is for."""
        principal = viewer(access, request)
        query = query_of(stream, request)
        assert isinstance(query, DecisionsExportQuery)  # the model that both streams name
        wanted = wanted_of(query, now_ms=service.clock())
        return await in_thread(views.exported, service, principal, wanted, most=query.limit)

    async def export(request: Request) -> Response:
        """All decisions of a list, as lines of JSON."""
        lines = _ndjson(await exported(EXPORT, request))
        return _download(EXPORT, lines, "decisions.ndjson")

    async def export_csv(request: Request) -> Response:
        """The same as CSV."""
        lines = _csv(await exported(EXPORT_CSV, request), views.COLUMNS)
        return _download(EXPORT_CSV, lines, "decisions.csv")

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
        return _download(EXPORT_CYCLES, _ndjson(lines), "groups.ndjson")

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
        Route(BASE + EXPORT_CSV.path, export_csv),
        Route(BASE + EXPORT_CYCLES.path, export_cycles),
        Route(BASE + EVENTS.path, stream),
        *(route(operation, service, access) for operation in OPERATIONS),
    ]


def _download(stream: Stream, content: AsyncIterator[bytes], name: str) -> Response:
    return StreamingResponse(
        content,
        media_type=stream.media_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _ndjson(lines: Iterator[object]) -> AsyncIterator[bytes]:
    def some() -> bytes:
        part = []
        for line in lines:
            part.append(msgspec.json.encode(line) + b"\n")
            if len(part) == _LINES:
                break
        return b"".join(part)

    while part := await in_thread(some):
        yield part


async def _csv(
    lines: Iterator[Mapping[str, object]], columns: Sequence[str]
) -> AsyncIterator[bytes]:
    """A head, and a row for each line; as `policy decisions --output csv` writes cells."""
    more = chain([None], lines)

    def some() -> bytes:
        part = StringIO(newline="")
        writer = csv.writer(part, lineterminator="\n")
        for line in islice(more, _LINES):
            cells = columns if line is None else [line[name] for name in columns]
            writer.writerow([csv_cell(cell, raw=False) for cell in cells])
        return part.getvalue().encode()

    while rows := await in_thread(some):
        yield rows
