"""Rows that go past SQLAlchemy are in the database as they were given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest
from sqlalchemy import BigInteger, Boolean, Column, MetaData, Table, Text, select, text

from policy.store import Store, bulk
from policy.store.connection import Database, parse_url
from tests.support.builders import NOW_MS, a_pod

ODD: Final = Table(
    "odd",
    MetaData(),
    Column("number", BigInteger, nullable=False),
    Column("text", Text),
    Column("flag", Boolean),
)
TEXTS: Final = (
    "",
    " ",
    "NULL",
    "null",
    'a "quoted" word',
    "a\\b\\\\",
    '\\"',
    "{a,b}",
    "a,b",
    "two\nlines\tand a tab",
    "ä€😀",
    "%s ? $1",
    None,
)
ROWS: Final[list[tuple[Any, ...]]] = [
    (sign * 2**i, text, flag)
    for i, text in enumerate(TEXTS, start=50)
    for sign, flag in ((1, True), (-1, False), (1, None))
]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(parse_url(database_url))
    yield opened
    opened.close()


@pytest.mark.parametrize("pipeline", [False, True], ids=["one-by-one", "together"])
def test_every_value_is_read_as_it_was_written(database: Database, pipeline: bool) -> None:
    names = ("number", "text", "flag")
    with database.writing() as connection:
        ODD.create(connection)
        with bulk.together(connection) if pipeline else nullcontext():
            bulk.insert_rows(connection, ODD, names, ROWS, count=len(ROWS))
    with database.reading() as connection:
        found = [tuple(row) for row in connection.execute(select(ODD))]
    assert sorted(found, key=repr) == sorted(ROWS, key=repr)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_postgres_knows_the_keys_of_what_a_large_import_brought(
    database: Database, database_url: str
) -> None:
    """Its planner needs statistics; SQLite is given the index by name."""
    pods = [a_pod(f"pod-{i:04d}").pod for i in range(1200)]
    with Store.open(database_url) as store:
        store.record.import_objects("east", pods, at_ms=NOW_MS, source="dump")
    query = text("SELECT attname FROM pg_stats WHERE tablename = 'pods' ORDER BY attname")
    with database.reading() as connection:
        known = list(connection.execute(query).scalars())
    assert known == ["cluster_id", "key", "valid_from", "valid_to"]
