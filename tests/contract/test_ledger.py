"""The ledger finds every change of the record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, text, update

from policy.store import Harm, Store, types
from policy.store.connection import make_engine, parse_url
from policy.store.tables import METADATA, VERSIONS
from tests.contract.builders import NOW, a_decision, a_pod
from tests.contract.filled import RULE_SET, fill


@pytest.fixture
def filled_url(database_url):
    with Store.open(database_url) as store:
        fill(store)
    return database_url


@contextmanager
def tampering(url: str) -> Iterator[Connection]:
    """A connection for which no constraint between rows stands in the way."""
    engine = make_engine(parse_url(url))
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                raw: Any = connection.connection.dbapi_connection
                raw.execute("PRAGMA foreign_keys = OFF")
            else:
                for table in METADATA.sorted_tables:
                    for key in table.foreign_key_constraints:
                        connection.execute(
                            text(f"ALTER TABLE {table.name} DROP CONSTRAINT IF EXISTS {key.name}")
                        )
            for table in VERSIONS.values():
                connection.execute(text(f"DROP INDEX IF EXISTS uq_{table.name}_live"))
            connection.commit()
            yield connection
    finally:
        engine.dispose()


def where(table: Table, row: Any):
    conditions = [column == row[column.name] for column in table.primary_key.columns]
    condition = conditions[0]
    for one in conditions[1:]:
        condition &= one
    return condition


def other_values(column, value: Any) -> list[Any]:
    """Values that a cell might be changed to."""
    if isinstance(column.type, types.Json):
        return ['{"changed":1}']
    if isinstance(column.type, types.Bool):
        return [not value]
    if value is None:
        return [4711 if isinstance(column.type, types.Int64) else "changed"]
    changed = value + 1_000_003 if isinstance(value, int) else value + "x"
    return [changed, None] if column.nullable else [changed]


def restored(connection: Connection, table: Table, key: Any, row: Any) -> None:
    connection.execute(delete(table).where(where(table, key)))
    connection.execute(delete(table).where(where(table, row)))
    connection.execute(insert(table), dict(row))
    connection.commit()


def test_an_untouched_record_verifies(filled_url):
    """All entries of all clusters are counted, and nothing is found."""
    with Store.open(filled_url) as store:
        fill(store, "other")
        result = store.verify_ledger()
        heads = store.ledger_heads()
    assert (result.findings, result.entries, result.heads) == ((), 20, tuple(heads))
    assert [(h.cluster, h.sequence) for h in heads] == [("default", 10), ("other", 10)]


def test_every_changed_cell_is_found(filled_url):
    """One by one, in every column of every table that has rows: verification fails."""
    missed, tried = [], 0
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            row = connection.execute(select(table).order_by(*table.primary_key)).mappings().first()
            connection.commit()
            for column in table.columns if row is not None else ():
                for value in other_values(column, row[column.name]):
                    connection.execute(
                        update(table).where(where(table, row)).values({column.name: value})
                    )
                    connection.commit()
                    tried += 1
                    if store.verify_ledger().ok:
                        missed.append((table.name, column.name, row[column.name], value))
                    changed = {**row, column.name: value}
                    restored(connection, table, changed, row)
        assert store.verify_ledger().findings == ()
    assert missed == []
    assert tried > 250


def test_every_deleted_row_is_found(filled_url):
    """Whichever row of whichever table is taken out: verification fails."""
    missed = []
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            for row in connection.execute(select(table)).mappings().all():
                connection.execute(delete(table).where(where(table, row)))
                connection.commit()
                if store.verify_ledger().ok:
                    missed.append((table.name, dict(row)))
                connection.execute(insert(table), dict(row))
                connection.commit()
        assert store.verify_ledger().findings == ()
    assert missed == []


def test_every_inserted_row_is_found(filled_url):
    """A copy of a row under another key, in every table: verification fails."""
    missed = []
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            row = connection.execute(select(table)).mappings().first()
            connection.commit()
            if row is None:
                continue
            for column in table.primary_key.columns:
                value = row[column.name]
                copy = dict(row)
                copy[column.name] = value + 1000 if isinstance(value, int) else value + "x"
                for unique in ("name", "digest", "hash", "previous", "decision_id"):
                    if unique in copy and unique not in table.primary_key.columns:
                        copy[unique] = None if unique == "decision_id" else "another"
                connection.execute(insert(table), copy)
                connection.commit()
                if store.verify_ledger().ok:
                    missed.append((table.name, column.name))
                connection.execute(delete(table).where(where(table, copy)))
                connection.commit()
        assert store.verify_ledger().findings == ()
    assert missed == []


def _contents(table: Table, row: Any) -> dict[str, Any]:
    """All of a row but its key and its end."""
    keys = {c.name for c in table.primary_key.columns} | {"valid_to"}
    return {name: value for name, value in row.items() if name not in keys}


def test_swapped_rows_are_found(filled_url):
    """Two rows of one table that exchange all but their keys: verification fails."""
    missed, tried = [], set()
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            found = connection.execute(select(table)).mappings().all()
            connection.commit()
            differing = (
                (a, b) for a in found for b in found if _contents(table, a) != _contents(table, b)
            )
            for a, b in itertools.islice(differing, 1):
                tried.add(table.name)
                for row in (a, b):
                    connection.execute(delete(table).where(where(table, row)))
                swapped = [{**a, **_contents(table, b)}, {**b, **_contents(table, a)}]
                connection.execute(insert(table), swapped)
                connection.commit()
                if store.verify_ledger().ok:
                    missed.append(table.name)
                for row in (a, b):
                    connection.execute(delete(table).where(where(table, row)))
                connection.execute(insert(table), [dict(a), dict(b)])
                connection.commit()
        assert store.verify_ledger().findings == ()
    assert missed == []
    assert {"pods", "decisions", "candidates", "victims", "nominations", "ledger"} <= tried


def test_the_first_harm_is_named(filled_url):
    """A changed victim names the decision and the entry that recorded it."""
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("UPDATE victims SET priority = 0 WHERE decision_id = 3"))
        connection.execute(text("UPDATE victims SET priority = 0 WHERE decision_id = 1"))
        connection.commit()
        first = store.verify_ledger().findings[0]
    assert (first.cluster, first.harm, first.decision_id, first.sequence) == (
        "default",
        Harm.CHANGED,
        1,
        5,
    )


def test_a_removed_decision_is_a_gap(filled_url):
    """A decision taken out with all its rows and its entry leaves a gap in the chain."""
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("DELETE FROM ledger WHERE decision_id = 2"))
        for table in ("decision_traces", "decision_filters", "decision_rules", "candidates"):
            connection.execute(text(f"DELETE FROM {table} WHERE decision_id = 2"))
        connection.execute(text("DELETE FROM victims WHERE decision_id = 2"))
        connection.execute(text("DELETE FROM decisions WHERE id = 2"))
        connection.execute(text("DELETE FROM cycles WHERE id = 2"))
        connection.commit()
        found = store.verify_ledger().findings
    assert [(f.harm, f.sequence) for f in found] == [(Harm.REMOVED, 7)]


def test_reordered_entries_are_found(filled_url):
    """Two entries that change places no longer follow one another."""
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for old, new in ((5, 99), (6, 5), (99, 6)):
            connection.execute(
                text("UPDATE ledger SET sequence = :new WHERE cluster_id = 1 AND sequence = :old"),
                {"new": new, "old": old},
            )
        connection.commit()
        first = store.verify_ledger().findings[0]
    assert (first.harm, first.sequence) == (Harm.REORDERED, 5)


def test_a_kept_head_shows_that_the_end_was_cut_off(filled_url):
    """Whoever kept the head elsewhere misses it where the newest entries were removed."""
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        store.record(
            "default", a_decision(), [], expected_revision=6, actor="x", at_ms=NOW, **RULE_SET
        )
        head = store.ledger_head("default")
        assert store.verify_ledger(from_hash=head.hash).ok
        newest = store.decisions("default", limit=1)[0].id
        connection.execute(text("DELETE FROM ledger WHERE decision_id = :id"), {"id": newest})
        for table in ("decision_traces", "decision_filters", "decision_rules", "candidates"):
            connection.execute(text(f"DELETE FROM {table} WHERE decision_id = :id"), {"id": newest})
        connection.execute(text("DELETE FROM victims WHERE decision_id = :id"), {"id": newest})
        connection.execute(text("DELETE FROM decisions WHERE id = :id"), {"id": newest})
        connection.execute(text("DELETE FROM cycles WHERE id = :id"), {"id": newest})
        connection.commit()
        found = store.verify_ledger(from_hash=head.hash).findings
        assert store.verify_ledger().ok
    assert [f.harm for f in found] == [Harm.REMOVED]


def test_verification_from_a_hash_checks_what_follows(filled_url):
    """Entries up to the hash are taken as signed off; those after it are computed again."""
    with Store.open(filled_url) as store:
        signed = store.ledger_head("default")
        store.change("default", [("Pod", "a/b", a_pod("a/b"))], at_ms=NOW, source="w", cause="live")
        result = store.verify_ledger("default", from_hash=signed.hash)
    assert (result.ok, result.entries) == (True, 1)
