"""One process of the service: sockets, TLS, time limits, and a graceful end."""

from __future__ import annotations

import logging
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from policy.server.app import build
from policy.server.config import Config
from policy.server.protocol import Protocol
from policy.server.security.access import Access
from policy.server.service import PolicyService

_CONNECTIONS: Final = 500
_GRACE_SECONDS: Final = 9
_GIVE_WAY_SECONDS: Final = 0.001
"""A call of 150 kB is some ten steps of the event loop: Python's 5 ms for each would be 50 ms."""


class _Server(uvicorn.Server):
    """Ends by a signal as something that was wanted: with status 0; streams end at once."""

    service: PolicyService

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        # Not before: the threads that load the state would take turns with what starts to listen.
        if self.started:
            self.service.begin()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.stopping.set()
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
            http=Protocol,
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
            **tls,
        )
    )
    server.service = service
    return server


def run(config: Config) -> bool:
    """Serve until a signal ends it; False where it could not start."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    # What the follower fetches is in its own figures; a line for each request says nothing more.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    # A thread that decides gives way only so often, and each step of the event loop waits for that.
    sys.setswitchinterval(_GIVE_WAY_SECONDS)
    server = server_of(config)
    server.run()
    return server.started
