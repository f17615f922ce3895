"""The routes of the API: the table's operations, the export, the events, the document."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain, islice
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from policy.server import cycles, views
from policy.server.api import openapi
from policy.server.api.models import CyclesExportQuery, DecisionsQuery
from policy.server.api.operations import BASE, query_of, route
from policy.server.api.table import (
    EVENTS,
    EXPORT,
    EXPORT_CSV,
    EXPORT_CYCLES,
    OPERATIONS,
    STREAMS,
    wanted_of,
)
from policy.server.http import Failure, in_thread, json_response
from policy.server.security.access import Access, Principal
from policy.server.security.gate import viewer
from policy.server.service import PolicyService
from policy.text.csv_cells import csv_cell

_KEEP_ALIVE_SECONDS = 15.0
_LINES: Final = 500
"""Of an export that are sent at once."""
_AT_ONCE: Final = 100
"""Events of a kind that are read at once."""
_EVENT_ID: Final = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")
"""The newest decision and the newest cycle of a pod group; without the latter: of now."""


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
        wanted = wanted_of(query, now_ms=service.clock())
        lines = await in_thread(views.exported, service, principal, wanted)
        return StreamingResponse(
            _ndjson(lines),
            media_type=EXPORT.media_type,
            headers={"Content-Disposition": 'attachment; filename="decisions.ndjson"'},
        )

    async def export_csv(request: Request) -> Response:
        """The same as CSV."""
        principal = viewer(access, request)
        query = query_of(EXPORT_CSV, request)
        assert isinstance(query, DecisionsQuery)  # the model that `EXPORT_CSV` names
        wanted = wanted_of(query, now_ms=service.clock())
        lines = await in_thread(views.exported, service, principal, wanted)
        return StreamingResponse(
            _csv(lines, views.COLUMNS),
            media_type=EXPORT_CSV.media_type,
            headers={"Content-Disposition": 'attachment; filename="decisions.csv"'},
        )

    async def export_cycles(request: Request) -> Response:
        """All cycles of pod groups, as lines of JSON."""
        principal = viewer(access, request)
        query = query_of(EXPORT_CYCLES, request)
        assert isinstance(query, CyclesExportQuery)  # the model that `EXPORT_CYCLES` names
        lines = await in_thread(
            cycles.exported, service, principal, query.cluster, before_id=query.after
        )
        return StreamingResponse(
            _ndjson(lines),
            media_type=EXPORT_CYCLES.media_type,
            headers={"Content-Disposition": 'attachment; filename="groups.ndjson"'},
        )

    async def events(request: Request) -> Response:
        """New decisions and cycles of pod groups as they are recorded."""
        principal = viewer(access, request)
        given = request.headers.get("last-event-id", "")
        if given and not _EVENT_ID.fullmatch(given):
            raise Failure(400, "invalid", "`Last-Event-ID` is not the id of an event, like `12-3`")
        after = tuple(map(int, given.split("-"))) if given else ()
        return StreamingResponse(_events(service, principal, after), media_type=EVENTS.media_type)

    return [
        Route(f"{BASE}/openapi.json", document),
        Route(BASE + EXPORT.path, export),
        Route(BASE + EXPORT_CSV.path, export_csv),
        Route(BASE + EXPORT_CYCLES.path, export_cycles),
        Route(BASE + EVENTS.path, events),
        *(route(operation, service, access) for operation in OPERATIONS),
    ]


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


async def _events(
    service: PolicyService, principal: Principal, after: Sequence[int]
) -> AsyncIterator[bytes]:
    """Server-sent events; polled, so that what other processes record is seen as well.

    after: the newest decision and the newest cycle that were seen; what is left out is the newest
    of now. An event's id holds both, so that whoever comes back misses neither.
    """
    newest = await in_thread(_newest, service, principal)
    decision, cycle = (*after, *newest[len(after) :])
    yield b": decisions and cycles of pod groups follow\n\n"
    quiet = 0.0
    while not service.stopping.is_set():
        rows, lines = await in_thread(
            views.decisions, service, principal, {"after_id": decision}, limit=_AT_ONCE
        )
        for row, line in zip(rows, lines, strict=True):
            decision = row.id
            yield _event("decision", decision, cycle, line)
        held, told = await in_thread(
            cycles.cycles, service, principal, limit=_AT_ONCE, after_id=cycle
        )
        for found, line in zip(held, told, strict=True):
            cycle = found.id
            yield _event("group", decision, cycle, line)
        if rows or held:
            quiet = 0.0
        elif (quiet := quiet + service.config.poll_seconds) >= _KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(service.config.poll_seconds)


def _newest(service: PolicyService, principal: Principal) -> tuple[int, int]:
    """Numbers of the newest decision and the newest cycle that the viewer may know of; 0: none."""
    rows, _ = views.decisions(service, principal, {}, limit=1)
    held, _ = cycles.cycles(service, principal, limit=1)
    return rows[0].id if rows else 0, held[0].id if held else 0


def _event(name: str, decision: int, cycle: int, line: Mapping[str, Any]) -> bytes:
    told = (decision, cycle, name.encode(), msgspec.json.encode(line))
    return b"id: %d-%d\nevent: %s\ndata: %s\n\n" % told
