"""What every route shares: errors as problem+json, bodies with a limit, headers that protect."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any, Final, Generic, ParamSpec, TypeVar
from urllib.parse import quote

import anyio
import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from policy.server.metrics import Metrics
from policy.server.security.access import CALLING
from policy.server.tracing import TRACE, Tracing
from policy.store import Conflict, DamagedRows, InvalidValue, NoReader, NotFound, StoreError

log = logging.getLogger("policy.server")

P = ParamSpec("P")
T = TypeVar("T")

EXTENDER_BYTES: Final = 128 << 20
"""A filter call in the full form holds every node of the cluster that passes."""
EXTENDER_ROOM: Final = 1 << 30
"""What the bodies of all calls that are under way may take together."""
_OWN_PARTS: Final = 3
"""Of the room for bodies that one caller may have, for each part that is left to others."""
BODY_BYTES: Final = 1 << 20
CLIENT_GONE: Final = 499
"""Counted where a client closes the connection before its body is whole, or before its turn to do
what takes long; it gets no answer."""
HEAD_BYTES: Final = 32 << 10
_BODY_SECONDS: Final = 30.0

NUL: Final = "the character NUL, which no text may hold"

API: Final = "/api/v1"
"""Where the addresses of the API begin."""
PROBLEMS: Final = f"{API}/problems/"


class _Text(Convertor[str]):
    """A name in the path of a route, `{name:text}`, whatever characters it has.

    Starlette's `path` leaves out line ends, which names of environments and clusters may have.
    """

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())


class Failure(Exception):
    """What is answered in place of a result, as RFC 9457 has it."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        help: str = "",
        field: str = "",
        **more: Any,
    ) -> None:
        """kind: last part of the `type`, a page of its own.

        field: the parameter, or the field of a form, that is wrong; "" where it is none alone.
        """
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.help = help
        self.field = field
        self.more = more

    def document(self) -> dict[str, Any]:
        told = {
            "type": PROBLEMS + self.kind,
            "title": TITLES[self.kind],
            "status": self.status,
            "detail": self.message,
            **self.more,
        }
        return {**told, **({"help": self.help} if self.help else {})}


class CutOff(Exception):  # ends the connection, which is all that can be said by then
    """An answer has begun that may not be sent any further."""


def invalid(where: str, found: Sequence[tuple[str, str]], *, help: str = "") -> Failure:
    """where: query or body; found: fields of it, and what is wrong with each."""
    field, message = found[0]
    # What is wrong with several fields together is about none of them.
    told = f"{where}: `{field}`: {message}" if field else f"{where}: {message}"
    errors = [{"in": where, "field": field, "message": message} for field, message in found]
    return Failure(400, "invalid", told, help=help, field=field, errors=errors)


def of_store(exc: StoreError, *, field: str = "") -> Failure:
    """What is answered where the store refused; field: as of Failure.

    What is about the installation may name addresses and folders of the host: that is for its log.
    """
    for kind, (status, name) in _OF_STORE.items():
        if isinstance(exc, kind):
            return Failure(status, name, exc.message, help=exc.help, field=field)
    log.error("a request failed: %s", exc.message)
    return Failure(
        503,
        "unavailable",
        "the database cannot answer now",
        help="try again; the log of the service says why",
    )


@contextmanager
def about(field: str) -> Iterator[None]:
    """What is refused in the block is wrong with that field. Raises Failure."""
    try:
        yield
    except (Failure, StoreError) as exc:
        if isinstance(exc, StoreError):
            raise of_store(exc, field=field) from exc
        exc.field = exc.field or field
        raise


_OF_STORE: Final[Mapping[type[StoreError], tuple[int, str]]] = {
    NotFound: (404, "not-found"),
    InvalidValue: (400, "invalid"),
    NoReader: (501, "not-offered"),
    Conflict: (409, "conflict"),
    DamagedRows: (500, "damaged"),
}


def unforeseen() -> Failure:
    """What is answered where an error was not foreseen; the log has the error."""
    return Failure(500, "internal", "the service failed; its log says how")


TITLES: Final = {
    "bad-request": "The request cannot be understood",
    "invalid": "A parameter or the body is not valid",
    "not-authenticated": "A token is needed",
    "not-allowed": "The token does not allow this",
    "not-found": "There is nothing under that name",
    "conflict": "The request does not go with the present state",
    "changed": "What the request is about has changed since it was read",
    "too-large": "The body is too large",
    "too-slow": "The body did not arrive in time",
    "not-offered": "The service as it was started does not offer this",
    "unavailable": "The database or the service cannot answer now",
    "damaged": "Rows of the record are not those that were written",
    "internal": "The service failed",
}
"""Every kind of problem with its title."""

ADVICE: Final = {
    "bad-request": "check the method, the headers and the form of the body",
    "invalid": "change the field that `detail` and `errors` name, and send the request again",
    "not-authenticated": "send `Authorization: Bearer TOKEN`, with a token of an admin's making",
    "not-allowed": "use a token of a role that may do it, or that sees these namespaces",
    "not-found": "check the name: the lists of the API have what there is",
    "conflict": "read the present state, and decide whether the request is still wanted",
    "changed": "read it again; if the request is still wanted, send it with the new `ETag`",
    "too-large": "send less at a time",
    "too-slow": "send the body without pauses",
    "not-offered": "start the service with the option or the extra that `detail` names",
    "unavailable": "try again later; the log of the service says why",
    "damaged": "`policy audit verify` names the rows; restore the record from a backup",
    "internal": "the log of the service says more; please report it",
}
"""What to do about every kind of problem, where the problem itself says nothing better."""


def refusal_headers(failure: Failure) -> dict[str, str]:
    """Headers of the answer for a failure, whatever its form."""
    headers = {}
    if failure.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="policy"'
    if failure.status == 503:
        headers["Retry-After"] = "1"
    if failure.status in (408, 413):
        headers["Connection"] = "close"  # what is left of the body is not waited for
    return headers


def problem(failure: Failure) -> Response:
    """The answer for a failure."""
    return Response(
        msgspec.json.encode(failure.document()),
        status_code=failure.status,
        media_type="application/problem+json",
        headers=refusal_headers(failure),
    )


def sent_path(request: Request) -> str:
    """The path as it was sent, to be found again: a slash of a name is none of the address."""
    return quote(request.scope["raw_path"], safe="/%")


def json_response(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


class Room:
    """Memory for bodies of requests that are under way; used on the event loop only.

    Those of one caller have three quarters of what the others leave: there is always some for a
    further one.
    """

    def __init__(self, size: int) -> None:
        """size: bytes."""
        self._size = self._left = size
        self._own: Counter[str] = Counter()  #: by caller, what theirs take

    @contextmanager
    def share(self, caller: str) -> Iterator[Callable[[int], None]]:
        """What takes some bytes more, up to the end of the block. That raises Failure."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if size > self._left:
                told = f"the bodies of other requests take up the {self._size} bytes there are"
                raise Failure(503, "unavailable", told)
            if self._own[caller] + size > _OWN_PARTS * (self._left - size):
                told = "the bodies of other requests of the same caller take up its part of the"
                raise Failure(503, "unavailable", f"{told} {self._size} bytes there are")
            self._left -= size
            self._own[caller] += size
            taken += size

        try:
            yield take
        finally:
            self._left += taken
            self._own[caller] -= taken
            if not self._own[caller]:
                del self._own[caller]


async def body_of(
    request: Request, *, limit: int = BODY_BYTES, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body. Raises Failure where it is larger than `limit` bytes or does not arrive.

    take: is called with the bytes of each part before it is kept; what it raises ends the reading.
    """
    given = request.headers.get("content-length", "")
    if given.isdigit() and int(given) > limit:
        raise Failure(413, "too-large", f"the body has {given} bytes, {limit} are allowed")
    body = BytesIO()  # gives what was written without a second copy of it
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Failure(
                        413, "too-large", f"the body is larger than the {limit} bytes allowed"
                    )
                take(len(part))
                body.write(part)
    except TimeoutError:
        raise Failure(
            408, "too-slow", f"the body did not arrive within {_BODY_SECONDS:.0f} seconds"
        ) from None
    return body.getvalue()


_EXTENDER_POOL: Final = anyio.CapacityLimiter(4)
"""Threads of schedulers' calls: no page and no query holds them up."""


class Shared(Generic[T]):
    """Blocking work that several may ask for at once: it is done once for all of them.

    Used on the event loop only.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._limiter = anyio.CapacityLimiter(1)
        self._under_way: asyncio.Future[T] | None = None

    async def result(self, *, seconds: float) -> T:
        """What it gives. Raises what it raises, and TimeoutError where it takes longer."""
        if self._under_way is None or self._under_way.done():
            work = anyio.to_thread.run_sync(self._work, limiter=self._limiter)
            self._under_way = asyncio.ensure_future(work)
            self._under_way.add_done_callback(_heard)
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._under_way)


def _heard(ended: asyncio.Future[Any]) -> None:
    """Whoever has asked may not have waited for the error."""
    if not ended.cancelled():
        ended.exception()


class Turns:
    """Threads for blocking work of users: one who asks for much does not hold up the others.

    The next turn is of whoever has the fewest under way, and of several the one whose last turn was
    before those of the others. The last thread that is free is for somebody who has none.

    Used on the event loop only.
    """

    def __init__(self, *, each: int, all: int) -> None:
        """How many run at once: those of each user, and all."""
        self._each = each
        self._free = all
        self._threads = anyio.CapacityLimiter(all)
        self._under_way: Counter[str] = Counter()
        self._number = count()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  #: by user
        self._newest: dict[str, int] = {}  #: by user, number of the last turn

    async def run(
        self,
        who: str,
        work: Callable[[], T],
        *,
        wanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> T:
        """Run it in a thread, in its turn.

        wanted: is it still, by then? Raises ClientDisconnect where it is not.
        """
        await self._begin(who)
        try:
            if wanted is not None and not await wanted():
                raise ClientDisconnect
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._end(who)

    async def _begin(self, who: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come by then
                self._end(who)
            raise

    def _end(self, who: str) -> None:
        self._free += 1
        self._under_way[who] -= 1
        if not self._under_way[who]:
            del self._under_way[who]
        self._give_turns()

    def _give_turns(self) -> None:
        while (who := self._next()) is not None:
            waiting = self._waiting[who]
            turn = waiting.popleft()
            if not waiting:
                del self._waiting[who]
            self._newest[who] = next(self._number)
            self._free -= 1
            self._under_way[who] += 1
            turn.set_result(None)

    def _next(self) -> str | None:
        """Whose turn it is; None where none can begin."""
        for who, waiting in tuple(self._waiting.items()):
            while waiting and waiting[0].cancelled():
                waiting.popleft()
            if not waiting:
                del self._waiting[who]
        may = [who for who in self._waiting if self._may_begin(who)]
        return min(
            may, key=lambda who: (self._under_way[who], self._newest.get(who, -1)), default=None
        )

    def _may_begin(self, who: str) -> bool:
        own = self._under_way[who]
        return self._free > min(own, 1) and own < self._each


class LongWork:
    """Blocking work of users that may take seconds, as their SQL: it holds up no other request.

    Nor that of other users, see `Turns`. Used on the event loop only.
    """

    def __init__(self, *, each: int, all: int) -> None:
        """As of `Turns`."""
        self._turns = Turns(each=each, all=all)

    async def of(
        self, request: Request, who: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run it, in its turn. Raises ClientDisconnect where its client is gone by then.

        A page that is loaded again and again would else wait for all the times before.
        """

        async def wanted() -> bool:
            return not await request.is_disconnected()

        return await self._turns.run(who, partial(work, *args, **kwargs), wanted=wanted)


_TURNS: Final = Turns(each=8, all=8)
"""Decisions and SQL run in so many threads; the event loop only reads, writes and waits."""


async def in_own_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work however many threads stand still; a time limit does not wait for it."""
    return await anyio.to_thread.run_sync(
        partial(work, *args, **kwargs), limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True
    )


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in the threads that all requests share, in the turn of whoever makes it."""
    return await _TURNS.run(CALLING.get(), partial(work, *args, **kwargs))


async def in_extender_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same in that of schedulers' calls."""
    return await anyio.to_thread.run_sync(partial(work, *args, **kwargs), limiter=_EXTENDER_POOL)


# --- around every route ---------------------------------------------------------------------------

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_TLS: Final = (b"strict-transport-security", b"max-age=31536000")


class Surroundings:
    """Protecting headers on every answer, a count of it, and a refusal of foreign names.

    A service without tokens trusts whoever reaches it. A page of another site could reach it
    through a name that resolves to the loopback address, so only the machine's own names count.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, hosts: frozenset[str] | None, tracing: Tracing
    ) -> None:
        """hosts: names that a request may be for; None for any."""
        self._app = app
        self._metrics = metrics
        self._hosts = hosts
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = scope[TRACE] = self._tracing.begin(scope)
        # Whatever comes of it: a request without an answer has failed.
        status = 500
        try:
            status = await self._answer(scope, receive, send)
        finally:
            trace.end(status)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        """The status of the answer."""
        status, begun = 500, False
        part = part_of(scope["path"])

        async def sending(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                self._metrics.requests.labels(part, str(message["status"])).inc()
                known = {name for name, _ in message["headers"]}
                added = [*_HEADERS, *([_TLS] if scope["scheme"] == "https" else [])]
                if b"cache-control" not in known:
                    added.append((b"cache-control", b"no-store"))
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in added if pair[0] not in known),
                ]
            await send(message)

        wrong = _not_clear(scope)
        if wrong:
            answer = problem(Failure(400, "bad-request", wrong))
            answer.headers["Connection"] = "close"
            await answer(scope, receive, sending)
            return status
        if self._hosts is not None and _host(scope) not in self._hosts:
            refused = Failure(
                421, "bad-request", "a service without tokens answers to the loopback address only"
            )
            await problem(refused)(scope, receive, sending)
            return status
        try:
            await self._app(scope, receive, sending)
        except CutOff:
            # The server says in the log that it is not whole, and closes the connection.
            log.warning("an answer was cut off: the token of its request is not valid any more")
        except Exception:
            if begun:  # an answer that is cut off ends with its connection
                raise
            log.exception("a request failed")
            await problem(unforeseen())(scope, receive, sending)
        return status


PAGES: Final = "pages"
_PARTS: Final = frozenset({"api", "extender", "healthz", "readyz", "metrics", "static"})


def part_of(path: str) -> str:
    """The part of the service that an address is of."""
    first = path[1:].partition("/")[0]
    return first if first in _PARTS else PAGES


def _not_clear(scope: Scope) -> str:
    """Why proxies, or databases, may read a request otherwise than this service; "" if they do not.

    SQLite keeps a NUL, and tools end a text there; Postgres takes none.
    """
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and b"content-length" in names:
        return "`Content-Length` and `Transfer-Encoding` are both given"
    if names.count(b"host") > 1:
        return "`Host` is given twice"
    if b"host" not in names and scope["http_version"] == "1.1":
        return "`Host` is missing"
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
        return f"the head is larger than {HEAD_BYTES} bytes"
    if not scope["path"].startswith("/"):  # as in `OPTIONS *`, which is about no address
        return "the address does not begin with a slash"
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return f"the address holds {NUL}"
    return ""


def _host(scope: Scope) -> str:
    given = next((v for k, v in scope["headers"] if k == b"host"), b"").decode("latin-1")
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.rpartition(":")[0] if ":" in given else given


Handler = Callable[[Request], Awaitable[Response]]
