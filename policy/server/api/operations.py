"""What an operation of the API is, and how a request becomes the call of one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlencode

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from policy.manifests import odd
from policy.manifests.fields import child
from policy.manifests.problems import shown
from policy.server.api.idempotency import once
from policy.server.api.models import NoParameters
from policy.server.api.result import ApiResult
from policy.server.http import (
    API,
    NUL,
    Failure,
    body_of,
    in_thread,
    invalid,
    json_response,
    sent_path,
)
from policy.server.security.access import NOBODY, Access, Principal
from policy.server.security.gate import allowed, require_still
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.typed import UNDECODABLE, undecodable

_NAME: Final = re.compile(r"\{(name|other|cluster)\}")
"""Parameters that may hold slashes, as names of clusters and environments, and of rules, do."""
IMMUTABLE: Final = "private, max-age=31536000, immutable"
IF_MATCH: Final = "If-Match"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What an operation is called with; values are validated."""

    service: PolicyService
    principal: Principal
    path: Mapping[str, str]
    query: Any
    body: Any
    if_match: Collection[str] | None = None  #: tags, one of which it must have; None for any


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation:
    """One method of one path."""

    method: str
    path: str  #: below the base, `{name}` for parameters
    name: str
    summary: str
    call: Callable[[ApiRequest], ApiResult]
    answers: Sequence[type[msgspec.Struct]]  #: types of its document: one of them describes it
    role: Role = Role.VIEWER
    limited: bool = False  #: also for tokens that are limited to namespaces
    public: bool = False  #: for everybody, also without a token
    query: type[BaseModel] = NoParameters
    body: type[BaseModel] | None = None
    problems: Sequence[int] = ()  #: statuses beside those that every operation has
    writes: bool = False  #: it changes something, and takes an `Idempotency-Key`
    conditional: bool = False  #: it takes an `If-Match`, and is refused with 412 by it
    pages: bool = False  #: its answer may name a next page
    long: bool = False  #: it may take seconds: states are loaded, or SQL of users is run

    @property
    def success(self) -> int:
        """The status where it is done."""
        return 201 if self.writes else 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A GET whose answer comes in parts, for every viewer."""

    path: str
    name: str
    summary: str
    media_type: str
    parts: Sequence[type[msgspec.Struct]] = ()  #: types of a line: one of them describes it
    query: type[BaseModel] = NoParameters
    headers: Mapping[str, str] = field(default_factory=dict)  #: that it reads, with their meaning


def route(operation: ApiOperation, service: PolicyService, access: Access) -> Route:
    async def endpoint(request: Request) -> Response:
        principal = NOBODY
        if not operation.public:
            principal = allowed(access, request, operation.role, unlimited=not operation.limited)
        if principal.session and operation.method != "GET":
            raise Failure(
                403, "not-allowed", "a session may change nothing here: send a token instead"
            )
        query = query_of(operation, request)
        body = await _body(operation, request)
        asked = ApiRequest(
            service=service,
            principal=principal,
            path=request.path_params,
            query=query,
            body=body,
            if_match=_if_match(request) if operation.conditional else None,
        )

        def called() -> ApiResult:
            if not operation.public:
                require_still(access, request, principal)
            return operation.call(asked)

        async def answer() -> ApiResult:
            if operation.long:
                return await service.long_work.of(request, principal.name, called)
            return await in_thread(called)

        if operation.writes and body is not None:
            result = await once(service, request, principal, body.model_dump(), answer)
        else:
            result = await answer()
        return _response(request, operation, result)

    path = _NAME.sub(r"{\1:text}", API + operation.path)
    return _OwnPath(path, endpoint, methods=[operation.method], name=operation.name)


class _OwnPath(Route):
    """The only operation of its path: for another method there is none, and no route behind it.

    What is below a name would otherwise be found as a name that holds slashes. A slash that is
    written as `%2F` is one of a name: environment `a/rollback` is at `a%2Frollback`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self._last = path.rpartition("/")[2]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        sent = unquote_to_bytes(scope["raw_path"].rpartition(b"/")[2])
        if not self._last.startswith("{") and sent != self._last.encode():
            return Match.NONE, {}
        return (Match.FULL if match is Match.PARTIAL else match), found


def query_of(
    operation: ApiOperation | Stream,
    request: Request,
    *,
    blanks: bool = False,
    beside: Collection[str] = (),
) -> BaseModel:
    """The parameters of a request. blanks: an empty one, as a form sends it, is none.

    beside: parameters that a page has beside those of the operation. Raises Failure.
    """
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in beside or (blanks and not value):
            continue
        if name in given:
            raise invalid("query", [(name[:80], "it is given twice")])
        given[name] = value
    return _validated(operation.query, given, "query")


async def _body(operation: ApiOperation, request: Request) -> BaseModel | None:
    if operation.body is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise Failure(415, "bad-request", "the body has to be `application/json`")
    coding = request.headers.get("content-encoding", "identity").strip()
    if coding.lower() != "identity":
        told = f"the body has to come as it is, and `Content-Encoding` is `{coding[:40]}`"
        raise Failure(415, "bad-request", told)
    # What a megabyte of it holds takes tenths of a second to look at.
    return await in_thread(_read_body, operation.body, await body_of(request))


def _read_body(model: type[BaseModel], content: bytes) -> BaseModel:
    try:
        value = msgspec.json.decode(content)
        repeated = odd.repeated(content, value)
    except RecursionError as exc:
        raise Failure(400, "bad-request", f"the body is not JSON: {exc}") from exc
    except UNDECODABLE as exc:
        told = f"the body is not JSON: {undecodable(exc)}"
        raise Failure(400, "bad-request", told) from exc
    if repeated:
        raise invalid("body", [(one.field, one.message) for one in repeated])
    if any("\0" in text for text in _texts(value)):
        raise Failure(400, "bad-request", f"the body holds {NUL}")
    return _validated(model, value, "body")


def _if_match(request: Request) -> Collection[str] | None:
    """The tags of the header; None where it is not sent, or names all there may be."""
    tags = _tags(request, IF_MATCH)
    return tags if tags and tags != ["*"] else None


def _tags(request: Request, header: str) -> list[str]:
    """Those of a header, which may stand on several lines; none where it is not sent."""
    return [tag.strip() for line in request.headers.getlist(header) for tag in line.split(",")]


def _texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value, those of keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value:
            yield from _texts(item)
        if isinstance(value, dict):
            yield from _texts(list(value.values()))


def _validated(model: type[BaseModel], value: Any, where: str) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_input=False)
        raise invalid(where, [(_field(e["loc"]), _words(e, where)) for e in found]) from exc


def _field(place: Iterable[str | int]) -> str:
    """`ids[0]` or `parameters.a`, as manifests have it."""
    found = ""
    for part in place:
        if isinstance(part, int):
            found += f"[{part}]"
        else:
            found = child(found, shown(part)) if found else shown(part)
    return found


def _words(error: Mapping[str, Any], where: str) -> str:
    """What is wrong with one field, as the command line says it."""
    context = error.get("ctx", {})
    key = "parameter" if where == "query" else "key"
    match error["type"]:
        case "extra_forbidden":
            return f"there is no such {key}"
        case "missing":
            return "it is missing"
        case "literal_error":
            return f"not one of {context['expected'].replace(chr(39), '`')}"
        case "int_parsing" | "int_type":
            return "not a whole number"
        case "int_parsing_size":
            return "a number of too many digits"
        case "string_type":
            return "not a text"
        case "list_type":
            return "not a list"
        case "dict_type" | "model_type":
            return "not an object"
        case "greater_than_equal":
            return f"less than {context['ge']}"
        case "less_than_equal":
            return f"more than {context['le']}"
        case "greater_than":
            return f"not more than {context['gt']}"
        case "less_than":
            return f"not less than {context['lt']}"
        case "string_too_long":
            return f"longer than {context['max_length']} characters"
        case "too_long" if context["field_type"] == "Dictionary":
            return f"more than {context['max_length']} {key}s"
        case "too_long":
            return f"more than {context['max_length']} of them"
        case "string_too_short" | "too_short":
            return "it is empty" if context["min_length"] == 1 else "too short"
    said: str = error["msg"]
    return said.removeprefix("Value error, ")


def _response(request: Request, operation: ApiOperation, result: ApiResult) -> Response:
    if operation.method != "GET":
        return json_response(result.document, status=result.status)
    headers = {}
    if result.next:
        kept = {k: v for k, v in request.query_params.items() if k not in result.next}
        given = {k: v for k, v in result.next.items() if v is not None}
        target = f"{sent_path(request)}?{urlencode({**kept, **given})}"
        headers["Link"] = f'<{target}>; rel="next"'
    return read(request, result.document, immutable=result.immutable, headers=headers)


def read(
    request: Request,
    document: Any,
    *,
    immutable: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer to a GET, or 304 where whoever asks has it. headers: of the former."""
    content = msgspec.json.encode(document)
    tag = _tag(content)
    kept = {
        "ETag": tag,
        "Cache-Control": IMMUTABLE if immutable else "private, no-cache",
        # What a browser keeps is of the session that it was given to, and ends with it.
        "Vary": "Authorization, Cookie",
    }
    known = _tags(request, "If-None-Match")
    if tag in known or f"W/{tag}" in known or known == ["*"]:
        return Response(status_code=304, headers=kept)
    return Response(content, media_type="application/json", headers={**(headers or {}), **kept})


def etag(document: Any) -> str:
    """The `ETag` of the answer to a GET that gives the document."""
    return _tag(msgspec.json.encode(document))


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
