"""A way to Postgres that breaks or stands still at a moment of the test's choosing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy.engine import URL, make_url

_PIECE: Final = 1 << 16
_COMMIT: Final = b"COMMIT\0"
"""A statement on the wire ends with a zero byte."""
_ALONE: Final = b"Q"
"""Begins a statement that is sent by itself, as reading ones are ended; what records sends many."""


class BrokenWire:
    """Passes on what client and server send one another, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        """url: of a database, over a socket in the file system or over TCP."""
        self._server = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.commits_to_break = 0  #: that reach the server, whose answer does not come back
        self.breaks_after = b""  #: part of a statement whose commit is one of these, too
        self.broken = 0  #: commits, by now
        self._goes_on = threading.Event()
        self._goes_on.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Of the same database, over this way."""
        port = self._listener.getsockname()[1]
        through = self._server.set(host="127.0.0.1", port=port).difference_update_query(["host"])
        return through.render_as_string(hide_password=False)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """In the block nothing comes through, and nothing breaks."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = _connected(self._server)
            breaks = threading.Event()
            for work in (self._to_server, self._to_client):
                threading.Thread(target=work, args=(client, server, breaks), daemon=True).start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, breaks: threading.Event
    ) -> None:
        wanted = False
        with _closing(client, server):
            while said := client.recv(_PIECE):
                self._goes_on.wait()
                wanted |= bool(self.breaks_after) and self.breaks_after in said
                alone = said[:1] == _ALONE and not wanted
                if _COMMIT in said and not alone and self.commits_to_break:
                    self.commits_to_break -= 1
                    breaks.set()
                server.sendall(said)

    def _to_client(
        self, client: socket.socket, server: socket.socket, breaks: threading.Event
    ) -> None:
        with _closing(client, server):
            while said := server.recv(_PIECE):
                self._goes_on.wait()
                if breaks.is_set():  # it is committed by now
                    self.broken += 1
                    return
                client.sendall(said)


def _connected(url: URL) -> socket.socket:
    folder = url.query.get("host")
    if folder is None:
        return socket.create_connection((url.host or "127.0.0.1", url.port or 5432))
    made = socket.socket(socket.AF_UNIX)
    made.connect(f"{folder}/.s.PGSQL.{url.port or 5432}")
    return made


@contextmanager
def _closing(*ends: socket.socket) -> Iterator[None]:
    """Both ends are closed behind the block, and one that is closed already ends it."""
    with suppress(OSError):
        yield
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
