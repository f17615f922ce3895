"""SQL of the user's own, on a connection where the database itself refuses to write."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from policy.store.connection import Database
from policy.store.errors import StoreError, first_line, translated

_QUOTED: Final = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
_TOKEN: Final = re.compile(rf"({_QUOTED})|(?<![:\w\\]):([A-Za-z_]\w*)(?!:)", re.DOTALL)
_NO_CURSOR: Final = re.compile(r"\s*(?:explain|show)\b", re.IGNORECASE)
_BEGINS: Final = "a query begins with SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW"
_BATCH: Final = 1000
_CHANGES: Final = (
    "not authorized",
    "readonly",
    "read-only",
    "data-modifying",
    "vacuum",
    "permission denied",
)
_READING_PRAGMAS: Final = frozenset(
    {"foreign_key_list", "index_info", "index_list", "table_info", "table_list", "table_xinfo"}
)


class SqlResult:
    """Columns and rows of a query; iterate once, then `close` (or use as a context manager)."""

    def __init__(
        self, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]], stack: ExitStack
    ) -> None:
        self.columns = columns
        self._rows = rows
        self._stack = stack

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """Release the connection."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
        raise StoreError(f"the query has no value for {names}", help="give each parameter a value")
    return escaped


def _only_reading(connection: Connection) -> None:
    """Have SQLite refuse what `mode=ro` and `query_only` allow: other files, other settings."""
    raw: Any = connection.connection.dbapi_connection

    def authorize(action: int, name: str | None, *_: object) -> int:
        refused = action in {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH} or (
            action == sqlite3.SQLITE_PRAGMA and name not in _READING_PRAGMAS
        )
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    raw.set_authorizer(authorize)


def _only_reading_on_a_server(connection: Connection) -> None:
    """Have Postgres refuse what a read-only transaction allows."""
    # Every statement is prepared, and only one at a time can be: never `COMMIT; DELETE`.
    raw: Any = connection.connection.dbapi_connection
    raw.prepare_threshold = 0
    # With this the first snapshot is taken, after which no transaction can be made to write.
    superuser = connection.execute(text("SELECT current_setting('is_superuser')")).scalar_one()
    version = connection.dialect.server_version_info or (0,)
    if superuser == "on" and version >= (14,):
        # A superuser's COPY writes files on the server.
        connection.execute(text("SET LOCAL ROLE pg_read_all_data"))


def run(url: URL, query: str, parameters: Mapping[str, Any]) -> SqlResult:
    """Run one statement that reads. Raises StoreError for any other, and for a wrong one."""
    if not query.strip().rstrip(";").strip():
        raise StoreError("the query is empty", help='for example "SELECT * FROM v_preemptions"')
    stack = ExitStack()
    try:
        database = Database(url, read_only=True, create=False)
        stack.callback(database.close)
        connection = stack.enter_context(database.reading())
        if database.is_sqlite:
            _only_reading(connection)
        else:
            _only_reading_on_a_server(connection)
        try:
            found = _execute(connection, query, parameters)
        except SQLAlchemyError as exc:
            raise _refused(exc, url) from exc
        columns = tuple(found.keys()) if found.returns_rows else ()
        return SqlResult(columns, _rows(found, url), stack)
    except BaseException:
        stack.close()
        raise


def _execute(
    connection: Connection, query: str, parameters: Mapping[str, Any]
) -> CursorResult[Any]:
    # On a server the query becomes that of a cursor, which Postgres takes for nothing but SELECT,
    # WITH, VALUES and TABLE: no DO block that gives a superuser his rights back and runs a program.
    statement = text(_escaped(query, parameters)).execution_options(
        stream_results=not _NO_CURSOR.match(query), max_row_buffer=_BATCH
    )
    given = {name: value for name, value in parameters.items() if name in statement._bindparams}
    return connection.execute(statement, given)


def _refused(exc: SQLAlchemyError, url: URL) -> StoreError:
    line = first_line(exc, url)
    if any(word in line.lower() for word in _CHANGES):
        return StoreError("the query would change something: only reading is allowed here")
    if line.startswith("syntax error"):
        return StoreError(f"the query is not valid: {line}", help=_BEGINS)
    return StoreError(f"the query is not valid: {line}")


def _rows(found: CursorResult[Any], url: URL) -> Iterator[tuple[Any, ...]]:
    if not found.returns_rows:
        return
    with translated(url):
        for row in found:
            yield tuple(row)
