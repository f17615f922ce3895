"""The process that schedulers and people reach: sockets, TLS, time limits, and a graceful end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from policy.server import interpreter, startup
from policy.server.app import build
from policy.server.certificate import Certificate
from policy.server.config import LOOPBACK, Config
from policy.server.extender.child import Child
from policy.server.protocol import Protocol, SaidSeldom
from policy.server.security.access import Access
from policy.server.service import PolicyService
from policy.server.signals import ENDING, EarlySignals

log = logging.getLogger("policy.server")

_CALLS_SECONDS: Final = 5.0
"""After which calls that are still held are answered by `--on-failure`: schedulers may wait longer
than a process is given to end, which is ten seconds."""
_GRACE_SECONDS: Final = 7
"""After which other requests are cut off."""
_THREADS_SECONDS: Final = 0.3
"""For what they did when everything else had ended."""
_HANDSHAKE_SECONDS: Final = 10
"""A client that has not made TLS with the service by then is disconnected."""
_FILES: Final = 10_000
"""Open at once, where the system allows it: connections without TLS yet are not counted with the
others, and a shell gives 1,024 for all."""
_RENEWAL_TICKS: Final = 10
"""Tenths of a second between two looks at the files of the certificate."""


class _Server(uvicorn.Server):
    """Ends by a signal as something that was wanted, with status 0; streams end at once.

    It ends, too, when the process that decides has ended, as something that was not. By SIGHUP it
    reads its files again.
    """

    service: PolicyService
    access: Access
    certificate: Certificate | None
    early: EarlySignals
    _hung_up = False  #: has SIGHUP come?

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.certificate is not None:
            self.config.ssl = self.certificate.context
            # uvicorn has no setting for it, and asyncio gives a minute.
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(
                loop.create_server, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        try:
            await super().startup(sockets=sockets)
        except SystemExit as exc:
            # uvicorn ends the process with a status of its own where it cannot listen.
            if isinstance(exc.__context__, OSError):
                raise startup.no_listener(
                    self.config.host, self.config.port, exc.__context__
                ) from exc
            raise
        if self.started:
            await self.service.begin()

    async def on_tick(self, counter: int) -> bool:
        if self.service.desks.lost:
            self.service.stop()
            self.should_exit = True
        hung_up, self._hung_up = self._hung_up, False
        if hung_up:
            log.info("SIGHUP: the files of tokens and certificate are read again")
            self.access.reread()
        if self.certificate is not None and (hung_up or counter % _RENEWAL_TICKS == 0):
            self.certificate.renew(anew=hung_up)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.desks.end_soon(seconds=_CALLS_SECONDS)
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.stop()
        super().handle_exit(sig, frame)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        self._hung_up = True  # the next tick sees it

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_hangup)
        if self.early.came is not None:
            self.handle_exit(self.early.came, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server_of(config: Config, child: Child | None, early: EarlySignals) -> _Server:
    """A server that ends by SIGTERM or SIGINT: it answers what it holds, then closes.

    child: the process of the desks, where it was started by now. early: signals that come until
    then. Raises StoreError where the database cannot be opened, TokenError for a bad file of
    tokens, StartError for other files.
    """
    certificate = Certificate(config, config.tls_cert) if config.tls_cert is not None else None
    if certificate is None and config.host not in LOOPBACK:
        log.warning(
            "without --tls-cert the service listens on `%s` in plain text: whoever is on the way"
            " reads its tokens",
            config.host,
        )
    startup.check_spool(config.spool)
    service = PolicyService(config, child=child)
    access = Access(config, clock=service.clock)
    service.open()
    app: ASGIApp = build(service, access)
    server = _Server(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            loop="asyncio",
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
        )
    )
    server.service, server.access, server.certificate = service, access, certificate
    server.early = early
    return server


def run(config: Config, child: Child | None, early: EarlySignals) -> bool:
    """Serve until a signal ends it; False where it could not start, or where others ended it.

    As of `server_of`.
    """
    interpreter.prepare()
    logging.getLogger("uvicorn.error").addFilter(SaidSeldom())
    _allow_files()
    if early.came is not None:
        if child is not None:  # which holds nothing yet
            child.process.kill()
            child.process.wait()
        return True
    server = server_of(config, child, early)
    server.run()
    wanted = server.started and not server.service.desks.lost
    if _stuck():
        log.warning(
            "what is waited for, mostly the database, stands still: the process ends all the same"
        )
        logging.shutdown()
        os._exit(not wanted)
    return wanted


def _allow_files() -> None:
    """Let the process open as many files as it may need, or as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _stuck() -> bool:
    """Does a thread wait, as for a database that stands still? Python would wait for the thread."""
    end = time.monotonic() + _THREADS_SECONDS
    waited_for = [one for one in threading.enumerate() if not one.daemon]
    waited_for.remove(threading.current_thread())
    for thread in waited_for:
        thread.join(max(0.0, end - time.monotonic()))
    return any(thread.is_alive() for thread in waited_for)
