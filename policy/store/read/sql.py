"""SQL of the user's own: it reads, within a time, and on a connection that can do nothing else.

SQLite refuses all but reading by itself. On Postgres a transaction that only reads and a cursor
keep most away, but not what the connection's role may do beside (a role that is set inside a
session can be set back inside one SELECT); so whoever may do more than read gets no SQL of the
user's, and neither does a function that has effects. The transaction is always rolled back.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Self

from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from policy.store import migrate
from policy.store.connection import Database
from policy.store.errors import (
    InvalidValue,
    NoReader,
    StoreError,
    Unavailable,
    connection_lost,
    first_line,
    sqlstate,
)
from policy.store.read.bounds import require_little_temporary, within
from policy.store.read.privileges import functions_with_effects, powers
from policy.store.read.sqlite_reading import columns_of, only_reading, require_views
from policy.store.read.stoppable import OutOfTime, Stoppable

TIMEOUT_SECONDS: Final = 60
"""How long a query may take where nothing else is said."""

_QUOTED: Final = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
_TOKEN: Final = re.compile(rf"({_QUOTED})|(?<![:\w\\]):([A-Za-z_]\w*)(?!:)", re.DOTALL)
_NO_CURSOR: Final = re.compile(r"\s*(?:explain|show)\b", re.IGNORECASE)
_BEGINS: Final = "a query begins with SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW"
_BATCH: Final = 1000
_BATCH_SECONDS: Final = 0.2
"""Rows are handed on after this long, also where they are fewer than a batch."""
_CHANGES: Final = ("not authorized", "readonly", "read-only", "data-modifying", "vacuum")


class QueryTooLong(InvalidValue):
    """A query took longer than it may."""


class NotTrusted(InvalidValue):
    """A function that the query calls may do more than read."""


class SqlResult:
    """Columns and rows of a query; iterate once, then `close` (or use as a context manager)."""

    def __init__(self, reader: _Reader, found: CursorResult[Any]) -> None:
        self.columns: tuple[str, ...] = tuple(found.keys()) if found.returns_rows else ()
        self._reader = reader
        self._rows = reader.rows(found) if found.returns_rows else iter(())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """Release the connection."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    url: URL,
    query: str,
    parameters: Mapping[str, Any],
    *,
    timeout: int | None = TIMEOUT_SECONDS,
    trusted: bool = False,
    views_only: bool = False,
    most_mib: int | None = None,
    left: list[Stoppable] | None = None,
) -> SqlResult:
    """Run one statement that reads. Raises StoreError for any other, and for a wrong one.

    timeout: seconds that the database may take for all rows together; None for no limit.
    trusted: whoever wrote the query may do what the connection may do.
    views_only: no table is read but by way of our views. On SQLite; on Postgres it is for the
    connection's role to say what may be read. most_mib: how large all rows together may be, for
    those who ask a service; SQLite's temporary files are limited then, too. left: as of Stoppable.
    """
    _close_ended()
    if not query.strip().rstrip(";").strip():
        raise InvalidValue("the query is empty", help='for example "SELECT * FROM v_preemptions"')
    reader = _Reader(url, timeout=timeout, most_mib=most_mib, left=left)
    try:
        found = reader.execute(query, parameters, trusted=trusted, views_only=views_only)
        return SqlResult(reader, found)
    except BaseException:
        reader.close()
        raise


class _Reader:
    """A connection that reads, and the one query that runs on it."""

    def __init__(
        self,
        url: URL,
        *,
        timeout: int | None,
        most_mib: int | None,
        left: list[Stoppable] | None,
    ) -> None:
        self._url = url
        self._most_mib = most_mib
        self._timeout = timeout
        self._database = Database(url, read_only=True, create=False)
        try:
            self._connection = self._database.connect()
        except BaseException:
            self._database.close()
            raise
        self._raw: Any = self._connection.connection.dbapi_connection
        bounded = most_mib is not None and self._database.is_sqlite
        self._calls = Stoppable(
            seconds=timeout,
            cancel=self._cancel,
            require=require_little_temporary if bounded else None,
            left=left,
        )
        self._found: CursorResult[Any] | None = None

    def execute(
        self, query: str, parameters: Mapping[str, Any], *, trusted: bool, views_only: bool
    ) -> CursorResult[Any]:
        """Raises StoreError for what must not run, is wrong, or takes too long."""
        statement = _escaped(query, parameters)
        try:
            if self._database.is_sqlite:
                if views_only:
                    self._require_views(statement)
                only_reading(self._raw)
            else:
                if not trusted:
                    self._require_no_powers()
                    _require_no_effects(self._connection, query)
                self._limit_on_server()
            self._found = self._calls.call(
                lambda: _execute(self._connection, statement, parameters)
            )
            return self._found
        except SQLAlchemyError as exc:
            raise self._refused(exc) from exc
        except OutOfTime:
            raise self._too_long() from None

    def rows(self, found: CursorResult[Any]) -> Iterator[tuple[Any, ...]]:
        """All rows, fetched in pieces as they are asked for."""

        source = within(iter(found.fetchone, None), self._most_mib)

        def piece() -> list[tuple[Any, ...]]:
            until = time.monotonic() + _BATCH_SECONDS
            rows: list[tuple[Any, ...]] = []
            for row in islice(source, _BATCH):
                rows.append(tuple(row))
                if time.monotonic() > until:
                    break
            return rows

        try:
            while rows := self._calls.call(piece):
                yield from rows
        except SQLAlchemyError as exc:
            raise self._refused(exc) from exc
        except OutOfTime:
            raise self._too_long() from None

    def close(self) -> None:
        """Release the connection, unless a call that could not be cancelled still uses it."""
        self._calls.close()
        if self._calls.running:
            # Closing would wait for that call.
            _ABANDONED.append(self)
            return
        self._release()

    @property
    def is_running(self) -> bool:
        """Does a call still run that was given up?"""
        return self._calls.running

    def close_late(self) -> None:
        """Release the connection after the end of a call that was given up."""
        late = self._calls.late()
        if isinstance(late, CursorResult):
            late.close()
        self._release()

    def _release(self) -> None:
        if self._found is not None:
            # A cancelled query that is still open would have SQLite refuse the rollback, too.
            self._found.close()
        if self._database.is_sqlite:
            self._raw.set_authorizer(None)  # it would refuse the end of the transaction, too
        self._connection.close()
        self._database.close()

    def _cancel(self) -> None:
        if self._database.is_sqlite:
            self._raw.interrupt()
        else:
            self._raw.cancel_safe(timeout=5)

    def _require_views(self, statement: str) -> None:
        """Raises StoreError for a query that reads something else than the views."""
        compiled = text(statement).compile(dialect=self._connection.dialect)
        views = columns_of(self._raw, sorted(migrate.VIEWS))
        given = len(getattr(compiled, "positiontup", None) or ())
        require_views(str(compiled), given, views, tables=migrate.relations())

    def _require_no_powers(self) -> None:
        """Raises StoreError for a role that may do more than read."""
        # The name that was logged in with is a role to go back to, too.
        roles = [*self._connection.execute(_ROLES).one(), self._raw.info.user]
        found = powers(self._connection, list(dict.fromkeys(roles)), migrate.relations())
        if found:
            raise NoReader(
                f"this connection may do more than read: {found[0]}",
                help="`policy db reader create` makes a role that can only read; name its"
                " connection with --reader-url or POLICY_READER_DB",
            )

    def _limit_on_server(self) -> None:
        # Every statement is prepared, and only one at a time can be: never `COMMIT; DELETE`.
        self._raw.prepare_threshold = 0
        if self._timeout is not None:
            # For the server: it ends the query also where this process is no more. A query could
            # set it anew for its next rows; the time that counts is measured here.
            self._connection.execute(_STATEMENT_TIMEOUT, {"millis": self._timeout * 1000 + 1000})

    def _refused(self, exc: SQLAlchemyError) -> StoreError:
        line = first_line(exc, self._url)
        state = sqlstate(exc)
        if connection_lost(exc):
            return Unavailable(f"the query was ended by the server: {line}")
        if state == "57014":
            return InvalidValue(
                f"the query was ended by the server: {line}",
                help="the role or the server may have a `statement_timeout` of its own",
            )
        if state == "42501":
            return InvalidValue(
                f"the query is not allowed: {line}", help="`policy db reader create` makes readers"
            )
        if any(word in line.lower() for word in _CHANGES):
            return InvalidValue("the query would change something: only reading is allowed here")
        if line.startswith("syntax error"):
            return InvalidValue(f"the query is not valid: {line}", help=_BEGINS)
        return InvalidValue(f"the query is not valid: {line}")

    def _too_long(self) -> QueryTooLong:
        return QueryTooLong(
            f"the query was stopped after {self._timeout} seconds", help="ask for less"
        )


_ABANDONED: Final[list[_Reader]] = []
"""Kept until their calls end: freeing one of them would wait for it."""
_ABANDONED_LOCK: Final = threading.Lock()


def _close_ended() -> None:
    """Release the connections of calls that were given up and have ended since."""
    with _ABANDONED_LOCK:
        ended = [reader for reader in _ABANDONED if not reader.is_running]
        for reader in ended:
            _ABANDONED.remove(reader)
    for reader in ended:
        with suppress(SQLAlchemyError):  # it may be lost by now
            reader.close_late()


_ROLES: Final = text("SELECT session_user, current_user")
_STATEMENT_TIMEOUT: Final = text("""
    SELECT set_config('statement_timeout', CAST(:millis AS text), true)
    FROM pg_settings
    WHERE name = 'statement_timeout'
        AND (setting = '0' OR CAST(setting AS bigint) > CAST(:millis AS bigint))
""")


def _require_no_effects(connection: Connection, query: str) -> None:
    """Raises StoreError where a function that may have effects seems to be called.

    Every place where its name stands before a parenthesis or a comment counts, also inside a
    text: what is a text is for the server to say, and a query can make that hard to see.
    """
    if re.search(r"\bu&\s*\"", query, re.IGNORECASE):
        raise InvalidValue('names of the form `U&"..."` are not allowed in a query')
    names = "|".join(map(re.escape, functions_with_effects(connection)))
    found = re.search(rf"(?<![\w$])({names})\"?\s*(?:\(|--|/\*)", query, re.IGNORECASE)
    if found:
        raise NotTrusted(
            f"the query would call `{found[1].lower()}`, which may change something: only reading"
            " is allowed here"
        )


def parameters_in(query: str) -> tuple[str, ...]:
    """Names of the query's parameters, in the order in which it has them first."""
    named = (found[2] for found in _TOKEN.finditer(query))
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _escaped(query: str, parameters: Mapping[str, Any]) -> str:
    """The query with its parameters only: in texts, names and comments a colon is a colon."""
    lacking: list[str] = []

    def token(found: re.Match[str]) -> str:
        quoted, name = found.groups()
        if quoted is not None:
            return str(quoted).replace(":", "\\:")
        if name not in parameters:
            lacking.append(name)
        return found[0]

    escaped = _TOKEN.sub(token, query)
    if lacking:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(lacking))
        raise InvalidValue(
            f"the query has no value for {names}", help="give each parameter a value"
        )
    return escaped


def _execute(
    connection: Connection, escaped: str, parameters: Mapping[str, Any]
) -> CursorResult[Any]:
    # On a server the query becomes that of a cursor, which Postgres takes for nothing but SELECT,
    # WITH, VALUES and TABLE: no DO block, no COPY.
    statement = text(escaped).execution_options(
        stream_results=not _NO_CURSOR.match(escaped), max_row_buffer=_BATCH
    )
    given = {name: value for name, value in parameters.items() if name in statement._bindparams}
    return connection.execute(statement, given)
