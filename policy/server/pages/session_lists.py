"""What the lists of cycles of pod groups and of batch sessions share: a filter, and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.server.api.operations import ApiOperation, Stream, query_of
from policy.server.http import API, Failure, in_thread
from policy.server.pages.surface import Pages, mendable
from policy.server.security.access import Principal
from policy.server.views import Page, one_page
from policy.store import StoreError


async def show_list(
    pages: Pages,
    request: Request,
    principal: Principal,
    template: str,
    *,
    operation: ApiOperation,
    export: Stream,
    wanted: Callable[..., dict[str, Any]],
    read: Callable[..., Page],
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
        reads = partial(read, pages.service, principal, filters)
        page = await in_thread(one_page, reads, limit=query.limit)
        lines = page.lines
        if page.after is not None:
            older = f"{path}?{urlencode({**given, 'after': page.after})}"
    except (Failure, StoreError) as exc:
        failure = mendable(exc)
    kept = {name: value for name, value in given.items() if name not in ("after", "limit")}
    filtered = f"?{urlencode(kept)}" if kept else ""
    return await pages.page(
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
        export=f"{API}{export.path}{filtered}",
        **values,
    )
