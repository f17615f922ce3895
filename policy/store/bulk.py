"""Many rows into one table, past SQLAlchemy's work on every single one.

SQLite's driver takes tuples as they are; Postgres is fed by COPY. What a row may hold is what the
columns' types let through unchanged: text, integers, booleans, None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

Row = tuple[Any, ...]

_ROWS_PER_STATEMENT: Final = 5000
_WORTH_A_COPY: Final = 500
"""Rows below which a COPY costs more round trips than it saves."""


def insert_rows(
    connection: Connection, table: Table, names: Sequence[str], rows: Iterable[Row], *, count: int
) -> None:
    """Insert `count` rows, made one by one while they are written.

    names: columns in the order of the rows' values. Raises SQLAlchemy's errors, like a statement.
    """
    postgres = connection.dialect.name == "postgresql"
    if postgres and count >= _WORTH_A_COPY:
        _copy(connection, _copying(table, tuple(names)), rows)
        return
    statement = _inserting(table, tuple(names), "%s" if postgres else "?")
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_PER_STATEMENT)):
        connection.exec_driver_sql(statement, part)


@cache
def _inserting(table: Table, names: tuple[str, ...], mark: str) -> str:
    marks = ", ".join([mark] * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"


@cache
def _copying(table: Table, names: tuple[str, ...]) -> str:
    return f"COPY {table.name} ({', '.join(names)}) FROM STDIN"


def _copy(connection: Connection, statement: str, rows: Iterable[Row]) -> None:
    from psycopg import Error

    raw: Any = connection.connection.dbapi_connection
    with raw.cursor() as cursor:
        try:
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except Error as exc:
            raise DBAPIError.instance(
                statement, None, exc, Error, connection_invalidated=raw.closed
            ) from exc
