"""A question of one's own, and the saved queries."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from policy.server.http import Failure, of_store
from policy.server.own_sql import NEWEST, SECONDS, TABLES
from policy.server.pages.charts import (
    HEIGHT,
    KINDS,
    MOST,
    WIDTH,
    Chart,
    NoChart,
    chart,
    is_number,
)
from policy.server.pages.parameters import (
    Parameter,
    fields,
    require_known,
    require_whole,
    values,
)
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.server.sql import run_sql
from policy.store.errors import InvalidValue, NoReader
from policy.store.migrate import VIEWS
from policy.store.read.saved_queries import SavedQuery, saved_as, saved_queries, saved_query
from policy.store.read.sql import parameters_in
from policy.text.csv_cells import csv_cell, unique_names

ROWS: Final = 500
"""Rows of a result that are shown and downloaded."""
CHARACTERS: Final = 10_000
"""Of a query."""

_FORMS: Final = ("csv", "ndjson", "json")
_KNOWN: Final = frozenset({"q", "saved", "format", "chart", "x", "y"})
"""Parameters of the page; those of a query have a prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What the address asks."""

    text: str
    saved: SavedQuery | None  #: the one that it is, to the letter
    names: Sequence[str]  #: of its parameters
    parameters: list[Parameter]


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    query = request.query_params
    form = query.get("format", "")
    if form and form not in _FORMS:
        raise Failure(400, "invalid", f"query: `format` is not one of {', '.join(_FORMS)}")
    question, result, failure = None, None, None
    try:
        question = _question(principal, query)
        require_known(query, _KNOWN, question.names)
        given = values(question.names, query, now_ms=pages.service.clock())
        if question.text.strip():
            result = await pages.work(
                request, principal, True, _run, pages, principal, question, given
            )
    except Failure as exc:
        failure = exc
    except (InvalidValue, NoReader) as exc:
        failure = of_store(exc)
    if form:
        if failure is not None:
            raise failure
        if result is None:
            raise Failure(400, "invalid", "the query is empty")
        return await pages.work(request, principal, True, _download, result, form)
    drawn, no_chart = _drawn(query, result)
    return await pages.page(
        request,
        principal,
        "sql.html",
        status=200 if failure is None else failure.status,
        long=result is not None,
        text=question.text if question else query.get("q", ""),
        name=question.saved.name if question and question.saved else "",
        parameters=question.parameters if question else [],
        # Saved queries read the views of the whole record.
        saved=[] if principal.limited else list(saved_queries().values()),
        own=TABLES if principal.limited else None,
        views=sorted(VIEWS),
        tables=_tables(pages.service, principal),
        newest=NEWEST,
        result=result,
        failure=failure,
        message="" if failure is None else failure.message.removeprefix("query: "),
        kinds=KINDS,
        chart=drawn,
        no_chart=no_chart,
        width=WIDTH,
        height=HEIGHT,
        downloads=[(name, _address(query, name)) for name in _FORMS] if result else [],
        limit=ROWS,
        seconds=SECONDS,
        characters=CHARACTERS,
        points=MOST,
    )


def _tables(service: PolicyService, principal: Principal) -> str:
    """Whether the tables may be read beside the views."""
    if service.store.identity is None:  # Postgres, whoever asks
        return "and on its tables where the role of `--reader-url` may read them"
    return "and on its tables" if principal.may(Role.ADMIN) else "and on none of its tables"


def _question(principal: Principal, query: Mapping[str, str]) -> _Question:
    """Raises Failure, NotFound."""
    text, name = query.get("q", "").replace("\r\n", "\n"), query.get("saved", "")
    require_whole(principal, query, ("saved",))
    if name and not text.strip():
        text = saved_query(name[:80]).sql
    if len(text) > CHARACTERS:
        message = f"the query has {len(text)} characters, and {CHARACTERS} are allowed"
        raise Failure(400, "invalid", message)
    saved = None if principal.limited else saved_as(text)
    names = saved.parameters if saved is not None else parameters_in(text)
    return _Question(text=text, saved=saved, names=names, parameters=fields(names, query))


def _run(
    pages: Pages, principal: Principal, question: _Question, given: dict[str, Any]
) -> dict[str, Any]:
    most, limit = ROWS, given.get("limit")
    if question.saved is not None and limit is not None:
        if not isinstance(limit, int) or limit < 1:
            raise Failure(400, "invalid", "`limit` is a number from 1 on", field="limit")
        most = min(limit, ROWS)
        given = {**given, "limit": most + 1}  # the row that says that there are more
    found = run_sql(pages.service, principal, question.text, given, limit=most)
    columns = unique_names(found["columns"])
    return {**found, "columns": columns, "numbers": _numbers(columns, found["rows"])}


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Columns that hold nothing but numbers."""
    return [
        name
        for i, name in enumerate(columns)
        if any(row[i] is not None for row in rows)
        and all(row[i] is None or is_number(row[i]) for row in rows)
    ]


def _drawn(query: Mapping[str, str], result: dict[str, Any] | None) -> tuple[Chart | None, str]:
    """The chart of the result, or why there is none; "" where none is wanted."""
    kind = query.get("chart", "")
    if not kind or result is None:
        return None, ""
    if kind not in KINDS:
        return None, f"a chart is one of {', '.join(KINDS)}"
    columns = result["columns"]
    if not columns:  # of a comment alone
        return None, "the query has no columns"
    x, y = query.get("x", "") or columns[0], query.get("y", "") or columns[-1]
    try:
        return chart(columns, result["rows"], x=x, y=y, kind=kind), ""
    except NoChart as exc:
        return None, f"{exc}; choose another column"


def _address(query: Mapping[str, str], form: str) -> str:
    """The same question, to be downloaded."""
    kept = {name: value for name, value in query.items() if name not in ("chart", "x", "y")}
    return f"/sql?{urlencode({**kept, 'format': form})}"


def _download(result: Mapping[str, Any], form: str) -> Response:
    columns, rows = result["columns"], result["rows"]
    lines = [dict(zip(columns, row, strict=True)) for row in rows]
    headers = {"Content-Disposition": f'attachment; filename="result.{form}"'}
    if form == "json":
        told = {"columns": columns, "rows": lines, "more": result["more"]}
        return Response(msgspec.json.encode(told), media_type="application/json", headers=headers)
    if form == "ndjson":
        made = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        return Response(made, media_type="application/x-ndjson", headers=headers)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([csv_cell(value, raw=False) for value in row])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
