"""Whole tables out, for export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from policy.store.tables import METADATA
from policy.store.types import Bool, Json, Millis, Str

_BATCH: Final = 1000


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
    query = select(found).order_by(*found.primary_key.columns)
    result = connection.execute(query.execution_options(yield_per=_BATCH))
    for part in result.partitions():
        yield [tuple(row) for row in part]
