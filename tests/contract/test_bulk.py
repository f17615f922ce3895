"""Rows that go past SQLAlchemy are in the database as they were given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest
from sqlalchemy import Column, MetaData, Table, select, text

from policy.cluster.objects import Namespace, ObjectMeta
from policy.store import Store, StoreError, bulk
from policy.store.connection import Database, parse_url
from policy.store.tables import VERSIONS
from policy.store.tables.base import BOOL, INT64, JSON, STR
from tests.support.builders import NOW_MS, a_pod

ODD: Final = Table(
    "odd",
    MetaData(),
    Column("number", INT64, nullable=False),
    Column("text", STR),
    Column("flag", BOOL),
    Column("document", JSON),
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
    (sign * 2**i, text, flag, None if text is None else json.dumps([text], ensure_ascii=False))
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
    names = ("number", "text", "flag", "document")
    with database.writing() as connection:
        ODD.create(connection)
        with bulk.together(connection) if pipeline else nullcontext():
            bulk.insert_rows(connection, ODD, names, ROWS, count=len(ROWS))
    with database.reading() as connection:
        found = [tuple(row) for row in connection.execute(select(ODD))]
    assert sorted(found, key=repr) == sorted(ROWS, key=repr)


def test_answers_are_streamed_side_by_side(database: Database) -> None:
    """Each gives all its rows, also more than are fetched at once, and one may be left in between.

    An error is the store's own.
    """
    names, query = ("number", "text", "flag"), "SELECT number FROM odd WHERE number >= ? ORDER BY 1"
    with database.writing() as connection:
        ODD.create(connection)
        bulk.insert_rows(connection, ODD, names, ((i, "", None) for i in range(2500)), count=2500)
    with database.reading() as connection:
        left = bulk.stream(connection, query, (7,))
        first = next(left)
        pairs = zip(
            bulk.stream(connection, query, (0,)), bulk.stream(connection, query, (1,)), strict=False
        )
        found = list(pairs)
        left.close()
    assert (first, found) == ((7,), [((i,), (i + 1,)) for i in range(2499)])
    with pytest.raises(StoreError, match=r"nowhere"), database.reading() as connection:
        list(bulk.stream(connection, "SELECT number FROM nowhere"))


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "said", "advice"),
    [
        ("SELECT 1 / 0", "division by zero", ""),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "terminat|lost", "run it again"),
    ],
    ids=["refused", "ended"],
)
@pytest.mark.parametrize("waited", [False, True], ids=["at-the-end", "at-an-answer"])
def test_what_fails_among_statements_sent_together_is_said_once(
    database: Database,
    statement: str,
    said: str,
    advice: str,
    waited: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the error alone: the driver prints nothing of what it stopped, and the next one works."""

    def work() -> None:
        with database.writing() as connection, bulk.together(connection):
            bulk.execute(connection, "INSERT INTO clusters (name) VALUES (?)", ("east",))
            bulk.execute(connection, statement)
            bulk.execute(connection, "INSERT INTO clusters (name) VALUES (?)", ("west",))
            if waited:
                bulk.fetch(connection, "SELECT name FROM clusters")

    with pytest.raises(StoreError, match=said) as caught:
        work()
    with database.writing() as connection, bulk.together(connection):
        left = bulk.fetch(connection, "SELECT name FROM clusters")
    assert (advice in caught.value.help, caplog.messages, left) == (True, [], [])


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


def schema_and_check(database: Database) -> tuple[set[tuple[str, str]], str]:
    """The statements that made each part of an SQLite database, and what it says of itself."""
    with database.reading() as connection:
        schema = connection.execute(text("SELECT name, sql FROM sqlite_master"))
        parts = {(row.name, row.sql) for row in schema}
        return parts, connection.scalar(text("PRAGMA integrity_check"))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_indexes_made_after_a_large_import_are_those_that_were_there(
    database: Database, database_url: str
) -> None:
    """Whether rows came before the indexes or after them, the database is the same."""
    before = schema_and_check(database)
    for cluster in ("first", "second"):
        spaces = [Namespace(metadata=ObjectMeta(name=f"team-{i:05d}")) for i in range(10_000)]
        with Store.open(database_url) as store:
            store.record.import_objects(cluster, spaces, at_ms=NOW_MS, source="dump")
        assert schema_and_check(database) == before


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_rows_that_no_unique_index_can_be_made_over_leave_all_as_it_was(database: Database) -> None:
    """Two versions of one object that are both true now are found when the index is made."""
    before = schema_and_check(database)
    table, names = VERSIONS["Namespace"], ("cluster_id", "key", "valid_from", "name", "digest")
    rows = [(1, f"team-{i:05d}", 1, "", "") for i in range(10_000)]
    rows[-1] = (1, "team-00000", 2, "", "")
    complete = [(*row, "{}") for row in rows]
    with pytest.raises(StoreError, match=r"UNIQUE constraint failed: namespaces"):
        insert_into_a_new_cluster(database, table, (*names, "manifest"), complete)
    with database.reading() as connection:
        left = connection.scalar(text("SELECT count(*) FROM namespaces"))
    assert (schema_and_check(database), left) == (before, 0)


def insert_into_a_new_cluster(
    database: Database, table: Table, names: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    with database.writing() as connection:
        connection.execute(text("INSERT INTO clusters (id, name) VALUES (1, 'east')"))
        with bulk.indexed_afterwards(connection, table, count=len(rows)):
            bulk.insert_rows(connection, table, names, rows, count=len(rows))


@pytest.mark.parametrize("texts", [[], ["b"], ["b", "", 'c"\\', "none"]], ids=len)
def test_what_is_among_texts_is_found(database: Database, texts: list[str]) -> None:
    """Also where there are none."""
    rows = [(i, text, None, None) for i, text in enumerate(["a", "b", "", 'c"\\'])]
    with database.writing() as connection:
        ODD.create(connection)
        bulk.insert_rows(connection, ODD, tuple(ODD.c.keys()), rows, count=len(rows))
        of_texts, wanted = bulk.among(connection, texts)
        query = f"SELECT text FROM odd WHERE text {of_texts} ORDER BY number"
        found = [text for (text,) in bulk.fetch(connection, query, (wanted,))]
    assert found == [text for _, text, *_ in rows if text in texts]


def test_what_failed_first_is_said(database: Database) -> None:
    """Not that what was sent behind it failed as well."""

    def failing() -> None:
        with database.writing(together=True) as connection:
            missing = bulk.Asked(connection, "SELECT 1 FROM nowhere")
            for _ in range(3):
                bulk.Asked(connection, "SELECT 1")
            missing.rows()

    missing = 'no such table: nowhere|relation "nowhere" does not exist'
    with pytest.raises(StoreError, match=f": ({missing})$"):
        failing()
