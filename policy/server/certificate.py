"""The certificate of the service, and the authority of its callers, as the files have them now."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from policy.server import startup
from policy.server.config import Config
from policy.server.startup import StartError

log = logging.getLogger("policy.server")

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

    def renew(self, *, anew: bool = False) -> None:
        """Take the files over where they have changed. anew: also where they seem not to have."""
        stamp = self._stamped()
        if stamp == self._stamp and not self._problem and not anew:
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
