"""Whole tables out, for export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from policy.store.tables import METADATA
from policy.store.types import Bool, Json, Millis, Str

_BATCH: Final = 1000

_DAY_MS: Final = 86_400_000

_PARENTS: Final = ("decisions", "sessions", "observations")
"""Tables whose children are of the same day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """A column of a table."""

    name: str
    type: str  #: `int64`, `millis`, `bool`, `text` or `json`
    nullable: bool


def tables() -> Mapping[str, Sequence[ColumnInfo]]:
    """The tables by name with their columns in order."""
    return {
        name: tuple(
            ColumnInfo(name=c.name, type=_type_name(c.type), nullable=bool(c.nullable))
            for c in table.columns
        )
        for name, table in sorted(METADATA.tables.items())
    }


def _type_name(of: object) -> str:
    names = ((Millis, "millis"), (Bool, "bool"), (Json, "json"), (Str, "text"))
    return next((name for kind, name in names if isinstance(of, kind)), "int64")


def rows(connection: Connection, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
    """All rows of a table in batches, in the order of the primary key."""
    found = METADATA.tables[table]
    yield from _batches(connection, select(found).order_by(*found.primary_key.columns))


def has_days(table: str) -> bool:
    """Has each row of the table a day: an instant of its own, or that of what it belongs to?"""
    return _instant(METADATA.tables[table]) is not None


def rows_by_day(
    connection: Connection, table: str
) -> Iterator[tuple[int, Sequence[tuple[Any, ...]]]]:
    """All rows of a table that has days, in batches of one day each.

    With each batch its day, counted from 1970-01-01 UTC. Days ascend, and within a day the primary
    key.
    """
    found = METADATA.tables[table]
    instant = _instant(found)
    assert instant is not None, f"`{table}` has no days"
    at, parent = instant
    day = (at // _DAY_MS).label("day_of_row")
    query = select(found, day).order_by(day, *found.primary_key.columns)
    if parent is not None:
        query = query.join_from(found, parent)
    for batch in _batches(connection, query):
        for number, of_day in groupby(batch, key=itemgetter(-1)):
            yield number, [row[:-1] for row in of_day]


def _instant(table: Table) -> tuple[ColumnElement[int], Table | None] | None:
    """The column that says when a row is of, and the parent table where it is that one's."""
    for name in ("now_ms", "at_ms"):
        if name in table.columns:
            return table.columns[name], None
    for key in table.foreign_key_constraints:
        if key.referred_table.name in _PARENTS:
            return key.referred_table.columns["now_ms"], key.referred_table
    return None


def _batches(
    connection: Connection, query: Select[tuple[Any, ...]]
) -> Iterator[Sequence[tuple[Any, ...]]]:
    result = connection.execute(query.execution_options(yield_per=_BATCH))
    for part in result.partitions():
        yield [tuple(row) for row in part]
