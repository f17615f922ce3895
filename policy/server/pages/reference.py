"""The operations of the API for people, from the document that programs read."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from policy.server.api import openapi
from policy.server.api.table import OPERATIONS, STREAMS
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    return pages.page(request, principal, "api.html", operations=operations())


@cache
def operations() -> list[dict[str, Any]]:
    """Each with its method, path, parameters, the schema of its body, and its answers."""
    return [
        {
            **told,
            "id": told["operationId"],
            "method": method.upper(),
            "path": path,
            "body": _body(told),
        }
        for path, methods in openapi.document(OPERATIONS, STREAMS)["paths"].items()
        for method, told in methods.items()
    ]


def _body(told: dict[str, Any]) -> dict[str, Any] | None:
    body = told.get("requestBody")
    schema: dict[str, Any] | None = body["content"]["application/json"]["schema"] if body else None
    return schema
