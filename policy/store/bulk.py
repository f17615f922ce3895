"""Many rows into one table, past SQLAlchemy's work on every single one.

SQLite's driver takes tuples as they are. Postgres is given columns: one statement inserts all rows
of a table, and several tables are written without waiting for each answer; a great many rows go in
by COPY, which has to be waited for. What a row may hold is what the columns' types let through
unchanged: text, integers, booleans, None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Column, Connection, Dialect, Table
from sqlalchemy.exc import DBAPIError

from policy.cluster import canonical
from policy.store.arrays import ARRAYS, Array
from policy.store.tables import METADATA
from policy.store.tables.base import column_names

Row = tuple[Any, ...]
Values = Sequence[Any]
"""Those of one row, as drivers take them."""

_ROWS_PER_STATEMENT: Final = 5000
_ROWS_PER_FETCH: Final = 1000
_NUMBERS: Final = count(1)
"""Of what Postgres streams: several answers may be under way on one connection."""
_WORTH_A_COPY: Final = 500
"""Rows below which a COPY costs more than it saves."""
_WORTH_A_LOOK: Final = 1000
"""Rows below which statistics are left to Postgres itself."""
_WORTH_SORTING: Final = 10_000
"""Rows below which an index takes one after the other."""


class PendingRows:
    """Rows that a transaction has made, written together: table by table, as foreign keys demand.

    Several decisions of one transaction share one statement per table; on Postgres, where each
    costs the driver and the server as much as some rows, all tables share one.
    """

    def __init__(self) -> None:
        self._rows: dict[Table, list[Row]] = {}
        self._changes: list[tuple[_Change, Sequence[Values]]] = []
        self._last: list[tuple[str, Sequence[Values]]] = []

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        """Rows of all columns of the table, in its order."""
        self._rows.setdefault(table, []).extend(rows)

    def add_to_rows(
        self,
        table: Table,
        keys: tuple[str, ...],
        sums: tuple[str, ...],
        rows: Sequence[Values],
        *,
        numbered: Numbered | None = None,
    ) -> None:
        """Add to the sums of rows with these keys, none of which comes twice; insert what is new.

        numbered: one of the keys, in place of which rows have names.
        """
        added = tuple(f"{name} = {table.name}.{name} + excluded.{name}" for name in sums)
        self._changes.append((_Change(table, keys, sums, added, numbered), rows))

    def widen_rows(
        self, table: Table, keys: tuple[str, ...], ends: tuple[str, str], rows: Sequence[Values]
    ) -> None:
        """Have rows with these keys, none of which comes twice, begin no later and end no earlier.

        What is new is inserted. ends: columns of the beginning and the end.
        """
        further = tuple(
            f"{name} = CASE WHEN excluded.{name} {sign} {table.name}.{name}"
            f" THEN excluded.{name} ELSE {table.name}.{name} END"
            for name, sign in zip(ends, "<>", strict=True)
        )
        self._changes.append((_Change(table, keys, ends, further, None), rows))

    def execute_last(self, statement: str, rows: Sequence[Values]) -> None:
        """One statement with each of the rows, whose values stand for `?`, when all is written."""
        self._last.append((statement, rows))

    def write(self, connection: Connection) -> None:
        """Raises SQLAlchemy's errors, like a statement."""
        tables = sorted(
            (table for table in self._rows if self._rows[table]), key=_order().__getitem__
        )
        inserted = {table: self._rows[table] for table in tables}
        changes, last = self._changes, self._last
        self._rows, self._changes, self._last = {}, [], []
        _number(connection, changes)
        every = [*inserted.values(), *(rows for _, rows in changes)]
        if connection.dialect.name == "postgresql" and sum(map(len, every)) < _WORTH_A_COPY:
            _write_at_once(connection, tuple(inserted), tuple(one for one, _ in changes), every)
        else:
            for table, made in inserted.items():
                insert_rows(connection, table, column_names(table), made, count=len(made))
            for change, rows in changes:
                _insert_or_set(connection, change, rows)
        for statement, rows in last:
            execute_many(connection, statement, rows)


@dataclass(frozen=True, slots=True)
class _Change:
    """An insert of rows that changes those that are there."""

    table: Table
    keys: tuple[str, ...]
    others: tuple[str, ...]
    changes: tuple[str, ...]
    numbered: Numbered | None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are written."""
        return (*self.keys, *self.others)


@cache
def _order() -> dict[Table, int]:
    return {table: place for place, table in enumerate(METADATA.sorted_tables)}


def insert_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Iterable[Values],
    *,
    count: int,
) -> None:
    """Insert `count` rows, made one by one while they are written.

    names: columns in the order of the rows' values. Raises SQLAlchemy's errors, like a statement.
    """
    if connection.dialect.name != "postgresql":
        execute_many(connection, _inserting(table, names), rows)
    elif count >= _WORTH_A_COPY and not _in_pipeline(connection):
        _copy(connection, _copying(table, names), rows)
    else:
        statement = _unnesting(table, names, connection.dialect)
        _insert_columns(connection, statement, rows)


@contextmanager
def indexed_afterwards(connection: Connection, table: Table, *, count: int) -> Iterator[None]:
    """For a block that inserts `count` rows, the first ones of a table, have SQLite index them all.

    An index that is made over rows that are there is sorted once, in half of the time that they
    take one by one. Everything is part of the transaction: no other one sees the table without an
    index, and an error leaves all as it was. Raises SQLAlchemy's errors, also where the rows are no
    set as a unique index wants it.
    """
    found: list[Row] = []
    if connection.dialect.name != "postgresql" and count >= _WORTH_SORTING:
        found = fetch(connection, _INDEXES_OF_EMPTY.format(table=table.name), (table.name,))
    for name, _ in found:
        _run(connection, f"DROP INDEX {name}")
    yield
    for _, definition in found:
        _run(connection, definition)


_INDEXES_OF_EMPTY: Final = (
    "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM {table}) ORDER BY rowid"
)
"""Those that belong to no constraint, which cannot be dropped."""


def _run(connection: Connection, statement: str) -> None:
    with Driver(connection, statement) as cursor:
        cursor.execute(statement)


def keep_statistics(connection: Connection, table: Table, *, added: int) -> None:
    """Have Postgres look at the keys of a table to which a great many rows were added.

    It plans by what it last saw, and looks by itself only after a while: until then it would go
    through everything that is true now to find the one version of an object.
    """
    if connection.dialect.name == "postgresql" and added >= _WORTH_A_LOOK:
        keys = ("cluster_id", "key", "valid_from", "valid_to")
        _run(connection, f"ANALYZE {table.name} ({', '.join(keys)})")


def _insert_or_set(connection: Connection, change: _Change, rows: Iterable[Values]) -> None:
    statement = _inserting_or_setting(change, connection.dialect)
    if connection.dialect.name != "postgresql":
        execute_many(connection, statement, rows)
    else:
        _insert_columns(connection, statement, rows)


@cache
def _inserting_or_setting(change: _Change, dialect: Dialect) -> str:
    table, names = change.table, change.names
    if change.numbered is not None:
        inserting = _inserting_numbered(table, names, change.numbered, dialect)
    elif dialect.name == "postgresql":
        inserting = _unnesting(table, names, dialect)
    else:
        inserting = _inserting(table, names)
    keys, changes = ", ".join(change.keys), ", ".join(change.changes)
    return f"{inserting} ON CONFLICT ({keys}) DO UPDATE SET {changes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A column that holds the number of what has names."""

    column: str
    table: Table  #: has `id`, and a number for each of the names
    names: tuple[str, ...]  #: its other columns; those that the rows' own table has not stand for
    #: the column in a row


def _number(connection: Connection, changes: Iterable[tuple[_Change, Sequence[Values]]]) -> None:
    """Give a number to what has none yet of that which rows name."""
    named: dict[Numbered, dict[Values, None]] = {}
    for change, rows in changes:
        if change.numbered is not None:
            given = _given(change.table, change.names, change.numbered)
            pick = itemgetter(*(given.index(name) for name in change.numbered.names))
            named.setdefault(change.numbered, {}).update(dict.fromkeys(map(pick, rows)))
    for numbered, found in named.items():
        statement = _numbering(numbered, connection.dialect)
        if connection.dialect.name != "postgresql":
            execute_many(connection, statement, found)
        else:
            _insert_columns(connection, statement, found)


def _given(table: Table, names: tuple[str, ...], numbered: Numbered) -> list[str]:
    """The names of what is in a row."""
    given: list[str] = []
    for name in names:
        others = (other for other in numbered.names if other not in table.c)
        given += others if name == numbered.column else (name,)
    return given


@cache
def _numbering(numbered: Numbered, dialect: Dialect) -> str:
    names = ", ".join(numbered.names)
    kinds = {name: numbered.table.c[name] for name in numbered.names}
    # Found before it is tried: a number would be used up by each attempt.
    return (
        f"INSERT INTO {numbered.table.name} ({names}) SELECT {names} FROM {_rows(kinds, dialect)}"
        f" WHERE NOT EXISTS (SELECT 1 FROM {numbered.table.name} n WHERE {_same(numbered)})"
        " ON CONFLICT DO NOTHING"
    )


def _inserting_numbered(
    table: Table, names: tuple[str, ...], numbered: Numbered, dialect: Dialect
) -> str:
    kinds = {
        name: (table if name in table.c else numbered.table).c[name]
        for name in _given(table, names, numbered)
    }
    number = f"(SELECT n.id FROM {numbered.table.name} n WHERE {_same(numbered)})"
    values = ", ".join(number if name == numbered.column else name for name in names)
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {values}"
        f" FROM {_rows(kinds, dialect)} WHERE TRUE"  # else SQLite takes ON CONFLICT for a join's
    )


def _same(numbered: Numbered) -> str:
    return " AND ".join(f"n.{name} = given.{name}" for name in numbered.names)


def _rows(kinds: Mapping[str, Column[Any]], dialect: Dialect) -> str:
    """What rows have, as a table `given`."""
    if dialect.name != "postgresql":
        return f"(SELECT {', '.join(f'? AS {name}' for name in kinds)}) AS given"
    return f"{_unnested(kinds.values(), dialect)} AS given ({', '.join(kinds)})"


def execute_many(connection: Connection, statement: str, rows: Iterable[Values]) -> None:
    """One statement with each of the rows, whose values stand for `?`.

    Raises SQLAlchemy's errors.
    """
    marked = _marked(statement, connection.dialect.name)
    with Driver(connection, marked) as cursor:
        cursor.executemany(marked, rows)  # one by one: they are still in a processor's caches


class Asked:
    """A query that is under way; in a block of `together` its answer is not waited for before
    `rows`, so that queries put one after the other cost Postgres one round trip."""

    __slots__ = ("_cursor", "_driver")

    def __init__(self, connection: Connection, statement: str, values: Row = ()) -> None:
        """values: they stand for `?`. Raises SQLAlchemy's errors."""
        marked = _marked(statement, connection.dialect.name)
        self._driver = Driver(connection, marked)
        self._cursor = self._driver.__enter__()
        try:
            self._cursor.execute(marked, values)
        except BaseException as exc:
            self._driver.__exit__(type(exc), exc, None)
            raise

    def rows(self) -> list[Row]:
        """All of them, once. Raises SQLAlchemy's errors."""
        try:
            found: list[Row] = self._cursor.fetchall()
        except BaseException as exc:
            self._driver.__exit__(type(exc), exc, None)
            raise
        self._cursor.close()
        return found


def execute(connection: Connection, statement: str, values: Values = ()) -> None:
    """One statement, whose values stand for `?` and whose answer says nothing.

    Raises SQLAlchemy's errors; in a block of `together`, whatever is read next, or its end, does.
    """
    marked = _marked(statement, connection.dialect.name)
    with Driver(connection, marked) as cursor:
        cursor.execute(marked, values)


def fetch(connection: Connection, statement: str, values: Row = ()) -> list[Row]:
    """All rows of one query, whose values stand for `?`. Raises SQLAlchemy's errors."""
    return Asked(connection, statement, values).rows()


def stream(connection: Connection, statement: str, values: Row = ()) -> Generator[Row, None, None]:
    """All rows of one query, one after the other: neither side holds many. values stand for `?`.

    Raises SQLAlchemy's errors.
    """
    marked = _marked(statement, connection.dialect.name)
    with Driver(connection, marked, streams=True) as cursor:
        cursor.execute(marked, values)
        yield from cursor


def among(connection: Connection, texts: Iterable[str]) -> tuple[str, Any]:
    """The condition for being one of the texts, and the value that stands for its `?`."""
    if connection.dialect.name == "postgresql":
        return "= ANY(?::VARCHAR[])", ARRAYS["VARCHAR"](list(texts))
    return "IN (SELECT value FROM json_each(?))", canonical.text(list(texts))


@cache
def _marked(statement: str, dialect: str) -> str:
    if dialect != "postgresql":
        return statement
    numbers = count(1)
    return _MARK.sub(lambda _: f"${next(numbers)}", statement)


_MARK: Final = re.compile(r"\?")


class Driver:
    """A cursor of the driver itself, whose errors become SQLAlchemy's.

    On Postgres it takes statements as the server does, with values for `$1` and so on: otherwise
    the driver takes long ones apart each time. A class: a decision goes through two dozen of them,
    and a generator takes twice as long.
    """

    __slots__ = ("_connection", "_cursor", "_statement", "_streams")

    def __init__(self, connection: Connection, statement: str, *, streams: bool = False) -> None:
        """streams: Postgres keeps what was not read yet of the answer."""
        self._connection = connection
        self._statement = statement
        self._streams = streams

    def __enter__(self) -> Any:
        raw: Any = self._connection.connection.dbapi_connection
        if self._connection.dialect.name != "postgresql":
            self._cursor = raw.cursor()
        else:
            self._cursor = _postgres_cursor(raw, streams=self._streams)
        return self._cursor

    def __exit__(self, kind: type | None, exc: BaseException | None, _: object) -> None:
        try:
            if exc is not None:
                self._translate(exc)
        finally:
            self._cursor.close()

    def _translate(self, exc: BaseException) -> None:
        dialect = self._connection.dialect
        error: Any = dialect.loaded_dbapi.Error
        if isinstance(exc, error):
            raw: Any = self._connection.connection.dbapi_connection
            lost = dialect.is_disconnect(exc, raw, self._cursor)
            raise DBAPIError.instance(
                self._statement, None, exc, error, connection_invalidated=lost
            ) from exc


def _postgres_cursor(raw: Any, *, streams: bool) -> Any:
    from psycopg import RawCursor, RawServerCursor

    if not streams:
        return RawCursor(raw)
    cursor = RawServerCursor(raw, f"stream_{next(_NUMBERS)}")
    cursor.itersize = _ROWS_PER_FETCH
    return cursor


def within(connection: Connection, seconds: float) -> None:
    """On Postgres, let each statement that follows in the transaction take no longer.

    That includes what it waits for, such as locks of others, and not the commit.
    """
    if connection.dialect.name == "postgresql":
        milliseconds = max(1, int(seconds * 1000))  # 0 would be no limit
        execute(connection, _LIMIT, (str(milliseconds),))


_LIMIT: Final = "SELECT set_config('statement_timeout', ?, true)"


@contextmanager
def together(connection: Connection) -> Iterator[None]:
    """On Postgres, statements of the block are sent without waiting for the answers to others.

    A block within another is part of it: the end of each would be waited for.
    """
    if connection.dialect.name != "postgresql" or _in_pipeline(connection):
        yield
        return
    raw: Any = connection.connection.dbapi_connection
    with Driver(connection, "pipeline"):
        pipeline = raw.pipeline()
        pipeline.__enter__()
        try:
            yield
        except BaseException:
            # What was sent behind a statement that failed fails as well, of which the driver would
            # print a line of its own if it were handed the error.
            with suppress(connection.dialect.loaded_dbapi.Error):
                pipeline.__exit__(None, None, None)
            raise
        pipeline.__exit__(None, None, None)


@cache
def _inserting(table: Table, names: tuple[str, ...]) -> str:
    marks = ", ".join("?" * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"


@cache
def _unnesting(table: Table, names: tuple[str, ...], dialect: Dialect) -> str:
    rows = _unnested([table.c[name] for name in names], dialect)
    return f"INSERT INTO {table.name} ({', '.join(names)}) SELECT * FROM {rows}"


def _write_at_once(
    connection: Connection,
    tables: tuple[Table, ...],
    changes: tuple[_Change, ...],
    every: Sequence[Sequence[Values]],
) -> None:
    """Insert a few rows into some tables and change a few of others, by one statement.

    every: the rows of each of them. Foreign keys are checked when all rows are there.

    Source: PostgreSQL documentation, "WITH Queries", "Data-Modifying Statements in WITH".
    """
    if every:
        statement = _writing_at_once(tables, changes, connection.dialect)
        execute(connection, statement, arrays_for(statement, *every))


@cache
def _writing_at_once(
    tables: tuple[Table, ...], changes: tuple[_Change, ...], dialect: Dialect
) -> str:
    *others, last = (
        *(_unnesting(table, column_names(table), dialect) for table in tables),
        *(_inserting_or_setting(change, dialect) for change in changes),
    )
    named = ", ".join(f"w{number} AS ({write})" for number, write in enumerate(others))
    return f"WITH {named} {last}" if named else last


def _unnested(columns: Iterable[Column[Any]], dialect: Dialect) -> str:
    # Without the collation, which an array does not have.
    kinds = (column.type.compile(dialect).partition(" ")[0] for column in columns)
    return f"unnest({', '.join(f'?::{kind}[]' for kind in kinds)})"


def _insert_columns(connection: Connection, statement: str, rows: Iterable[Values]) -> None:
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_PER_STATEMENT)):
        execute(connection, statement, arrays_for(statement, part))


def arrays_for(statement: str, *every: Sequence[Values]) -> list[Array]:
    """What stands for the marks of a statement that stand for arrays: the columns of some rows.

    every: rows, one at least, of one table after the other.
    """
    columns = (column for rows in every for column in zip(*rows, strict=True))
    return [array_of(column) for array_of, column in zip(_taken(statement), columns, strict=True)]


@cache
def _taken(statement: str) -> list[Callable[[Row], Array]]:
    """What makes each of the arrays, which the statement names by the types of their elements."""
    return [ARRAYS[kind] for kind in _ARRAY_MARK.findall(statement)]


_ARRAY_MARK: Final = re.compile(r"\?::(\w+)\[\]")


def _in_pipeline(connection: Connection) -> bool:
    """Is it in a block of `together`, on Postgres?"""
    from psycopg.pq import PipelineStatus

    raw: Any = connection.connection.dbapi_connection
    return bool(raw.pgconn.pipeline_status != PipelineStatus.OFF)


@cache
def _copying(table: Table, names: tuple[str, ...]) -> str:
    return f"COPY {table.name} ({', '.join(names)}) FROM STDIN"


def _copy(connection: Connection, statement: str, rows: Iterable[Values]) -> None:
    with Driver(connection, statement) as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
