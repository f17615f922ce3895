"""The certificate of the service, and the authority of its callers, as the files have them now."""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path
from typing import Final

from policy.server import startup
from policy.server.config import Config
from policy.server.startup import StartError

log = logging.getLogger("policy.server")

_CHECK_SECONDS: Final = 3600.0
"""How often it is looked whether the certificate has expired."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificate:
    """What new connections are begun with. Renewed files are taken over together, or not at all."""

    def __init__(self, config: Config, cert: Path) -> None:
        """cert: that of `config`. Raises StartError."""
        self._config = config
        self._cert = cert
        self._files = [path for path in (cert, config.tls_key, config.client_ca) if path]
        self._stamp = self._stamped()
        self._problem = ""  #: why the files are not taken over, as the log has it
        self.context = _Context(ssl.PROTOCOL_TLS_SERVER)
        self.context.newest = startup.tls_context(config, cert)
        self._check_time()

    def renew(self, *, anew: bool = False) -> None:
        """Take the files over where they have changed. anew: also where they seem not to have."""
        stamp = self._stamped()
        if stamp == self._stamp and not self._problem and not anew:
            if time.monotonic() - self._checked >= _CHECK_SECONDS:
                self._check_time()
            return
        self._stamp = stamp
        try:
            self.context.newest = startup.tls_context(self._config, self._cert)
        except (StartError, OSError) as exc:  # a file may go while it is read
            problem = str(exc)
            if problem != self._problem:
                log.error("the certificate is not renewed, the old one stays: %s", problem)
            self._problem = problem
        else:
            self._problem = ""
            log.info("the certificate in `%s` is that of new connections", self._cert)
            self._check_time()

    def _check_time(self) -> None:
        """A scheduler that may ignore its extender goes on without a word where it has expired."""
        self._checked = time.monotonic()
        found = startup.out_of_date(self.context.newest, self._cert)
        if found:
            log.warning("the certificate in `%s` %s: callers refuse it", self._cert, found)

    def _stamped(self) -> _Stamp:
        """What is another one when a file changes, or a link on the way to it."""
        return tuple(_stamp(path) for path in self._files)


class _Context(ssl.SSLContext):
    """Begins each connection with the newest context: a listener keeps the one that it was given.

    What is loaded into a context twice is added to it: an authority would never be withdrawn.
    """

    newest: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
