"""Asking extenders over HTTP.

One POST per question, a deadline for the whole exchange. Status 200 alone is an answer; everything
else is a failure in kube-scheduler's words, so that it reads the same in the event of a pod. HTTPS
is checked against the system's certificates.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from policy.extenders.protocol import Answer, BadAnswer, Kind, content_of, url_of, verb_of
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


class HttpExtenders:
    """Extenders as the network has them."""

    def ask(self, kind: Kind, extender: Extender, request: bytes) -> Answer:
        url = url_of(extender, kind)
        try:
            status, body = _post(url, request, seconds=extender.http_timeout_seconds)
        except _TooLate as exc:
            text = _SLOW_BODY if exc.reading else f'Post "{url}": {_SLOW}'
            return Answer(status=0, error=text, content="")
        except (OSError, http.client.HTTPException) as exc:
            return Answer(status=0, error=f'Post "{url}": {_words(exc)}', content="")
        if status != http.client.OK:
            text = f"failed {verb_of(extender, kind)} with extender at URL {url}, code {status}"
            return Answer(status=status, error=text, content="")
        try:
            content = content_of(kind, body, names_only=extender.node_cache_capable)
        except BadAnswer as exc:
            return Answer(status=status, error=str(exc), content="")
        return Answer(status=status, error="", content=content)


def _words(exc: OSError | http.client.HTTPException) -> str:
    """What went wrong, lower case as Go has it."""
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return (text or type(exc).__name__).lower()


@dataclass(slots=True)
class _Deadline:
    at: float

    @property
    def left(self) -> float:
        return self.at - time.monotonic()

    @property
    def passed(self) -> bool:
        return self.left <= 0


def _post(url: str, body: bytes, *, seconds: int) -> tuple[int, bytes]:
    """Status and body of the answer (only a status of 200 is read on).

    Raises OSError, HTTPException, _TooLate.
    """
    deadline = _Deadline(time.monotonic() + seconds)
    parts = urlsplit(url)
    reading = False
    with closing(_connection(parts.scheme, parts.netloc, seconds)) as connection:
        try:
            connection.connect()
            # A peer that sends a byte now and then never runs into a socket's own timeout: the
            # connection is shut down when the time is over.
            with _shut_down_at(deadline, connection.sock):
                connection.request(
                    "POST",
                    parts.path + (f"?{parts.query}" if parts.query else ""),
                    body=body,
                    headers={"Content-Type": "application/json"},
                )
                response = connection.getresponse()
                reading = True
                if response.status != http.client.OK:
                    return response.status, b""
                return response.status, _read(response, deadline)
        except (OSError, http.client.HTTPException) as exc:
            if isinstance(exc, TimeoutError) or deadline.passed:
                raise _TooLate(reading=reading) from exc
            raise


def _connection(scheme: str, host: str, seconds: int) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, timeout=seconds, context=context)
    return http.client.HTTPConnection(host, timeout=seconds)


class _shut_down_at:  # noqa: N801  # reads as a phrase where it is used
    """Shuts a socket down when the deadline passes inside the block."""

    def __init__(self, deadline: _Deadline, sock: socket.socket) -> None:
        self._timer = threading.Timer(max(0.0, deadline.left), _shut_down, [sock])
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):  # closed already: the answer was faster
        sock.shutdown(socket.SHUT_RDWR)


def _read(response: http.client.HTTPResponse, deadline: _Deadline) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := response.read(_CHUNK):
        size += len(part)
        if size > MAX_BYTES:
            raise http.client.HTTPException(f"the answer is larger than {MAX_BYTES} bytes")
        parts.append(part)
    if deadline.passed:
        raise _TooLate(reading=True)
    return b"".join(parts)
