"""The routes of the API: the table's operations, exports, the events, the document."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from itertools import chain, islice
from typing import Any, Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from policy.audit.documents import LISTED
from policy.server import batch_sessions, cycles, views
from policy.server.api import events, openapi
from policy.server.api.looks import Looks
from policy.server.api.operations import Stream, query_of, read, route
from policy.server.api.table import (
    DOCUMENT,
    EVENTS,
    EXPORT,
    EXPORT_CSV,
    EXPORT_CYCLES,
    EXPORT_OBSERVATIONS,
    EXPORT_SESSIONS,
    OPERATIONS,
    STREAMS,
    cycles_wanted,
    decisions_wanted,
    observations_wanted,
    sessions_wanted,
)
from policy.server.http import API, CutOff, in_thread
from policy.server.security.access import Access, Principal
from policy.server.security.gate import viewer
from policy.server.service import PolicyService
from policy.server.views import Page, in_pages
from policy.store import LedgerHead
from policy.text.csv_cells import csv_cell

Lines: TypeAlias = Iterator[Mapping[str, Any]]

_LINES: Final = 500
"""Of an export that are sent at once."""


def routes(service: PolicyService, access: Access) -> list[Route]:
    described = openapi.document(OPERATIONS, STREAMS)

    def heads() -> Sequence[LedgerHead]:
        return service.store.ledger.heads()

    looks = Looks(heads, every=service.config.poll_seconds)

    async def document(request: Request) -> Response:
        viewer(access, request)
        query_of(DOCUMENT, request)
        return read(request, described)

    def export(
        stream: Stream,
        name: str,
        page: Callable[..., Page],
        wanted: Callable[..., dict[str, Any]],
        written: Callable[[Lines], AsyncIterator[bytes]] = _ndjson,
    ) -> Route:
        """All of a list, or as many as are asked for.

        name: of the file. page: reads some, for what `wanted` makes of the query. written: writes
        the lines.
        """

        def exported(who: Principal, query: Any) -> Lines:
            filters = wanted(query, now_ms=service.clock())
            return in_pages(
                lambda begin, limit: page(service, who, {**filters, **begin}, limit=limit),
                query.after,
                most=query.limit,
            )

        async def endpoint(request: Request) -> Response:
            principal = viewer(access, request)
            query = query_of(stream, request)
            lines = await in_thread(exported, principal, query)

            def still() -> bool:
                return access.principal(request) == principal

            return _streamed(
                request,
                while_still(still, written(lines)),
                stream,
                headers={"Content-Disposition": f'attachment; filename="{name}"'},
            )

        return Route(API + stream.path, endpoint)

    async def stream(request: Request) -> Response:
        """New decisions, cycles of pod groups and batch sessions as they are recorded."""
        principal = viewer(access, request)
        query_of(EVENTS, request)
        given = request.headers.get("last-event-id", "")
        begun = await service.beginning_streams.of(
            request, principal.name, events.positions, service, principal, given
        )
        following = events.events(
            service,
            principal,
            begun,
            looks=looks,
            still=lambda: access.principal(request) == principal,
        )
        # nginx, and proxies like it, would else keep events until there are some KiB of them.
        return _streamed(request, following, EVENTS, headers={"X-Accel-Buffering": "no"})

    return [
        Route(f"{API}/openapi.json", document),
        export(EXPORT, "decisions.ndjson", views.decisions, decisions_wanted),
        export(
            EXPORT_CSV,
            "decisions.csv",
            views.decisions,
            decisions_wanted,
            partial(_csv, columns=LISTED),
        ),
        export(EXPORT_CYCLES, "groups.ndjson", cycles.cycles, cycles_wanted),
        export(EXPORT_SESSIONS, "sessions.ndjson", batch_sessions.sessions, sessions_wanted),
        export(EXPORT_OBSERVATIONS, "observations.ndjson", views.observations, observations_wanted),
        Route(API + EVENTS.path, stream),
        *(route(operation, service, access) for operation in OPERATIONS),
    ]


def _streamed(
    request: Request,
    parts: AsyncIterator[bytes],
    stream: Stream,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer in parts. To HEAD none is made: a server drops them, and events never end."""
    sent: AsyncIterator[bytes] | Iterator[bytes] = iter(()) if request.method == "HEAD" else parts
    return StreamingResponse(sent, media_type=stream.media_type, headers=headers)


async def while_still(
    still: Callable[[], bool], parts: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The parts, as long as they may be sent. Raises CutOff: what is not whole must not seem so."""
    async for part in parts:
        if not still():
            raise CutOff
        yield part


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


async def _csv(lines: Lines, columns: Sequence[str]) -> AsyncIterator[bytes]:
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
