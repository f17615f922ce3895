"""The store as the rest of the product sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from policy.store import announcing, migrate
from policy.store.connection import Database, parse_url
from policy.store.faces import OneView, Transactions
from policy.store.read import sql
from policy.store.read.sql import SqlResult
from policy.store.sqlite_file import FileIdentity

# A room is loaded when it is entered: who reads a list does not load what verifies or writes.
if TYPE_CHECKING:
    from policy.store.ledger.face import LedgerFace
    from policy.store.read.face import ReadFace
    from policy.store.read.stoppable import Stoppable
    from policy.store.record.face import RecordFace
    from policy.store.state.face import StateFace


class Rooms:
    """What can be done with a database, by topic."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @cached_property
    def state(self) -> StateFace:
        from policy.store.state.face import StateFace

        return StateFace(self._transactions)

    @cached_property
    def ledger(self) -> LedgerFace:
        from policy.store.ledger.face import LedgerFace

        return LedgerFace(self._transactions)

    @cached_property
    def record(self) -> RecordFace:
        from policy.store.record.face import RecordFace

        return RecordFace(self._transactions)

    @cached_property
    def read(self) -> ReadFace:
        from policy.store.read.face import ReadFace

        return ReadFace(self._transactions)


class Store(Rooms):
    """One database: cluster states, decisions, ledger. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, create: bool = True) -> Self:
        """Open a database by path or URL; a new file or empty schema is filled on first use.

        create: False to insist on an existing database. Raises StoreError for a database that
        is unreachable, of another kind, or has another schema than this version works with.
        """
        parsed = parse_url(url)
        database = Database(parsed, read_only=read_only, create=create)
        try:
            with database.reading() as connection:
                schema = migrate.schema_of(connection, parsed)
            if schema.revision is None and create and not read_only:
                migrate.upgrade(url)
            else:
                migrate.require_newest(schema, parsed)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @classmethod
    def opened_elsewhere(
        cls, url: str, *, identity: FileIdentity | None = None, planned_once: bool = False
    ) -> Self:
        """A database that another process has opened, and with it checked: not connected yet.

        The same statements come again and again. identity: that of the other process, so that both
        have the same file. planned_once: with few values each, for which one plan is as good as
        another. Raises StoreError for a name that is none.
        """
        return cls(
            Database(
                parse_url(url),
                create=False,
                checked=True,
                repeating=True,
                planned_once=planned_once,
                identity=identity,
            )
        )

    @property
    def identity(self) -> FileIdentity | None:
        """Tells the file that is open from others in its place; None for a server."""
        return self._database.identity

    def connect(self) -> None:
        """Have a connection ready, for which what comes first would wait. Raises StoreError."""
        with self._database.reading():
            pass

    def close(self) -> None:
        """Release every connection and file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Rooms]:
        """The rooms as they are at one instant, for several reads that must agree."""
        with self._database.reading() as connection:
            yield Rooms(OneView(connection))

    def news(self, stop: threading.Event, *, every: float) -> Iterator[None]:
        """One item whenever something may have been written, at least every so many seconds."""
        return announcing.news(self._database.url, stop, every=every)

    def checkpoint(self) -> int | None:
        """Have SQLite's log copied into its file now, so that hardly any commit has to.

        The bytes of it that cannot be copied yet, because somebody has been reading since before
        they were written; None where another process is copying it, and on Postgres, which has
        processes of its own for that. Raises StoreError.
        """
        return self._database.checkpoint() if self._database.is_sqlite else None

    def sql(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: int | None = sql.TIMEOUT_SECONDS,
        trust_connection: bool = False,
        views_only: bool = False,
        most_mib: int | None = None,
        left: list[Stoppable] | None = None,
    ) -> SqlResult:
        """Run one statement that reads; `:name` stands for a parameter.

        The database refuses everything else. On Postgres the connection's role must be one that
        can do nothing else, unless `trust_connection` says that whoever wrote the query may do
        all that the role may do. timeout: seconds that the database may take, None for no limit.
        views_only: on SQLite nothing is read but our views; on Postgres the role says what is.
        most_mib: how large all rows together may be, None for no limit.
        left: takes up what had to be given up and still runs.
        Close the result. Raises StoreError.
        """
        return sql.run(
            self._database.url,
            query,
            parameters or {},
            timeout=timeout,
            trusted=trust_connection,
            views_only=views_only,
            most_mib=most_mib,
            left=left,
        )
