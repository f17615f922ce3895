"""What happened? The list of decisions."""

from __future__ import annotations

from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from policy.decision.model import Outcome
from policy.server import views
from policy.server.api.models import DecisionsQuery
from policy.server.api.table import wanted_of
from policy.server.http import Failure, in_thread
from policy.server.pages.surface import PAGE, Pages
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    given = {k: v for k, v in request.query_params.items() if v}
    try:
        query = DecisionsQuery.model_validate({**given, "limit": PAGE})
    except ValidationError as exc:
        error = exc.errors()[0]
        field = ".".join(map(str, error["loc"]))
        raise Failure(400, "invalid", f"`{field}`: {error['msg']}") from exc
    rows, lines = await in_thread(
        views.decisions, pages.service, principal, wanted_of(query), limit=PAGE
    )
    older = None
    if len(rows) == PAGE:
        older = "/decisions?" + urlencode({**given, "after": rows[-1].id})
    return pages.page(
        request,
        principal,
        "decisions.html",
        lines=lines,
        older=older,
        outcomes=[outcome.value for outcome in Outcome],
        export="/api/v1/export/decisions?" + urlencode(given),
    )
