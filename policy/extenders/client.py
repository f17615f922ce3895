"""Asking extenders over HTTP.

One POST per question, a deadline for the whole exchange. Status 200 alone is an answer; everything
else is a failure in kube-scheduler's words, so that it reads the same in the event of a pod.
Connections to a peer are kept and used again. HTTPS is checked against the system's certificates;
redirects are not followed, and proxies that the environment names are not used.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from policy.extenders.protocol import Answer, BadAnswer, ExtenderVerb, content_of, url_of, verb_of
from policy.rules.ruleset import Extender

MAX_BYTES: Final = 256 * 1024 * 1024
"""An answer may hold every node of a large cluster, and no more."""

_CHUNK: Final = 1 << 16
_SLOW: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_SLOW_BODY: Final = (
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
)


class _TooLate(Exception):
    """The deadline passed; `reading` is set where the answer had begun to arrive."""

    def __init__(self, *, reading: bool) -> None:
        super().__init__()
        self.reading = reading


class _TooLarge(Exception):  # what happened, in the words of its message
    """The answer has more than `MAX_BYTES`."""


class HttpExtenders:
    """Extenders as the network has them; one pool of connections and one TLS context per peer."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], HTTPConnectionPool] = {}

    def ask(self, kind: ExtenderVerb, extender: Extender, request: bytes) -> Answer:
        url = url_of(extender, kind)
        parts = urlsplit(url)
        try:
            pool = self._pool(parts)
            status, body = _post(pool, parts, request, seconds=extender.http_timeout_seconds)
        except _TooLate as exc:
            text = _SLOW_BODY if exc.reading else f'Post "{url}": {_SLOW}'
            return Answer(status=0, error=text, content="")
        except (HTTPError, OSError, _TooLarge) as exc:
            return Answer(status=0, error=f'Post "{url}": {_words(exc)}', content="")
        if status != http.client.OK:
            text = f"failed {verb_of(extender, kind)} with extender at URL {url}, code {status}"
            return Answer(status=status, error=text, content="")
        try:
            content = content_of(kind, body, names_only=extender.node_cache_capable)
        except BadAnswer as exc:
            return Answer(status=status, error=str(exc), content="")
        return Answer(status=status, error="", content=content)

    def _pool(self, parts: SplitResult) -> HTTPConnectionPool:
        peer = parts.scheme, parts.netloc
        if peer not in self._pools:
            host, port = parts.hostname or "", parts.port
            if parts.scheme == "https":
                context = ssl.create_default_context()
                self._pools[peer] = _SecurePool(host, port, ssl_context=context)
            else:
                self._pools[peer] = _Pool(host, port)
        return self._pools[peer]


def _words(exc: Exception) -> str:
    """What went wrong, lower case as Go has it."""
    cause: BaseException = exc
    while isinstance(cause, HTTPError):
        inner = cause.__cause__ or next((a for a in cause.args if isinstance(a, Exception)), None)
        # The library wraps what the socket or the TLS layer said.
        if inner is None:
            break
        cause = inner
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return (text or type(cause).__name__).lower()


def _post(
    pool: HTTPConnectionPool, parts: SplitResult, body: bytes, *, seconds: int
) -> tuple[int, bytes]:
    """Status and body of the answer (only a status of 200 is read on).

    Raises HTTPError, OSError, _TooLate, _TooLarge.
    """
    end = time.monotonic() + seconds
    reading = False
    try:
        response = pool.urlopen(
            "POST",
            (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
            body=body,
            headers={"Content-Type": "application/json"},
            retries=False,
            redirect=False,
            timeout=Timeout(total=seconds),
            preload_content=False,
            decode_content=False,
        )
        assert isinstance(response, HTTPResponse)
        reading = True
        try:
            if response.status != http.client.OK:
                return response.status, b""
            return response.status, _read(response, end)
        finally:
            _let_go(response)
    except (HTTPError, OSError) as exc:
        slow = isinstance(exc, ConnectTimeoutError | ReadTimeoutError)
        # The library counts a refused connection among those that took too long.
        if (slow and not isinstance(exc, NewConnectionError)) or time.monotonic() >= end:
            raise _TooLate(reading=reading) from exc
        raise


def _let_go(response: HTTPResponse) -> None:
    """A connection whose answer was read to its end is used again; others are closed."""
    if response.closed:
        response.release_conn()
    else:
        response.close()


def _read(response: HTTPResponse, end: float) -> bytes:
    connection = response.connection
    assert isinstance(connection, _Watched)
    parts: list[bytes] = []
    size = 0
    with _shut_down_after(end - time.monotonic(), connection.answering):
        while part := response.read(_CHUNK):
            size += len(part)
            if size > MAX_BYTES:
                raise _TooLarge(f"the answer is larger than {MAX_BYTES} bytes")
            parts.append(part)
    if time.monotonic() >= end:
        raise _TooLate(reading=True)
    return b"".join(parts)


class _Watched(HTTPConnection):
    """A connection that is shut down where an answer does not come in time.

    A peer that sends a byte now and then never runs into a socket's own timeout.
    """

    answering: socket.socket  #: kept: http.client forgets that of a connection it will not reuse

    def getresponse(self) -> Any:
        assert self.sock is not None
        self.answering = self.sock
        # What is left of the time for the whole exchange.
        with _shut_down_after(float(self.timeout or 0), self.sock):
            return super().getresponse()


class _WatchedTls(_Watched, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Watched


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTls


@contextmanager
def _shut_down_after(seconds: float, sock: socket.socket) -> Iterator[None]:
    """Shuts a socket down when the seconds pass inside the block."""
    timer = threading.Timer(max(0.0, seconds), _shut_down, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):  # closed already: the answer was faster
        sock.shutdown(socket.SHUT_RDWR)
