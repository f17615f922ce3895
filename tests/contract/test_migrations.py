"""The schema: from nothing to the newest and back, on filled databases, and equal to the tables."""

from __future__ import annotations

import shutil
import sqlite3

import pytest
from sqlalchemy import inspect, text

from policy.store import Store, StoreError, check, current, downgrade, migrate, upgrade
from policy.store.connection import make_engine, parse_url
from policy.store.tables import METADATA
from tests.contract.filled import fill


def run(url, query):
    engine = make_engine(parse_url(url))
    with engine.connect() as connection, connection.begin():
        result = connection.execute(text(query))
        rows = list(result) if result.returns_rows else []
    engine.dispose()
    return rows


def test_the_newest_schema_equals_the_tables(empty_database_url):
    """Autogenerate finds nothing to change, and every view is there."""
    upgrade(empty_database_url)
    engine = make_engine(parse_url(empty_database_url), migrating=True)
    with engine.connect() as connection:
        assert migrate.differences(connection) == []
        assert set(inspect(connection).get_view_names()) == migrate.VIEWS
    engine.dispose()


def test_columns_stand_in_the_order_of_the_tables(empty_database_url):
    """Who reads whole rows can build the lines of the ledger from them."""
    upgrade(empty_database_url)
    engine = make_engine(parse_url(empty_database_url), migrating=True)
    with engine.connect() as connection:
        catalogue = inspect(connection)
        found = {
            name: [(c["name"], c["nullable"], c["default"]) for c in catalogue.get_columns(name)]
            for name in METADATA.tables
        }
    engine.dispose()
    assert found == {
        name: [(c.name, c.nullable, None) for c in table.columns]
        for name, table in METADATA.tables.items()
    }


def test_the_revisions_are_those_of_the_scripts(empty_database_url):
    """The list that is known without Alembic is what Alembic finds, oldest first."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migrate.config())
    found = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(found)) == migrate.REVISIONS


def test_a_filled_database_goes_down_and_up_again(empty_database_url, newer_program):
    """Every step down and up runs on a database with rows of every sort."""
    with Store.open(empty_database_url) as store:
        fill(store)
        before = store.read.decisions()
    newer_program()
    assert upgrade(empty_database_url).up_to_date
    for revision in reversed(migrate.REVISIONS[:-1]):
        assert downgrade(empty_database_url, revision).revision == revision
    assert upgrade(empty_database_url).up_to_date
    with Store.open(empty_database_url) as store:
        assert store.read.decisions() == before
        assert store.ledger.verify().ok
    assert downgrade(empty_database_url, "base").revision is None
    with Store.open(empty_database_url) as store:
        assert store.state.clusters() == []


def test_upgrade_of_the_newest_schema_changes_nothing(empty_database_url):
    """It may be run any number of times."""
    assert upgrade(empty_database_url) == upgrade(empty_database_url)


def test_an_older_schema_is_not_migrated_by_itself(empty_database_url, newer_program):
    """Opening it says what to do; `upgrade` does it."""
    upgrade(empty_database_url)
    newer_program()
    with pytest.raises(StoreError, match="this version needs") as caught:
        Store.open(empty_database_url)
    assert caught.value.help == "run `policy db upgrade`"
    upgrade(empty_database_url)
    Store.open(empty_database_url).close()


def test_a_newer_schema_is_left_alone(database_url):
    """A database of a later version is neither read nor changed."""
    run(database_url, f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match="written by a newer version"):
        Store.open(database_url)
    with pytest.raises(StoreError, match="written by a newer version"):
        upgrade(database_url)


def test_a_database_of_something_else_is_left_alone(empty_database_url):
    """Tables that are not ours: nothing is added to them."""
    run(empty_database_url, "CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    for attempt in (Store.open, upgrade, current):
        with pytest.raises(StoreError, match="holds tables of something else"):
            attempt(empty_database_url)


def test_an_unknown_schema_revision_is_named(database_url):
    """`downgrade` to what does not exist lists what does."""
    with pytest.raises(StoreError, match="no schema revision `0815`") as caught:
        downgrade(database_url, "0815")
    assert "base, 0001" in caught.value.help


def test_a_failing_migration_leaves_the_schema_as_it_was(database_url, monkeypatch):
    """A migration is one transaction."""
    from alembic import op

    before = current(database_url)
    calls = []
    drop = op.drop_table

    def failing(name, *args, **options):
        calls.append(name)
        if len(calls) == 3:
            raise StoreError("no further")
        drop(name, *args, **options)

    monkeypatch.setattr(op, "drop_table", failing)
    with pytest.raises(StoreError, match="no further"):
        downgrade(database_url, "base")
    assert current(database_url) == before
    Store.open(database_url).close()


def test_check_finds_a_sound_database_sound(database_url):
    """Nothing to say about a database as it was made."""
    assert (check(database_url).ok, check(database_url).schema) == (True, current(database_url))


def test_check_names_what_lacks_and_what_is_too_much(database_url):
    """Tables, columns, indexes and views are compared with what the program works with."""
    for statement in (
        "DROP VIEW v_victims",
        "DROP INDEX ix_victims_pdb_violating",
        "DROP TABLE candidates",
        "ALTER TABLE cycles ADD COLUMN remark TEXT",
    ):
        run(database_url, statement)
    assert sorted(check(database_url).problems) == [
        "add index ix_victims_pdb_violating",
        "add table candidates",
        "remove column cycles.remark",
        "view v_victims is missing",
    ]


def test_check_of_an_older_schema(database_url, newer_program):
    """It says which schema there is, and which one is needed."""
    older, newer = migrate.HEAD, newer_program()
    assert check(database_url).problems == (
        f"the database has schema {older}, this version needs {newer}",
    )


def test_check_finds_rows_that_refer_to_nothing(sqlite_template, tmp_path):
    """Where foreign keys were switched off, SQLite's own check tells."""
    path = tmp_path / "policy.db"
    shutil.copy(sqlite_template, path)
    connection = sqlite3.connect(path)
    for number in (7, 8):
        trace = "INSERT INTO decision_traces (decision_id, document) VALUES (?, '{}')"
        connection.execute(trace, (number,))
    connection.commit()
    connection.close()
    assert check(str(path)).problems == (
        "table decision_traces: 2 rows refer to rows that are missing",
    )
