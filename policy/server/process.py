"""One process of the service: sockets, TLS, time limits, and a graceful end."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from policy.server.app import build
from policy.server.config import Config
from policy.server.security.access import PEER, Access
from policy.server.service import PolicyService

_HEAD_SECONDS: Final = 10
"""A client that has not sent the head of its first request by then is disconnected."""

_CONNECTIONS: Final = 500
_GRACE_SECONDS: Final = 9


class _Protocol(H11Protocol):
    """HTTP/1.1 with a time limit for the head of a request, and the name of a certificate."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app = _naming(self.app, _common_name(transport))
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._too_slow)

    def handle_events(self) -> None:
        super().handle_events()
        if self._deadline is not None and self.cycle is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _too_slow(self) -> None:
        self.transport.close()


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


class _Server(uvicorn.Server):
    """Ends by a signal as something that was wanted: with status 0; streams end at once."""

    stopping: threading.Event

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stopping.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server_of(config: Config) -> uvicorn.Server:
    """A server that ends by SIGTERM or SIGINT: it answers what it holds, then closes.

    Raises StoreError where the database cannot be opened, TokenError for a bad file of tokens.
    """
    service = PolicyService(config)
    access = Access(config, clock=service.clock)
    service.open()
    app: ASGIApp = build(service, access)
    tls: dict[str, Any] = {}
    if config.tls_cert is not None:
        tls = {
            "ssl_certfile": str(config.tls_cert),
            "ssl_keyfile": str(config.tls_key) if config.tls_key else None,
            "ssl_ca_certs": str(config.client_ca) if config.client_ca else None,
            # People come without a certificate; who shows one is checked.
            "ssl_cert_reqs": ssl.CERT_OPTIONAL if config.client_ca else ssl.CERT_NONE,
        }
    server = _Server(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            http=_Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            limit_concurrency=_CONNECTIONS,
            h11_max_incomplete_event_size=32 << 10,
            **tls,
        )
    )
    server.stopping = service.stopping
    return server


def run(config: Config) -> bool:
    """Serve until a signal ends it; False where it could not start."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    server = server_of(config)
    server.run()
    return server.started
