"""What the lists of cycles of pod groups and of batch sessions share: a filter, and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.server.api.operations import ApiOperation, Stream, query_of
from policy.server.http import Failure, in_thread, of_store
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import SessionRow, StoreError


class _Read(Protocol):
    """Rows and lines of a list, newest first."""

    def __call__(
        self,
        service: PolicyService,
        principal: Principal,
        wanted: Mapping[str, Any],
        *,
        limit: int,
    ) -> tuple[Sequence[SessionRow], Sequence[Mapping[str, Any]]]: ...


async def show_list(
    pages: Pages,
    request: Request,
    principal: Principal,
    template: str,
    *,
    operation: ApiOperation,
    export: Stream,
    wanted: Callable[..., dict[str, Any]],
    read: _Read,
    **values: Any,
) -> Response:
    """The list; where a filter is wrong, the error in its place, so that it can be mended.

    operation: has the same list. wanted: what its query is as `read` takes it.
    """
    path, failure = request.url.path, None
    given = {name: value for name, value in request.query_params.items() if value}
    lines: Sequence[Mapping[str, Any]] = []
    older = ""
    try:
        query: Any = query_of(operation, request, blanks=True)
        filters = wanted(query, now_ms=pages.service.clock())
        rows, lines = await in_thread(read, pages.service, principal, filters, limit=query.limit)
        if len(rows) == query.limit:
            older = f"{path}?{urlencode({**given, 'after': lines[-1]['id']})}"
    except (Failure, StoreError) as exc:
        failure = of_store(exc) if isinstance(exc, StoreError) else exc
        if failure.status >= 500:
            raise
    kept = {name: value for name, value in given.items() if name not in ("after", "limit")}
    filtered = f"?{urlencode(kept)}" if kept else ""
    return pages.page(
        request,
        principal,
        template,
        status=200 if failure is None else failure.status,
        failure=failure,
        message="" if failure is None else failure.message.removeprefix("query: "),
        lines=lines,
        older=older,
        filtered=filtered,
        newest=f"{path}{filtered}" if "after" in given else "",
        export=f"/api/v1{export.path}{filtered}",
        **values,
    )
