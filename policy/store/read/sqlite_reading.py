"""What a query on SQLite is kept to, which has no roles: reading, and on demand our views alone.

A query that may read views alone is first prepared in a database in memory that holds the views, as
empty tables with the same columns, and nothing else. Names are resolved there as they are in the
real one: whatever else the query reads, under whatever name or cover, does not exist there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from policy.store.errors import InvalidValue

_MISSING: Final = re.compile(r"no such table: (?:main\.)?(.+)")
_BESIDE: Final = frozenset({"json_each", "json_tree"})
"""Table-valued functions of their arguments alone."""
_OF_FUNCTIONS: Final = ("sqlite_master", "ROWID")
"""What SQLite reads to make them."""
_VALUE_BYTES: Final = 256 << 20
"""Longest text, and longest row, that SQLite makes for a query; Postgres' own limit is 1 GB."""
_PATTERN_BYTES: Final = 1000
"""Longest pattern of LIKE and GLOB. SQLite can be stopped between functions only, and one that
compares two long texts would take hours."""
_READING: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
_READING_PRAGMAS: Final = frozenset(
    {"foreign_key_list", "index_info", "index_list", "table_info", "table_list", "table_xinfo"}
)
_UNSAFE_FUNCTIONS: Final = frozenset({"fts3_tokenizer", "load_extension"})
"""They give or take addresses of the process's memory, and code of other files."""


def only_reading(
    raw: sqlite3.Connection,
    *,
    among: Collection[str] | None = None,
    modules: Collection[str] = (),
    value_bytes: int = _VALUE_BYTES,
) -> None:
    """Have SQLite refuse what `mode=ro` and `query_only` allow: other files, other settings.

    among: names of tables, in lower case, that alone are read, and not described either; None for
    all. modules: names of virtual tables that are there, too. value_bytes: of the longest text, and
    the longest row, also of one that is only read.
    """

    def authorize(action: int, name: str | None, second: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_FUNCTION and second in _UNSAFE_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        hidden = among is not None and name and name.lower() not in among
        if action == sqlite3.SQLITE_READ and hidden and (name, second) != _OF_FUNCTIONS:
            # Of a subquery of which no column is read SQLite says its name, as of a table.
            subquery = second == "" and not _is_there(name or "", modules)
            return sqlite3.SQLITE_OK if subquery else sqlite3.SQLITE_DENY
        allowed = (
            action in _READING
            or (action == sqlite3.SQLITE_PRAGMA and among is None and name in _READING_PRAGMAS)
            # What SQLite asks for a table-valued function such as `json_each`; an UPDATE of the
            # user's it refuses by itself.
            or (action == sqlite3.SQLITE_UPDATE and name == "sqlite_master")
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
    raw.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _PATTERN_BYTES)
    raw.set_authorizer(authorize)


def _is_there(name: str, modules: Collection[str]) -> bool:
    """Is it a table in a database that holds nothing beside what may be read?"""
    lower = name.lower()
    return not modules or lower in modules or lower.startswith(("sqlite_", "pragma_"))


def columns_of(raw: sqlite3.Connection, views: Sequence[str]) -> dict[str, list[str]]:
    """The columns of the views."""
    return {
        view: [row[1] for row in raw.execute(f'PRAGMA table_info("{view}")')]
        for view in sorted(views)
    }


def require_views(
    sql: str, given: int, views: Mapping[str, Sequence[str]], *, tables: frozenset[str]
) -> None:
    """Raises InvalidValue for a query that reads anything but the views.

    given: how many parameters it has. views: by name, their columns. tables: names of what there
    is beside, so that an error can say what is only not to be read.
    """
    empty = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for view, columns in views.items():
            named = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            empty.execute(f'CREATE TABLE "{view}" ({named})')
        modules = {name.lower() for (name,) in empty.execute("PRAGMA module_list")}
        only_reading(empty, among={*views, *_BESIDE}, modules=modules)
        # It is prepared, which is all that is wanted, and stopped at its first step.
        empty.set_progress_handler(lambda: 1, 1)
        try:
            empty.execute(sql, (None,) * given).close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeError) as exc:
            line = str(exc).partition("\n")[0]
            if line != "interrupted":
                raise _refused(line, views, tables) from exc
    finally:
        empty.close()


def _refused(line: str, views: Mapping[str, Sequence[str]], tables: frozenset[str]) -> InvalidValue:
    listed = ", ".join(f"`{view}`" for view in views)
    advice = f"SQL of this token reads the views {listed}; that of an admin reads the tables, too"
    found = _MISSING.fullmatch(line)
    if found and found[1].lower() in tables:
        return InvalidValue(f"`{found[1]}` is a table, not a view that may be read", help=advice)
    if "prohibited" in line or "not authorized" in line:
        return InvalidValue(f"the query is not allowed: {line}", help=advice)
    return InvalidValue(f"the query is not valid: {line}", help=advice if found else "")
