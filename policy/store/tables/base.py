"""Metadata, column helpers, and which columns a ledger entry of a given format covers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Column, Identity, Index, MetaData, Table, TextClause
from sqlalchemy.schema import SchemaItem

from policy.store.types import Bool, Int64, Json, Millis, Str

LEDGER_FORMAT: Final = 2
"""Format of the ledger entries written now: which columns they cover, and how a line is built.

Whoever adds a covered column raises it and gives the column `info={"since": LEDGER_FORMAT}`:
entries of older formats go on without it. Nothing that a format covers is ever renamed in meaning,
reordered or dropped; docs/formats.md lists the formats.
"""

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# One of each for all columns: what a type means to a database is found out for each anew.
INT64: Final = Int64()
MILLIS: Final = Millis()
BOOL: Final = Bool()
STR: Final = Str()
JSON: Final = Json()


def table(
    name: str, *items: SchemaItem, clustered: bool = False, unique_for_ever: bool = False
) -> Table:
    """A STRICT table.

    clustered: SQLite keeps the rows in the primary key itself. unique_for_ever: the identity of a
    deleted row is not given again on SQLite either.
    """
    return Table(
        name,
        METADATA,
        *items,
        sqlite_strict=True,
        sqlite_with_rowid=not clustered,
        sqlite_autoincrement=unique_for_ever,
    )


def partial(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """An index of the rows that meet a condition, on both databases."""
    # The argument for Postgres would load all of SQLAlchemy's code for it with the tables.
    return Index(name, *columns, unique=unique, sqlite_where=where, info={_WHERE: where})


_WHERE: Final = "where"


def name_conditions_for_postgres() -> None:
    """Give partial indexes their condition for Postgres too, for whoever writes DDL from them."""
    for of in METADATA.tables.values():
        for index in of.indexes:
            if _WHERE in index.info:
                index.dialect_kwargs["postgresql_where"] = index.info[_WHERE]


def int64(name: str, *items: SchemaItem, **options: Any) -> Column[int]:
    return Column(name, INT64, *items, **{"nullable": False, **options})


def millis(name: str, **options: Any) -> Column[int]:
    return Column(name, MILLIS, **{"nullable": False, **options})


def boolean(name: str, **options: Any) -> Column[bool]:
    return Column(name, BOOL, **{"nullable": False, **options})


def text(name: str, *items: SchemaItem, **options: Any) -> Column[str]:
    return Column(name, STR, *items, **{"nullable": False, **options})


def json(name: str, **options: Any) -> Column[str]:
    return Column(name, JSON, **{"nullable": False, **options})


def identity(name: str = "id") -> Column[int]:
    return Column(name, INT64, Identity(), primary_key=True)


def written_by() -> tuple[Column[Any], ...]:
    """Who wrote a row, beside the name that is claimed: see `policy.store.identity`.

    In rows that were written before there were these columns: null, "" and "".
    """
    since: dict[str, Any] = {"info": {"since": 2}}
    return (
        int64("process_uid", nullable=True, **since),
        text("process_user", **since),
        text("database_user", **since),
    )


@lru_cache(maxsize=256)
def column_names(of: Table) -> tuple[str, ...]:
    """Names of all columns, in table order."""
    return tuple(column.name for column in of.columns)


@lru_cache(maxsize=1024)
def covered(of: Table, ledger_format: int) -> tuple[str, ...]:
    """Names of the columns whose values entries of that format hash, in table order.

    `valid_to` is left out: the revision that closes a version covers it. A manifest is covered by
    its digest.
    """
    return tuple(
        column.name
        for column in of.columns
        if column.info.get("since", 1) <= ledger_format and not column.info.get("elsewhere")
    )
