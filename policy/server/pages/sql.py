"""A question of one's own, and the saved queries."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.server.http import Failure, in_thread, of_store
from policy.server.own_sql import NEWEST, TABLES, own_sql
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.store import StoreError
from policy.store.read.saved_queries import DEFAULTS, saved_queries, saved_query

_SQL_ROWS: Final = 500


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    text = request.query_params.get("q", "")[:10_000]
    name = request.query_params.get("saved", "")
    result, error = None, ""
    parameters: dict[str, Any] = {}
    if name and not text and not principal.limited:
        saved = saved_query(name[:80])
        text = saved.sql
        parameters = {p: DEFAULTS[p] for p in saved.parameters}
    if text.strip():
        try:
            result = await in_thread(_run, pages, principal, text, parameters)
        except Failure as exc:
            error = exc.message
        except StoreError as exc:
            error = of_store(exc).message
    return pages.page(
        request,
        principal,
        "sql.html",
        text=text,
        # Saved queries read the views of the whole record.
        saved=[] if principal.limited else list(saved_queries().values()),
        own=TABLES if principal.limited else None,
        newest=NEWEST,
        result=result,
        error=error,
        limit=_SQL_ROWS,
    )


def _run(
    pages: Pages, principal: Principal, text: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    if principal.limited:
        return own_sql(pages.service, principal, text, parameters, limit=_SQL_ROWS)
    with pages.service.reader.sql(text, parameters, timeout=10) as found:
        rows = list(islice(found, _SQL_ROWS + 1))
        return {
            "columns": found.columns,
            "rows": rows[:_SQL_ROWS],
            "more": len(rows) > _SQL_ROWS,
        }
