"""The operations of the API for people, from the document that programs read."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.server.api import openapi
from policy.server.api.table import OPERATIONS, STREAMS
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal

_NONE: dict[str, Any] = {}


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    return await pages.page(
        request, principal, "api.html", operations=operations(), schemas=schemas()
    )


@cache
def _document() -> dict[str, Any]:
    return openapi.document(OPERATIONS, STREAMS)


@cache
def operations() -> list[dict[str, Any]]:
    """Each with its method, path, parameters, the fields of its body, and its answers."""
    return [
        {
            **told,
            "id": told["operationId"],
            "method": method.upper(),
            "path": path,
            "parameters": [
                _entry(one["name"], one["schema"], place=one["in"], required=one["required"])
                for one in told.get("parameters", ())
            ],
            "body": _body(told),
            "done": _done(told),
        }
        for path, methods in _document()["paths"].items()
        for method, told in methods.items()
    ]


@cache
def schemas() -> list[dict[str, Any]]:
    """What is in answers: each with its name and its fields, or its values."""
    return [
        {
            "name": name,
            "about": schema.get("description", ""),
            "values": schema.get("enum", ()),
            "fields": [
                {
                    "name": field,
                    "type": _words(of),
                    "required": field in schema.get("required", ()),
                    "about": _about(of),
                }
                for field, of in schema.get("properties", _NONE).items()
            ],
        }
        for name, schema in _document()["components"]["schemas"].items()
    ]


def _body(told: dict[str, Any]) -> list[dict[str, Any]]:
    body = told.get("requestBody")
    schema = body["content"]["application/json"]["schema"] if body else _NONE
    required = schema.get("required", ())
    return [
        _entry(name, field, place="body", required=name in required)
        for name, field in schema.get("properties", _NONE).items()
    ]


def _entry(name: str, schema: dict[str, Any], *, place: str, required: bool) -> dict[str, Any]:
    """What may be given under a name: `values` one by one, or `bounds` in words."""
    # An optional one is of its type, or null, which is to leave it out.
    parts = [schema, *schema.get("anyOf", ())]
    default = schema.get("default")
    return {
        "name": name,
        "in": place,
        "required": required,
        "about": _about(schema),
        "values": [str(value) for part in parts for value in part.get("enum", ())],
        "bounds": ", ".join(words for part in parts if (words := _bounds(part))),
        "default": "" if default is None else str(default),
    }


_SIZES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " entries"),
    ("minProperties", "maxProperties", " keys"),
)
"""How a schema says the least and the most of a value, by its type, and of what."""


def _bounds(schema: dict[str, Any]) -> str:
    """The least and the most that a value may be; "" where neither is said."""
    for least, most, of in _SIZES:
        low, high = schema.get(least), schema.get(most)
        if low is not None and high is not None:
            return f"{low} to {high}{of}"
        if low is not None:
            return f"{low}{of} or more"
        if high is not None:
            return f"{high}{of} at most"
    return ""


def _done(told: dict[str, Any]) -> dict[str, Any]:
    """The answer where it is done: what it is made of, and its headers."""
    status, answer = next(iter(told["responses"].items()))
    ((kind, content),) = answer["content"].items()
    return {
        "status": status,
        "kind": kind,
        "type": _words(content["schema"]),
        "about": _about(content["schema"]),
        "headers": answer.get("headers", _NONE),
    }


def _about(schema: dict[str, Any]) -> str:
    """What is said of a value, also where it is of one of several types."""
    parts = [schema, *schema.get("anyOf", ())]
    return next((str(part["description"]) for part in parts if "description" in part), "")


def _words(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The type of a value: words, and names of schemas with the id of their section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [(name, f"schema-{name}")]
    if "anyOf" in schema:
        found: list[tuple[str, str]] = []
        for one in schema["anyOf"]:
            found += [*([(" or ", "")] if found else []), *_words(one)]
        return found
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return [("array of ", ""), *_words(schema["items"])]
    values = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(values, dict) and values:
        return [("object of ", ""), *_words(values)]
    return [(str(schema.get("type", "any value")), "")]
