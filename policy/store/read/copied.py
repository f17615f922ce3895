"""SQL on a copy of what somebody may see: a database in memory that holds nothing else.

Whatever the statement says, there is no other table, count, plan or time to be found out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from policy.store.errors import InvalidValue
from policy.store.read.bounds import ANSWER_MIB, require_little_temporary, within
from policy.store.read.sqlite_reading import only_reading
from policy.store.read.stoppable import OutOfTime, Stoppable

_VALUE_BYTES: Final = 1 << 20
"""Longest text of a statement. What is copied is far shorter; a function that searches one in
another, or takes characters of one from the ends of another, can be stopped only when it is done,
which takes seconds to minutes then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """Rows with the names of their columns."""

    columns: Sequence[str]
    rows: Iterable[Sequence[str | int | bool | None]]


def run(
    tables: Mapping[str, CopiedTable],
    query: str,
    parameters: Mapping[str, Any],
    *,
    limit: int,
    timeout: int,
    left: list[Stoppable] | None = None,
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and at most `limit` rows of one statement that reads.

    timeout: seconds for all of it. left: as of Stoppable. Raises InvalidValue.
    """
    if not query.strip().rstrip(";").strip():
        raise InvalidValue("the query is empty", help='for example "SELECT * FROM decisions"')
    raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def cancel() -> None:
        with suppress(sqlite3.ProgrammingError):  # it has just ended by itself
            raw.interrupt()

    calls = Stoppable(seconds=timeout, cancel=cancel, require=require_little_temporary, left=left)
    try:
        return calls.call(lambda: _run(raw, tables, query, parameters, limit=limit))
    except OutOfTime:
        raise InvalidValue(
            f"the query was stopped after {timeout} seconds", help="ask for less"
        ) from None
    finally:
        calls.close()


def _run(
    raw: sqlite3.Connection,
    tables: Mapping[str, CopiedTable],
    query: str,
    parameters: Mapping[str, Any],
    *,
    limit: int,
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The same, in a thread that may be left behind: it closes the database."""
    try:
        for name, table in tables.items():
            marks = ", ".join("?" * len(table.columns))
            raw.execute(f"CREATE TABLE {name} ({', '.join(table.columns)})")
            raw.executemany(f"INSERT INTO {name} VALUES ({marks})", table.rows)
        raw.execute("PRAGMA query_only = ON")
        only_reading(raw, value_bytes=_VALUE_BYTES)
        try:
            found = raw.execute(query, parameters)
            rows = list(islice(within(found, ANSWER_MIB), limit))
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as exc:
            raise _refused(exc, tables) from exc
        return tuple(column[0] for column in found.description or ()), rows
    finally:
        raw.close()


def _refused(exc: Exception, tables: Iterable[str]) -> InvalidValue:
    line = str(exc).partition("\n")[0]
    if "authorized" in line or "prohibited" in line or "readonly" in line:
        return InvalidValue("the query would change something: only reading is allowed here")
    listed = ", ".join(f"`{table}`" for table in tables)
    advice = f"SQL of this token reads the tables {listed}" if "no such table" in line else ""
    return InvalidValue(f"the query is not valid: {line}", help=advice)
