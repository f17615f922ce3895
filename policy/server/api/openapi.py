"""The OpenAPI 3.1 document, made of the table of operations and the models that validate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from policy import __version__
from policy.server.api.idempotency import HEADER
from policy.server.api.operations import BASE, ApiOperation, Stream
from policy.server.security.tokens import Role

_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "help": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
_WORDS: Final = {
    400: "A parameter or the body is not valid.",
    401: "A token is needed.",
    403: "The token does not allow this.",
    404: "There is nothing under that name.",
    408: "The body did not arrive in time.",
    409: "The request does not go with the present state.",
    413: "The body is too large.",
    415: "The body has another type.",
    422: "The `Idempotency-Key` was sent with another body before.",
    421: "A service without tokens answers to the loopback address only.",
    503: "The database cannot answer now.",
}

_KEY: Final = "The same key with the same body is done once, and answered alike for a day."


def document(operations: Iterable[ApiOperation], streams: Iterable[Stream]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(BASE + operation.path, {})[operation.method.lower()] = _described(
            operation
        )
    for stream in streams:
        paths[BASE + stream.path] = {"get": _described_stream(stream)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "policy",
            "version": __version__,
            "summary": "Preemption decisions: the record, the rules, and what decides now.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _described(operation: ApiOperation) -> dict[str, Any]:
    statuses = [400, 401, 403, 404, 421, 503, *operation.problems]
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs role `{operation.role}`.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"\{(\w+)\}", operation.path)
            ),
            *_parameters(operation.query),
            *(_headers({HEADER: _KEY}) if operation.writes else ()),
        ],
    }
    if operation.body is not None:
        schema = operation.body.model_json_schema(ref_template="#/components/schemas/{model}")
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
        statuses += [408, 413, 415]
    success = "201" if operation.name in ("activate", "rollBack") else "200"
    told["responses"] = {
        success: {
            "description": "Done.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        **({"304": {"description": "Not modified."}} if operation.method == "GET" else {}),
        **_problems(statuses),
    }
    return told


def _described_stream(stream: Stream) -> dict[str, Any]:
    return {
        "operationId": stream.name,
        "summary": stream.summary,
        "description": f"Needs role `{Role.VIEWER}`.",
        "parameters": [*_parameters(stream.query), *_headers(stream.headers)],
        "responses": {
            "200": {
                "description": "Done.",
                "content": {stream.media_type: {"schema": {"type": "string"}}},
            },
            **_problems([400, 401, 403, 404, 421, 503]),
        },
    }


def _problems(statuses: Iterable[int]) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        str(status): {
            "description": _WORDS[status],
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status in sorted(statuses)
    }


def _headers(named: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "maxLength": 255, "description": meaning},
        }
        for name, meaning in named.items()
    ]


def _parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {k: v for k, v in described.items() if k != "title"},
        }
        for name, described in schema.get("properties", {}).items()
    ]
