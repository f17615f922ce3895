"""The file of a SQLite database: the one that was opened, as long as it is in its place.

SQLite goes on in a file that was moved or removed, and makes a new, empty one for the next
connection. Its log and its shared memory are found by name, so connections to two files that
follow one another in a place would share them and damage both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from policy.store.errors import Unavailable
from policy.text.system import explained

FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode: another file in the same place has others."""


class SqliteFile:
    """What the connections of one engine have open; used from any thread."""

    def __init__(self, named: str, *, create: bool, identity: FileIdentity | None = None) -> None:
        """named: as the user named it. create: make a new one where there is none yet.

        identity: of the file that it has to be; None for the one that is opened first.
        """
        self._named = named
        self._path = Path(named).absolute()
        self._create = create
        self._opened = identity

    @property
    def identity(self) -> FileIdentity | None:
        """Of the one that was opened; None before."""
        return self._opened

    def mode(self) -> str:
        """How a connection that may write opens it: a new one is made once, never in its place."""
        return "rwc" if self._create and self._opened is None else "rw"

    def opened(self) -> None:
        """A connection has opened it. Raises Unavailable where that is another file."""
        if self._opened is None:
            self._opened = self._found()
        self.check()

    def check(self) -> None:
        """Raises Unavailable where it is not in its place any more; one call of the system."""
        if self._opened not in (None, self._found()):
            raise Unavailable(
                f"another file is in the place of `{self._named}`",
                help="end every process that uses the database, and move"
                f" `{self._named}-wal` and `{self._named}-shm` away before one opens the new file:"
                " they belong to the old one",
            )

    def _found(self) -> FileIdentity:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            raise Unavailable(
                f"the file `{self._named}` is gone",
                help="put it back, and the work goes on; to put another one there, end every"
                " process that uses the database first",
            ) from None
        except OSError as exc:
            said = explained(exc)
            raise Unavailable(f"{self._named}: {said.message}", help=said.help) from exc
        return status.st_dev, status.st_ino
