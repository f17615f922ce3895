"""SQL on a copy of what somebody may see: a database in memory that holds nothing else.

Whatever the statement says, there is no other table, count, plan or time to be found out.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.store.errors import InvalidValue
from policy.store.read.sqlite_reading import only_reading

_STEPS: Final = 10_000
"""Steps of SQLite's machine after which the time is looked at."""


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
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and at most `limit` rows of one statement that reads.

    timeout: seconds for all of it. Raises InvalidValue.
    """
    if not query.strip().rstrip(";").strip():
        raise InvalidValue("the query is empty", help='for example "SELECT * FROM decisions"')
    raw = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for name, table in tables.items():
            marks = ", ".join("?" * len(table.columns))
            raw.execute(f"CREATE TABLE {name} ({', '.join(table.columns)})")
            raw.executemany(f"INSERT INTO {name} VALUES ({marks})", table.rows)
        raw.execute("PRAGMA query_only = ON")
        end = time.monotonic() + timeout
        raw.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        only_reading(raw)
        try:
            found = raw.execute(query, parameters)
            rows = found.fetchmany(limit)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as exc:
            raise _refused(exc, timeout) from exc
        return tuple(column[0] for column in found.description or ()), rows
    finally:
        raw.close()


def _refused(exc: Exception, timeout: int) -> InvalidValue:
    line = str(exc).partition("\n")[0]
    if line == "interrupted":
        return InvalidValue(f"the query was stopped after {timeout} seconds", help="ask for less")
    if "authorized" in line or "prohibited" in line or "readonly" in line:
        return InvalidValue("the query would change something: only reading is allowed here")
    return InvalidValue(f"the query is not valid: {line}")
