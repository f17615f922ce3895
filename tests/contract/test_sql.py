"""SQL of the user's own: it reads, and only reads."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from policy.store import Store, StoreError
from tests.contract.builders import NOW
from tests.contract.filled import fill


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


@pytest.fixture
def target():
    """A folder in which a server that runs as somebody else could write too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def rows(store, query, **parameters):
    with store.sql(query, parameters) as found:
        return [dict(zip(found.columns, row, strict=True)) for row in found]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pods",
        "UPDATE pods SET priority = 1",
        "INSERT INTO clusters (name) VALUES ('x')",
        "CREATE TABLE mine (a INTEGER)",
        "CREATE TEMP TABLE mine AS SELECT 1 AS a",
        "DROP VIEW v_preemptions",
        "SELECT 1; DELETE FROM ledger",
        "COMMIT; DELETE FROM ledger",
        "ROLLBACK; DELETE FROM ledger",
        "PRAGMA query_only = OFF",
        "SET TRANSACTION READ WRITE",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "ATTACH DATABASE '{folder}/other.db' AS other",
        "VACUUM INTO '{folder}/other.db'",
        "WITH gone AS (DELETE FROM ledger RETURNING *) SELECT * FROM gone",
        "COPY pods TO '{folder}/pods.txt'",
        "COPY (SELECT 1) TO PROGRAM 'cat > {folder}/pods.txt'",
        "RESET ROLE",
        "DO $$ BEGIN RESET ROLE; COPY pods TO PROGRAM 'cat > {folder}/pods.txt'; END $$",
        "/* /* */ explain */ DO $$ BEGIN RESET ROLE; DELETE FROM ledger; END $$",
        "DO $$ BEGIN DELETE FROM ledger; END $$",
        "SELECT query_to_xml('DELETE FROM ledger', true, true, '')",
        "SELECT set_config('role', 'postgres', true), lo_export(1, '{folder}/pods.txt')",
        "SELECT lo_create(0)",
        "SELECT nextval('cycles_id_seq')",
        "SELECT * FROM ledger FOR UPDATE",
        "EXPLAIN ANALYZE DELETE FROM ledger",
        "TRUNCATE ledger",
        "ANALYZE",
        "PRAGMA writable_schema = 1",
        "PRAGMA user_version = 7",
        "SELECT * FROM pragma_journal_mode('delete')",
        "SELECT writefile('{folder}/pods.txt', 'x')",
        "SELECT load_extension('{folder}/x')",
        "REINDEX",
        "CREATE TEMP VIEW pods AS SELECT 1 AS a",
    ],
)
def test_nothing_but_reading_gets_through(store, statement, target):
    """Whatever is tried, the record is as before and no file appears."""
    query = statement.format(folder=target)
    with pytest.raises(StoreError), store.sql(query) as found:
        list(found)
    assert store.verify_ledger().ok
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("query", ["EXPLAIN SELECT 1", "WITH a AS (SELECT 1) SELECT * FROM a"])
def test_what_reads_gets_through(store, query):
    """Plans and common table expressions, with a semicolon behind them or not."""
    assert rows(store, query) == rows(store, query + " ;")


def test_parameters_are_bound(store):
    """`:name` is a parameter where it is given one, and text where it stands in a text."""
    found = rows(
        store,
        "SELECT key, ':node' AS words, '12:30' AS clock FROM pods"
        " WHERE node = :node AND key LIKE '%web%' AND valid_to IS NOT NULL ORDER BY key",
        node="n1",
        unused=1,
    )
    assert found == [
        {"key": "shop/web-1", "words": ":node", "clock": "12:30"},
        {"key": "shop/web-2", "words": ":node", "clock": "12:30"},
    ]


def test_a_wrong_query_is_explained(store):
    """The database's own words, and help where a parameter lacks."""
    with (
        pytest.raises(StoreError, match="the query is not valid") as caught,
        store.sql("SELECT nonsense FROM pods"),
    ):
        pass
    assert "nonsense" in caught.value.message
    query = "SELECT * FROM pods -- not :this\n WHERE key = :key"
    with pytest.raises(StoreError, match="the query has no value for `key`"), store.sql(query):
        pass
    with pytest.raises(StoreError, match="the query is empty"), store.sql(" ; "):
        pass


def test_json_columns_open_with_sql(store):
    """Manifests are JSON for both databases."""
    query = (
        "SELECT manifest -> 'metadata' ->> 'uid' AS uid FROM pods"
        " WHERE key = 'team/urgent' AND valid_to IS NULL"
    )
    assert rows(store, query) == [{"uid": "uid-urgent"}]


def test_preemptions(store):
    """`v_preemptions` has the decisions that evicted, with the time as text."""
    found = rows(store, "SELECT * FROM v_preemptions ORDER BY decision_id")
    assert [
        (r["decision_id"], r["cluster"], r["decided_at"], r["preemptor"], r["node"], r["actor"])
        for r in found
    ] == [(i, "default", "2026-09-21T14:13:20.000Z", "team/urgent", "n1", "bob") for i in (1, 2, 3)]
    assert [(r["rule_set"], r["environment"]) for r in found] == [("by-hand", "prod-default")] * 3


def test_victims_and_budgets(store):
    """`v_victims` has a row per victim, `v_pdb_violations` those that a budget should protect."""
    victims = rows(store, "SELECT * FROM v_victims WHERE decision_id = 1 ORDER BY position")
    assert [(v["victim"], v["victim_owner"], v["run_seconds"]) for v in victims] == [
        ("shop/web-2", "ReplicaSet/web", 3600),
        ("shop/web-1", "ReplicaSet/web", 3600),
    ]
    broken = rows(store, "SELECT DISTINCT victim, preemptor FROM v_pdb_violations")
    assert broken == [{"victim": "shop/web-1", "preemptor": "team/urgent"}]


def test_who_preempts_whom(store):
    """Evictions by namespace of the preemptor and of the victim."""
    query = (
        "SELECT preemptor_namespace, victim_namespace, evictions, run_seconds_lost, last_at"
        " FROM v_who_preempts_whom ORDER BY victim_namespace"
    )
    assert [tuple(r.values()) for r in rows(store, query)] == [
        ("team", "jobs", 1, 3600, "2026-09-21T14:13:20.000Z"),
        ("team", "shop", 4, 14400, "2026-09-21T14:13:20.000Z"),
    ]


def test_counts_by_hour_criterion_and_rule(store):
    """The aggregated views count decisions, not rows."""
    hourly = rows(store, "SELECT hour_at, preemptions, victims FROM v_preemptions_hourly")
    assert hourly == [{"hour_at": "2026-09-21T14:00:00.000Z", "preemptions": 3, "victims": 5}]
    ties = rows(store, "SELECT rule_set, criterion, decisions FROM v_tie_breakers")
    assert ties == [{"rule_set": "by-hand", "criterion": "fewest-pdb-violations", "decisions": 3}]
    usage = rows(store, "SELECT section, rule, verdict, fired FROM v_rule_usage")
    assert usage == [
        {"section": "eligibility", "rule": "otherwise", "verdict": "allow", "fired": 3}
    ]


def test_the_cluster_at_a_revision(store):
    """`v_cluster_at` shows the objects that were there at each revision."""
    query = (
        "SELECT key FROM v_cluster_at WHERE cluster = 'default' AND kind = 'Pod'"
        " AND revision = :number ORDER BY key"
    )
    found = {n: [r["key"] for r in rows(store, query, number=n)] for n in (1, 2, 6)}
    assert found == {
        1: ["jobs/batch", "lab/waiting", "shop/web-1", "shop/web-2", "team/urgent"],
        2: ["jobs/batch", "lab/waiting", "team/urgent"],
        6: ["jobs/a", "lab/next", "lab/waiting", "team/urgent"],
    }


def test_nominations(store):
    """`v_nominations` shows how each nomination ended."""
    query = "SELECT pod, node, made_decision, ended_by, ended_decision FROM v_nominations"
    assert sorted(tuple(r.values()) for r in rows(store, query)) == [
        ("lab/next", "n2", None, None, None),
        ("lab/waiting", "n1", None, "taken-away", 1),
        ("team/urgent", "n1", 1, "bound-elsewhere", 3),
    ]


def test_a_long_result_comes_in_pieces(store):
    """Rows are fetched as they are asked for: an endless query gives its first rows at once."""
    query = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000)"
        " SELECT i FROM n"
    )
    with store.sql(query) as found:
        first = [row for row, _ in zip(found, range(3), strict=False)]
    assert first == [(1,), (2,), (3,)]
    assert NOW
