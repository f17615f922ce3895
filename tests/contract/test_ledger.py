"""The ledger finds every change of the record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, text, update

from policy.store import NotFound, Store, TamperKind, types
from policy.store.connection import make_engine, parse_url
from policy.store.ledger.entries import hash_of
from policy.store.tables import (
    CLUSTERS,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_SPANS,
    DECISIONS,
    EVICTED_WORKLOADS,
    LEDGER,
    METADATA,
    REVISIONS,
    TOTALS,
    VERSIONS,
)
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_decision,
    a_node,
    a_pod,
    made_on,
)
from tests.contract.filled import fill, fill_more
from tests.support.tried import Kind

# Where followers go on, of which cluster, and which writes were sent is no part of the record:
# docs/sql.md says so. Totals follow from it: tests/property/test_totals.py.
_BESIDE = {"follow_positions", "cluster_identities", "idempotency_keys"}
_BESIDE |= {one.name for one in (*TOTALS, DECISION_SPANS, EVICTED_WORKLOADS)}
RECORD = [one for one in METADATA.sorted_tables if one.name not in _BESIDE]
DECISION_TABLES = [table.name for table in (CYCLES, DECISIONS, *DECISION_CHILDREN)]

T = TypeVar("T")


@pytest.fixture
def fuller_url(filled_url):
    """Rows in every table."""
    with Store.open(filled_url) as store:
        fill_more(store)
    return filled_url


@pytest.fixture
def filled_url(database_url):
    """A cluster with rows of every sort, and a small one whose past was pruned."""
    with Store.open(database_url) as store:
        fill(store)
        for at, objects in enumerate(([a_node("n1"), a_pod("a/b")], [a_node("n1", cpu="9")])):
            store.record.import_objects("old", objects, at_ms=NOW + at, source="dump.json")
        store.ledger.prune(NOW + 1, cluster="old", actor="ann", at_ms=NOW + 100)
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
                # Also those between partitions, which no table of ours names.
                keys = text("""
                    SELECT CAST(conrelid AS regclass), conname FROM pg_constraint
                    WHERE contype = 'f' AND conparentid = 0
                """)
                for table, key in connection.execute(keys).all():
                    connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {key}"))
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
    """Values that a cell might be changed to, the plainest first."""
    others: list[Any]
    if isinstance(column.type, types.Json):
        others = ['{"changed":1}', "[]" if value is None else value + " "]
    elif isinstance(column.type, types.Bool):
        others = [not value]
    elif isinstance(column.type, types.Int64):
        # As many of them whatever the value is: user numbers differ between machines.
        others = [4711, 0] if value is None else [value + 1_000_003, 0 if value else -1]
    else:
        others = ["changed", ""] if value is None else [value + "x", "", value.upper()]
    if column.nullable:
        others.insert(1, None)
    return [other for other in others if other != value]


def changes(connection: Connection, table: Table) -> Iterator[tuple[Any, str, Any]]:
    """(row, column, other value) to try.

    Each column of a row, and of one where it is null, or is not, unlike in that; a column of each
    type in all the ways that there are, the others in the plainest, and one of each type in every
    cluster. Which columns are hashed does not depend on the database, only how they are read: on
    Postgres, a column of each type.
    """
    found = connection.execute(select(table).order_by(*table.primary_key)).mappings().all()
    connection.commit()
    of_each_type = {(str(c.type), c.nullable): c for c in table.columns}.values()
    if connection.dialect.name != "sqlite":
        for column in of_each_type:
            yield found[0], column.name, other_values(column, found[0][column.name])[0]
        return
    firsts = list({row.get("cluster_id"): row for row in reversed(found)}.values())
    typical = {column.name for column in of_each_type}
    for column in table.columns:
        name = column.name
        tried = firsts if name in typical else [found[0]]
        unlike = {row[name] is None: row for row in reversed(found)} if column.nullable else {}
        for row in [*tried, *(row for row in unlike.values() if row not in tried)]:
            values = other_values(column, row[name])
            for value in values if row is found[0] and name in typical else values[:1]:
                yield row, name, value


def fewer(connection: Connection, of_a_table: Sequence[T]) -> Sequence[T]:
    """The first one alone on Postgres: what is hashed of a table is the same there."""
    return of_a_table if connection.dialect.name == "sqlite" else of_a_table[:1]


def restored(connection: Connection, table: Table, key: Any, row: Any) -> None:
    connection.execute(delete(table).where(where(table, key)))
    connection.execute(delete(table).where(where(table, row)))
    connection.execute(insert(table), dict(row))
    connection.commit()


def test_an_untouched_record_verifies(filled_url):
    """All entries of all clusters are counted, and nothing is found."""
    progress = []
    with Store.open(filled_url) as store:
        result = store.ledger.verify(progress=lambda done, total: progress.append((done, total)))
        heads = store.ledger.heads()
    assert (result.findings, result.entries, result.heads) == ((), 12, tuple(heads))
    assert [(h.cluster, h.sequence) for h in heads] == [("default", 10), ("old", 3)]
    assert progress == [(10, 12), (12, 12)]


def test_there_are_rows_in_every_table(fuller_url):
    """A table that is added later is tampered with below like the others, or this fails."""
    with tampering(fuller_url) as connection:
        empty = [t.name for t in RECORD if not connection.execute(select(t)).first()]
    assert empty == []


def test_every_changed_cell_is_found(fuller_url, tried):
    """One by one, in every column of every table (`changes`): verification fails."""
    missed, columns, cells = [], set(), 0
    with Store.open(fuller_url) as store, tampering(fuller_url) as connection:
        for table in RECORD:
            for row, name, value in changes(connection, table):
                connection.execute(update(table).where(where(table, row)).values({name: value}))
                connection.commit()
                columns.add(table.c[name])
                cells += 1
                if store.ledger.verify().ok:
                    missed.append((table.name, name, row[name], value))
                restored(connection, table, {**row, name: value}, row)
        assert store.ledger.verify().findings == ()
        every = connection.dialect.name == "sqlite"
    tried(Kind.CHANGED_CELL, cells)
    assert missed == []
    assert columns == {c for table in RECORD for c in table.columns} or not every
    assert {column.table for column in columns} == set(RECORD)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE decisions SET eligible = 2 WHERE id = 1",
        "UPDATE victims SET evicted = -1 WHERE decision_id = 1",
        "UPDATE decisions SET message = CAST(x'ff41' AS TEXT) WHERE id = 1",
        "UPDATE decisions SET message = message || char(0) WHERE id = 1",
        "UPDATE ledger SET actor = CAST(x'ff41' AS TEXT) WHERE decision_id = 1",
    ],
)
def test_cells_that_only_sqlite_holds_are_found(filled_url, harm, tried):
    """Numbers that pass for true, texts that are no UTF-8: the decision is named all the same."""
    tried(Kind.CHANGED_CELL)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text(harm))
        connection.commit()
        first = store.ledger.verify().findings[0]
    assert (first.harm, first.decision_id) == (TamperKind.CHANGED, 1)


def test_every_deleted_row_is_found(filled_url, tried):
    """Whichever row of whichever table is taken out: verification fails (`fewer`)."""
    missed, count = [], 0
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            rows = connection.execute(select(table)).mappings().all()
            for row in fewer(connection, rows):
                connection.execute(delete(table).where(where(table, row)))
                connection.commit()
                count += 1
                if store.ledger.verify().ok:
                    missed.append((table.name, dict(row)))
                connection.execute(insert(table), dict(row))
                connection.commit()
        assert store.ledger.verify().findings == ()
    tried(Kind.DELETED_ROW, count)
    assert missed == []


def test_every_inserted_row_is_found(filled_url, tried):
    """A copy of a row under another key, in every table: verification fails (`fewer`).

    But for `evicted_workloads`: a workload of which no eviction is left has a row there.
    """
    missed, count = [], 0
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            row = connection.execute(select(table)).mappings().first()
            connection.commit()
            if row is None or table is EVICTED_WORKLOADS:
                continue
            for column in fewer(connection, list(table.primary_key.columns)):
                value = row[column.name]
                copy = dict(row)
                copy[column.name] = _another(value)
                for unique in ("name", "digest", "hash", "previous", "decision_id"):
                    if unique in copy and unique not in table.primary_key.columns:
                        copy[unique] = None if unique == "decision_id" else "another"
                connection.execute(insert(table), copy)
                connection.commit()
                count += 1
                if store.ledger.verify().ok:
                    missed.append((table.name, column.name))
                connection.execute(delete(table).where(where(table, copy)))
                connection.commit()
        assert store.ledger.verify().findings == ()
    tried(Kind.INSERTED_ROW, count)
    assert missed == []


def _another(value: bool | int | str) -> bool | int | str:
    """Another value of a key."""
    if isinstance(value, bool):
        return not value
    return value + 1000 if isinstance(value, int) else value + "x"


def _contents(table: Table, row: Any) -> dict[str, Any]:
    """All of a row but its key and its end."""
    keys = {c.name for c in table.primary_key.columns} | {"valid_to"}
    return {name: value for name, value in row.items() if name not in keys}


def test_swapped_rows_are_found(filled_url, tried):
    """Two rows of one table that exchange all but their keys: verification fails."""
    missed, tables = [], set()
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in METADATA.sorted_tables:
            found = connection.execute(select(table)).mappings().all()
            connection.commit()
            differing = (
                (a, b) for a in found for b in found if _contents(table, a) != _contents(table, b)
            )
            for a, b in itertools.islice(differing, 1):
                tables.add(table.name)
                for row in (a, b):
                    connection.execute(delete(table).where(where(table, row)))
                swapped = [{**a, **_contents(table, b)}, {**b, **_contents(table, a)}]
                connection.execute(insert(table), swapped)
                connection.commit()
                if store.ledger.verify().ok:
                    missed.append(table.name)
                for row in (a, b):
                    connection.execute(delete(table).where(where(table, row)))
                connection.execute(insert(table), [dict(a), dict(b)])
                connection.commit()
        assert store.ledger.verify().findings == ()
    tried(Kind.SWAPPED_ROWS, len(tables))
    assert missed == []
    assert {"pods", "decisions", "candidates", "victims", "nominations", "ledger"} <= tables


def test_the_first_harm_is_named(filled_url):
    """A changed victim names the decision and the entry that recorded it."""
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("UPDATE victims SET priority = 0 WHERE decision_id = 3"))
        connection.execute(text("UPDATE victims SET priority = 0 WHERE decision_id = 1"))
        connection.commit()
        first = store.ledger.verify().findings[0]
    assert (first.cluster, first.harm, first.decision_id, first.sequence) == (
        "default",
        TamperKind.CHANGED,
        1,
        5,
    )


def take_out(connection: Connection, decision_id: int) -> None:
    """A decision with all its rows, and its entry."""
    connection.execute(text("DELETE FROM ledger WHERE decision_id = :id"), {"id": decision_id})
    for table in reversed(DECISION_TABLES):
        column = "id" if table in ("cycles", "decisions") else "decision_id"
        connection.execute(text(f"DELETE FROM {table} WHERE {column} = :id"), {"id": decision_id})
    connection.commit()


def test_a_removed_decision_is_named(filled_url, tried):
    """A decision taken out with all its rows and its entry leaves a gap that tells its number."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        take_out(connection, 2)
        found = store.ledger.verify().findings
    assert [(f.harm, f.sequence, f.decision_id) for f in found] == [(TamperKind.REMOVED, 6, 2)]


def test_a_removed_entry_of_something_else_names_no_decision(filled_url, tried):
    """Where entries lack that were about no decision, none is blamed."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("DELETE FROM ledger WHERE session_id IS NOT NULL"))
        connection.execute(text("DELETE FROM ledger WHERE cluster_id = 1 AND sequence = 8"))
        connection.commit()
        first = store.ledger.verify().findings[0]
    assert (first.harm, first.sequence, first.decision_id) == (TamperKind.REMOVED, 8, None)


def test_decisions_that_exchange_their_numbers_are_found(filled_url, tried):
    """Two whole decisions, entries and all, under each other's number."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for old, new in ((1, 99), (2, 1), (99, 2)):
            for table in (*DECISION_TABLES, "ledger"):
                column = "id" if table in ("cycles", "decisions") else "decision_id"
                connection.execute(
                    text(f"UPDATE {table} SET {column} = :new WHERE {column} = :old"),
                    {"new": new, "old": old},
                )
        connection.commit()
        first = store.ledger.verify().findings[0]
    assert (first.harm, first.sequence) == (TamperKind.CHANGED, 5)


@pytest.mark.parametrize("with_entry", [False, True])
def test_a_decision_that_moves_to_another_cluster_is_found(filled_url, with_entry, tried):
    """In the cluster that it left, with its ledger entry or without."""
    tried(Kind.FORGED_LEDGER)
    moved = ("decisions", "cycles", "ledger") if with_entry else ("decisions", "cycles")
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for table in moved:
            column = "decision_id" if table == "ledger" else "id"
            connection.execute(text(f"UPDATE {table} SET cluster_id = 2 WHERE {column} = 2"))
        connection.commit()
        first = store.ledger.verify("default").findings[0]
    assert (first.cluster, first.sequence) == ("default", 6)


def test_a_cluster_of_copied_entries_is_found(filled_url, tried):
    """An entry is one of its own cluster: under another name its hash is wrong."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(insert(CLUSTERS), {"id": 3, "name": "copy"})
        for entry in connection.execute(select(LEDGER).where(LEDGER.c.cluster_id == 2)).mappings():
            copied = {**entry, "cluster_id": 3, "hash": entry["hash"] + "x"}
            connection.execute(insert(LEDGER), copied)
        connection.commit()
        found = store.ledger.verify("copy").findings
    assert TamperKind.CHANGED in {f.harm for f in found}


def test_reordered_entries_are_found(filled_url, tried):
    """Two entries that change places no longer follow one another."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for old, new in ((5, 99), (6, 5), (99, 6)):
            connection.execute(
                text("UPDATE ledger SET sequence = :new WHERE cluster_id = 1 AND sequence = :old"),
                {"new": new, "old": old},
            )
        connection.commit()
        first = store.ledger.verify().findings[0]
    assert (first.harm, first.sequence) == (TamperKind.REORDERED, 5)


def test_a_kept_head_shows_that_the_end_was_cut_off(filled_url, tried):
    """Whoever kept the head elsewhere misses it where the newest entries were removed."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        decision = made_on(store, a_decision())
        store.record.decision(
            "default", decision, [], expected_revision=6, actor="x", at_ms=NOW, rules=BY_HAND
        )
        head = store.ledger.head("default").hash
        assert store.ledger.verify(kept=[head]).ok
        take_out(connection, store.read.decisions("default", limit=1)[0].id)
        assert not store.ledger.verify().ok  # the totals still count it
        store.ledger.recount()
        assert store.ledger.verify().ok
        for found in (store.ledger.verify(kept=[head]), store.ledger.verify(from_hash=head)):
            assert [f.harm for f in found.findings] == [TamperKind.REMOVED]


def rewritten(connection: Connection, *, last: str | None) -> None:
    """Another actor in entry 5, and a new chain from there; the last entry says the hash `last`."""
    c = LEDGER.c
    later = (c.cluster_id == 1) & (c.sequence >= 5)
    entries = connection.execute(select(LEDGER).where(later).order_by(c.sequence)).mappings().all()
    connection.execute(delete(LEDGER).where(later))
    previous = entries[0]["previous"]
    for entry in entries:
        new = {**entry, "previous": previous}
        new["actor"] = "eve" if entry["sequence"] == 5 else entry["actor"]
        new["hash"] = previous = hash_of(1, "default", new)
        if entry is entries[-1] and last is not None:
            new["hash"] = last
        connection.execute(insert(LEDGER), new)
    connection.commit()


def test_only_a_kept_head_shows_a_new_chain(filled_url, tried):
    """Who can write everything can write everything anew, but not with the same hash."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        head = store.ledger.head("default").hash
        rewritten(connection, last=None)
        assert store.ledger.verify().ok
        found = store.ledger.verify(kept=[head]).findings
    assert [f.harm for f in found] == [TamperKind.REMOVED]


def test_a_hash_that_is_written_over_does_not_pass_for_the_kept_head(filled_url, tried):
    """A new chain whose last entry says the old hash: it is not the hash of that entry."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        head = store.ledger.head("default").hash
        rewritten(connection, last=head)
        for found in (store.ledger.verify(kept=[head]), store.ledger.verify(from_hash=head)):
            assert [(f.harm, f.sequence) for f in found.findings] == [(TamperKind.CHANGED, 10)]


def test_verification_from_a_hash_checks_what_follows(filled_url):
    """The entry with the hash and those after it; what was written before is not read."""
    with Store.open(filled_url) as store:
        signed = store.ledger.head("default")
        store.record.change(
            "default", [("Pod", "a/b", a_pod("a/b"))], at_ms=NOW, source="w", cause="live"
        )
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("UPDATE victims SET priority = 77 WHERE decision_id = 1"))
        connection.commit()
        result = store.ledger.verify("default", from_hash=signed.hash)
        assert (result.ok, result.entries) == (True, 2)
        assert not store.ledger.verify("default", kept=[signed.hash]).ok


def test_what_is_found_in_other_clusters_hides_nothing(filled_url):
    """However much is wrong elsewhere: the cluster that is asked for is read to the end."""
    revision = {"at_ms": NOW, "source": "", "cause": "live", "put_count": 0, "deleted_count": 0}
    texts = {"previous": "", "digest": "x"}
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        for cluster, number in [(1, 900), *((2, n) for n in range(700, 850))]:
            made = {"cluster_id": cluster, "number": number, **revision, **texts}
            connection.execute(insert(REVISIONS), made)
        connection.commit()
        found = store.ledger.verify("default").findings
    assert [(f.cluster, f.harm, f.revision) for f in found] == [
        ("default", TamperKind.INSERTED, 900)
    ]


def test_a_head_proves_nothing_about_another_cluster(filled_url):
    """It is searched in the ledgers that are read: not in those of other clusters."""
    with Store.open(filled_url) as store:
        other = store.ledger.head("old").hash
        default = store.ledger.head("default").hash
        for how in ({"cluster": "default"}, {"from_hash": default}):
            (found,) = store.ledger.verify(**how, kept=[default, other]).findings
            assert (found.harm, found.detail) == (
                TamperKind.REMOVED,
                f"no ledger that was read has the hash {other}: it is of entry 3 of cluster old",
            )
        assert not store.ledger.verify("default", from_hash=other).ok
        assert store.ledger.verify(kept=[default, other]).ok


def test_only_its_head_shows_that_a_cluster_is_gone(filled_url, tried):
    """With its ledger and all of its rows: what stays fits together."""
    tried(Kind.FORGED_LEDGER)
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        head = store.ledger.head("old").hash
        for table in METADATA.sorted_tables:
            own = "id" if table is CLUSTERS else "cluster_id"
            if own in table.c:
                connection.execute(delete(table).where(table.c[own] == 2))
        connection.commit()
        assert store.ledger.verify().ok
        assert [f.harm for f in store.ledger.verify(kept=[head]).findings] == [TamperKind.REMOVED]


@pytest.mark.parametrize(("limit", "shown"), [(100, 100), (3, 3), (1000, 151)])
def test_findings_beyond_the_limit_are_counted(filled_url, limit, shown):
    """However many there are: so many are given, and the others are not kept silent about."""
    revision = {"at_ms": NOW, "source": "", "cause": "live", "put_count": 0, "deleted_count": 0}
    texts = {"previous": "", "digest": "x"}
    with Store.open(filled_url) as store, tampering(filled_url) as connection:
        connection.execute(text("UPDATE ledger SET actor = 'eve' WHERE sequence = 1"))
        for number in range(700, 850):
            made = {"cluster_id": 1, "number": number, **revision, **texts}
            connection.execute(insert(REVISIONS), made)
        connection.commit()
        result = store.ledger.verify(limit=limit)
    assert (len(result.findings), result.more) == (shown, 151 - shown)


def test_an_unknown_cluster_is_no_untouched_one(filled_url):
    """A mistyped name verifies nothing, and says so."""
    with (
        Store.open(filled_url) as store,
        pytest.raises(NotFound, match="there is no cluster `defualt`"),
    ):
        store.ledger.verify("defualt")
