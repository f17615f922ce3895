"""The OpenAPI 3.1 document, made of the table of operations and the models that validate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from policy import __version__
from policy.server.api.answers import Problem
from policy.server.api.idempotency import HEADER, LONGEST
from policy.server.api.operations import IF_MATCH, ApiOperation, Stream
from policy.server.http import API
from policy.server.security.tokens import Role

_REFERENCE: Final = "#/components/schemas/{name}"
_WORDS: Final = {
    400: "A parameter or the body is not valid.",
    401: "A token is needed.",
    403: "The token does not allow this.",
    404: "There is nothing under that name.",
    405: "Nothing is done here by that method.",
    408: "The body did not arrive in time.",
    409: "The request does not go with the present state.",
    412: "It is no longer as `If-Match` says.",
    413: "The body is too large.",
    415: "The body has another type, or is compressed.",
    422: "The `Idempotency-Key` was sent with another body before.",
    421: "A service without tokens answers to the loopback address only.",
    500: "The service failed, or rows of the record are not those that were written.",
    501: "The service as it was started does not offer this.",
    503: "The database cannot answer now.",
}

_EVERY: Final = (400, 404, 405, 421, 500, 503)
"""Statuses that every operation has; those that need a token 401 and 403 as well."""
_PLACES: Final = {
    "id": "Number, or (of a decision) the beginning of a digest.",
    "name": "Name of the environment; of a rule set, its name or the beginning of its digest.",
    "other": "Name of a rule set, or the beginning of its digest.",
    "cluster": "Name of the cluster.",
    "kind": "Last part of the `type` of a problem.",
}
"""What parameters of paths mean."""
_LENGTHS: Final[Mapping[str, Mapping[str, int]]] = {HEADER: {"minLength": 1, "maxLength": LONGEST}}
"""Of headers that have a length."""
_RETURNED: Final = {
    "ETag": "Send it as `If-None-Match`: 304 means that the answer is the same.",
    "Cache-Control": "`immutable` where the answer is the same for ever.",
    "Vary": "An answer that is kept is for the token, or the session, that was sent.",
    "Link": 'The next page, `rel="next"`; missing on the last one.',
    "Retry-After": "Seconds.",
    "WWW-Authenticate": "How to authenticate.",
    "Content-Disposition": "A name for the file.",
}
"""Headers of answers."""
_TAG: Final = "The `ETag` of an answer that is known."
_UNCHANGED: Final = (
    "The `ETag` of the environment as it was read: if rules were activated since, nothing is done."
)
_KEY: Final = "The same key with the same body is done once, and answered alike for a day."


def document(operations: Sequence[ApiOperation], streams: Sequence[Stream]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(API + operation.path, {})[operation.method.lower()] = _described(operation)
    for stream in streams:
        paths[API + stream.path] = {"get": _described_stream(stream)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "policy",
            "version": __version__,
            "summary": "Preemption decisions: the record, the rules, and what decides now.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(operations, streams),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _schemas(operations: Iterable[ApiOperation], streams: Iterable[Stream]) -> dict[str, Any]:
    """The schema of every answer, and of what is in them."""
    parts = (part for stream in streams for part in stream.parts)
    whole = (answer for operation in operations for answer in operation.answers)
    kinds = dict.fromkeys([Problem, *whole, *parts])
    _, found = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    _name_items(found)
    return found


def _name_items(schema: Any) -> None:
    """Give every array `items` that are a schema.

    msgspec leaves them out where they may be anything, and ends tuples by `false` beside their
    number. Both are allowed, and generators of clients refuse them.
    """
    if isinstance(schema, dict):
        if schema.get("type") == "array" and not schema.get("items"):
            schema["items"] = {}
        for part in schema.values():
            _name_items(part)
    elif isinstance(schema, list):
        for part in schema:
            _name_items(part)


def _refer(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _returned(*names: str) -> dict[str, Any]:
    return {name: {"description": _RETURNED[name], "schema": {"type": "string"}} for name in names}


def _described(operation: ApiOperation) -> dict[str, Any]:
    statuses = [*_EVERY, *operation.problems]
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs role `{operation.role}`.",
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "description": _PLACES[name]},
                }
                for name in re.findall(r"\{(\w+)\}", operation.path)
            ),
            *_parameters(operation.query),
            *(_headers({HEADER: _KEY}) if operation.writes else ()),
            *(_headers({IF_MATCH: _UNCHANGED}) if operation.conditional else ()),
            *(_headers({"If-None-Match": _TAG}) if operation.method == "GET" else ()),
        ],
    }
    if operation.public:
        told |= {"description": "For everybody, also without a token.", "security": []}
    else:
        statuses += [401, 403]
    if operation.body is not None:
        schema = operation.body.model_json_schema(ref_template="#/components/schemas/{model}")
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
        statuses += [408, 413, 415]
    kept = ("ETag", "Cache-Control", "Vary") if operation.method == "GET" else ()
    schemas = [_refer(kind) for kind in operation.answers]
    told["responses"] = {
        str(operation.success): {
            "description": "Done.",
            "headers": _returned(*kept, *(("Link",) if operation.pages else ())),
            "content": {
                "application/json": {
                    "schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
                }
            },
        },
        **({"304": {"description": "Not modified.", "headers": _returned(*kept)}} if kept else {}),
        **_problems(statuses),
    }
    return told


def _described_stream(stream: Stream) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if stream.parts:
        kinds = " or ".join(f"`{part.__name__}`" for part in stream.parts)
        schema["description"] = f"Each line is JSON: {kinds}."
    named = stream.media_type != "text/event-stream"  # the others are files
    return {
        "operationId": stream.name,
        "summary": stream.summary,
        "description": f"Needs role `{Role.VIEWER}`.",
        "parameters": [*_parameters(stream.query), *_headers(stream.headers)],
        "responses": {
            "200": {
                "description": "Done.",
                "headers": _returned(*(("Content-Disposition",) if named else ())),
                "content": {stream.media_type: {"schema": schema}},
            },
            **_problems([*_EVERY, 401, 403]),
        },
    }


def _problems(statuses: Iterable[int]) -> dict[str, Any]:
    headers = {401: ("WWW-Authenticate",), 503: ("Retry-After",)}
    return {
        str(status): {
            "description": _WORDS[status],
            "headers": _returned(*headers.get(status, ())),
            "content": {"application/problem+json": {"schema": _refer(Problem)}},
        }
        for status in sorted(set(statuses))
    }


def _headers(named: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "description": meaning, **_LENGTHS.get(name, {})},
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
