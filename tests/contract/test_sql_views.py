"""SQL of whoever may read our views and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.store import Store, StoreError
from policy.store.migrate import VIEWS
from policy.store.tables import METADATA
from tests.contract.filled import fill


@pytest.fixture(scope="module")
def store(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("views") / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    with Store.open(str(path)) as opened:
        fill(opened)
    with Store.open(str(path), read_only=True) as opened:
        yield opened


def rows(store: Store, query: str, **given: object) -> list[tuple[object, ...]]:
    with store.sql(query, given, views_only=True) as found:
        return list(found)


def refused(store: Store, query: str) -> str:
    with pytest.raises(StoreError) as caught:
        rows(store, query)
    return caught.value.message


def test_every_view_is_read(store: Store) -> None:
    """With what it has, also where a parameter and a CTE of the name of a table stand beside."""
    for view in VIEWS:
        with store.sql(f"SELECT * FROM {view}") as found:
            assert rows(store, f"SELECT * FROM {view}") == list(found)
    query = "WITH pods AS (SELECT :a AS a) SELECT a, count(*) > 0 FROM pods, v_victims"
    assert rows(store, query, a=1) == [(1, 1)]
    assert rows(store, "SELECT value FROM json_each('[1, 2]')") == [(1,), (2,)]
    # Of some subqueries no column is read.
    query = "WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT count(*) FROM n"
    assert rows(store, query) == [(3,)]
    query = "SELECT count(*) FROM (SELECT victim FROM v_victims LIMIT 1)"
    assert rows(store, query) == [(1,)]


def test_no_table_is_read(store: Store) -> None:
    """The error names the table, and its help what may be read."""
    for table in METADATA.tables:
        message = f"`{table}` is a table, not a view that may be read"
        assert refused(store, f"SELECT * FROM {table}") == message
    with pytest.raises(StoreError) as caught:
        rows(store, "SELECT 1 FROM victims")
    assert [view for view in VIEWS if f"`{view}`" not in caught.value.help] == []


@pytest.mark.parametrize(
    "query",
    [
        "WITH v_victims AS (SELECT * FROM pods) SELECT * FROM v_victims",
        "SELECT * FROM (SELECT * FROM pods) AS v_victims",
        "SELECT * FROM main.pods",
        'SELECT * FROM "PODS"',
        "SELECT * FROM v_victims WHERE victim IN pods",
        "SELECT (SELECT count(*) FROM pods) FROM v_victims",
        "SELECT * FROM v_victims UNION ALL SELECT * FROM pods",
        "EXPLAIN SELECT * FROM pods",
        "SELECT/**/count(*)FROM[pods]",
        "SELECT * FROM v_victims, pods AS v_preemptions",
    ],
)
def test_no_cover_helps(store: Store, query: str) -> None:
    """Under the name of a view, inside of something, quoted: a table is a table."""
    assert refused(store, query).lower() == "`pods` is a table, not a view that may be read"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM dbstat",
        "SELECT count(*) FROM dbstat",
        "SELECT count(*) FROM sqlite_schema",
        "SELECT count(*) FROM pragma_table_list",
        "SELECT * FROM sqlite_dbpage",
        "SELECT * FROM sqlite_stat1",
        "ATTACH 'x.db' AS y",
        "VACUUM INTO 'x.db'",
        "PRAGMA query_only = OFF",
        "CREATE TEMP VIEW v_victims AS SELECT * FROM pods",
        "DELETE FROM victims",
        "SELECT 1; SELECT * FROM pods",
        "SELECT nothing FROM v_victims",
    ],
)
def test_nothing_else_is_done(
    store: Store, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of the file, other files, changes, a second statement: refused, with no trace."""
    monkeypatch.chdir(tmp_path)
    assert refused(store, query)
    assert list(tmp_path.iterdir()) == []


def test_the_tables_are_there_all_the_same(store: Store) -> None:
    """What is refused to some is read by whoever may read all."""
    with store.sql("SELECT count(*) > 0 FROM pods") as found:
        assert list(found) == [(1,)]
