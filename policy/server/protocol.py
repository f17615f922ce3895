"""HTTP/1.1 on one connection: limits of a request's head, how many connections there may be, and
the name of a certificate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from policy.server.http import HEAD_BYTES
from policy.server.security.access import CALLER, PEER

_CONNECTIONS: Final = 500
"""At once. A further one takes the place of one that waits for nothing, else of one of whoever has
the most: whoever opens many, also for requests that take long, does not keep others out."""
_HEAD_SECONDS: Final = 10
"""A client that has not sent the whole head of a request by then is disconnected."""
_FRAME_BYTES: Final = 16
"""What the framing of a byte may take up: a client may send a body in chunks of one byte."""
_AT_ONCE_BYTES: Final = 256 << 10
"""Of a body that are handed on together: as many as asyncio reads at once. Every step of the event
loop may wait for a thread that decides, and a call is mostly below that."""


_UNTAKEN_BYTES: Final = 256 << 20
"""Of answers that their clients have not taken yet, together: a client need not read what it asks
for. Beyond that whoever has the most of it loses all but one."""
_LARGE_BYTES: Final = 256 << 10
"""Of an answer after which that is looked at: less is not worth it, on so many connections."""
_SAID_SECONDS: Final = 60.0


class SaidSeldom(logging.Filter):
    """Lets each warning through once a minute: what a stranger sends fills no log."""

    def __init__(self) -> None:
        super().__init__()
        #: by text, which is uvicorn's own: when it was said, on the monotonic clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text, now = str(record.msg), time.monotonic()
        if now - self._said.get(text, -_SAID_SECONDS) < _SAID_SECONDS:
            return False
        self._said[text] = now
        return True


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on what comes before and between the bytes of a body."""

    _deadline: asyncio.TimerHandle | None = None
    _in_head = True
    _since = 0.0  #: when it began to wait for a request, or the request came, by the loop's clock
    _asked = False  #: was there a request over it?
    _gave_way = False  #: is it gone as soon as the event loop comes round?
    _around = 0  #: bytes since the request began that are no body
    _body = 0

    def connection_made(self, transport: Any) -> None:
        together: Any = _HeadWithBody(transport, self.loop, self._keep_little)
        super().connection_made(together)
        self.app = _naming(self.app, _common_name(transport))
        self._since = self.loop.time()
        self._await_head()
        if len(self.connections) > _CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Let go of the connection that is missed least.

        First of one that is closed already, then of those that wait for a request: of those without
        any, and of those whose last one was answered before the whole of it came; else of whoever
        has the most of them, strangers together being one. It is the one that has waited longest.

        Where an answer is due on each of the others, one of whoever has the most of them: one that
        is not taken by its client, or the one with the oldest request. Where none has two and
        each is taken, this one.
        """
        others = [
            one
            for one in self.connections
            if isinstance(one, Protocol) and one is not self and not one._gave_way
        ]
        # Over TLS such a one waits for its client to end it, too, up to half a minute.
        closed = [one for one in others if one.transport.is_closing() and not one._is_untaken]
        if closed:
            min(closed, key=lambda one: one._since)._give_way()
            return
        idle = [one for one in others if one.is_idle]
        if idle:
            many = Counter(one._caller for one in idle)

            def missed(one: Protocol) -> tuple[bool, int, bool, float]:
                asked = one._asked and one._in_head
                return asked, -many[one._caller] if asked else 0, one._caller != "", one._since

            min(idle, key=missed).transport.close()
            return
        # One that is closing stays where its client does not take what is left.
        due = [one for one in others if one._is_untaken or not one.transport.is_closing()]
        held = Counter(one._caller for one in due)
        most = max(held.values(), default=0)
        theirs = [one for one in due if held[one._caller] == most]
        if most < 2:
            theirs = [one for one in theirs if one._is_untaken]
        # To close it would wait for the client, as those do that are closed already.
        oldest = min(theirs, key=lambda one: (not one._is_untaken, one._since), default=self)
        oldest._give_way()

    def _give_way(self) -> None:
        self._gave_way = True
        self.transport.abort()

    @property
    def _is_untaken(self) -> bool:
        """Does its client leave an answer where it is?"""
        return self._unsent > 0

    @property
    def _unsent(self) -> int:
        """Bytes that wait for its client."""
        transport: Any = self.transport
        # Over TLS they wait below it, where asyncio does not count them.
        below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        encrypted = 0 if below is None else below.get_write_buffer_size()
        return int(transport.get_write_buffer_size() + encrypted)

    def _keep_little(self) -> None:
        """Close connections over which too much waits for its clients, the oldest requests first.

        One of each caller stays, however large its answer is.
        """
        unsent = {one: one._unsent for one in self.connections if isinstance(one, Protocol)}
        while sum(unsent.values()) > _UNTAKEN_BYTES:
            held: defaultdict[str, list[Protocol]] = defaultdict(list)
            for one, size in unsent.items():
                if size:
                    held[one._caller].append(one)
            several = [theirs for theirs in held.values() if len(theirs) > 1]
            if not several:
                return
            theirs = max(several, key=lambda some: sum(unsent[one] for one in some))
            oldest = min(theirs, key=lambda one: one._since)
            oldest.transport.abort()
            del unsent[oldest]

    @property
    def _caller(self) -> str:
        """Who makes the newest request over it; "" for a stranger, and where it is not known."""
        return "" if self.cycle is None else str(self.cycle.scope.get(CALLER, ""))

    @property
    def is_idle(self) -> bool:
        """Is no answer due, but for a request whose head is not whole?"""
        answered = self.cycle is None or self.cycle.response_complete
        return bool(answered) and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)
        # The base leaves it where the client broke the connection: it would hold all of this, over
        # TLS also what the largest answer took, for as long as it lasts.
        self._unset_keepalive_if_required()
        transport: Any = self.transport
        transport.is_lost()

    def data_received(self, data: bytes) -> None:
        if self._in_head and self._deadline is None:
            self._await_head()
        self._around += len(data)
        super().data_received(data)
        if self._around > HEAD_BYTES + self._body * _FRAME_BYTES:
            self.transport.close()

    # --- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._around, self._body = True, 0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Fields behind a body are none of its head: who reads the request has read that already.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_there()
        self._asked, self._since = True, self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._around -= len(body)
        self._body += len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        # The base wakes the application for each part, and pauses the reading at 64 kB.
        cycle.body += body
        if len(cycle.body) > _AT_ONCE_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def _unsupported_upgrade_warning(self) -> None:
        """What a client would rather speak is not offered, and its request is answered as it is."""

    # --- the deadline ----------------------------------------------------------------------------

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._too_slow)

    def _head_is_there(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self.transport.close()


class _HeadWithBody:
    """A transport that sends the head of an answer together with what follows it at once.

    Every call of the system lets another thread go on, for which the event loop then waits.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        large: Callable[[], None],
    ) -> None:
        """large: is called after much was written at once."""
        self._transport = transport
        self._loop = loop
        self._large: Callable[[], None] | None = large
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            # A stream may have nothing more to say for now.
            self._loop.call_soon(self._send)
            return
        self._transport.write(data)
        if len(data) >= _LARGE_BYTES and self._large is not None:
            self._large()

    def close(self) -> None:
        """Once, also where a time limit passes while the client does not say goodbye.

        Over TLS a transport that is closed twice forgets what it is of, and fails when it is asked
        how much waits for its client.
        """
        if not self._transport.is_closing():
            self._send()
            self._transport.close()

    def is_lost(self) -> None:
        """Let go of who uses it: what it holds would else stay until Python looks for cycles."""
        self._large = None

    def _send(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


def _common_name(transport: asyncio.Transport) -> str:
    """The name in a client certificate that the TLS layer has verified; "" without one."""
    found = transport.get_extra_info("ssl_object")
    certificate = found.getpeercert() if found is not None else None
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def _naming(app: Any, peer: str) -> Any:
    if not peer:
        return app

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return named
