"""SQL of the user's own: it reads, and only reads."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from policy.store import Store, StoreError
from policy.store.connection import parse_url
from policy.store.read.stoppable import OutOfTime, Stoppable
from policy.store.readers import create_reader, drop_reader
from tests.contract.filled import fill
from tests.support.tried import Kind


@pytest.fixture
def owner(database_url):
    """The store, open as the role that owns it."""
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


@pytest.fixture
def store(owner, database_url):
    """The same for reading: on Postgres as a role that can do nothing else."""
    if parse_url(database_url).get_backend_name() == "sqlite":
        with Store.open(database_url, read_only=True) as opened:
            yield opened
        return
    reader = create_reader(database_url, f"reader_{uuid.uuid4().hex[:12]}")
    try:
        with Store.open(reader.url, read_only=True) as opened:
            yield opened
    finally:
        drop_reader(database_url, reader.name)


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


HOSTILE = [
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
    "SAVEPOINT mine",
    "COMMIT",
    "BEGIN IMMEDIATE",
    "EXPLAIN DELETE FROM ledger RETURNING (SELECT 1/0)",
    "DETACH DATABASE main",
    "UPDATE sqlite_master SET sql = ''",
    "INSERT INTO sqlite_master SELECT * FROM sqlite_master",
    "SELECT fts3_tokenizer('simple')",
    "SELECT readfile('/etc/passwd')",
    "WITH s AS MATERIALIZED (SELECT set_config('role', 'postgres', true) AS r) SELECT * FROM"
    " s, ts_stat('SELECT to_tsvector(pg_read_file(''/etc/passwd''))') WHERE s.r IS NOT NULL",
    "SELECT \"set_config\"('role', 'postgres', true)",
    "SELECT U&\"set\\005fconfig\"('role', 'postgres', true)",
    "SELECT pg_catalog . set_config /* x */ ('session_authorization', 'postgres', true)",
    "SELECT set_config -- (\n ('role', 'postgres', true)",
    "SELECT 'a''b', E'\\'', pg_notify('x', 'y') --'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_get(1)",
    "SELECT pg_switch_wal()",
    "SELECT pg_reload_conf()",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT pg_notify('channel', 'words')",
    "SELECT pg_logical_emit_message(false, 'a', 'b')",
    "SELECT set_config('statement_timeout', '0', true), pg_sleep(1)",
    "SELECT setval('cycles_id_seq', 1)",
    "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS t(a int)",
    "SELECT query_to_xml('SELECT pg_notify(''a'', ''b'')', true, true, '')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery')",
    "SELECT pg_export_snapshot()",
    "SELECT rolpassword FROM pg_authid",
    "SELECT * INTO mine FROM pods",
    "SELECT * FROM pods FOR KEY SHARE",
    "COPY pods FROM PROGRAM 'cat'",
    "CALL mine()",
    "LISTEN x",
    "NOTIFY x",
    "LOCK TABLE pods",
    "PREPARE q AS DELETE FROM ledger",
    "DECLARE c CURSOR FOR SELECT 1",
    "GRANT SELECT ON pods TO PUBLIC",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "LOAD 'auto_explain'",
    "CHECKPOINT",
    "EXPLAIN ANALYZE CREATE TABLE mine AS SELECT 1",
    "EXPLAIN ANALYZE SELECT pg_notify('a', 'b')",
    "SHOW ALL; DELETE FROM ledger",
    "WITH a AS (INSERT INTO clusters (name) VALUES ('x') RETURNING 1) SELECT 1",
    "MERGE INTO clusters c USING pods p ON false WHEN NOT MATCHED THEN DO NOTHING",
]


def test_nothing_but_reading_gets_through(owner, store, target, tried):
    """Whatever is tried is refused, the record is as before and no file appears."""
    tried(Kind.HOSTILE_SQL, len(HOSTILE))
    accepted = []
    for statement in HOSTILE:
        try:
            with store.sql(statement.replace("{folder}", str(target)), timeout=20) as found:
                accepted.append((statement, list(found)))
        except StoreError:
            continue
    assert accepted == []
    assert owner.ledger.verify().ok
    assert list(target.iterdir()) == []


def test_words_that_look_like_calls_get_through(store):
    """A function's name without a call, and a function that only answers, are no reason."""
    for query in (
        "SELECT count(*) FROM (SELECT random()) AS r",
        "SELECT 'call nextval, or not' AS words",
        "SELECT key FROM v_cluster_at WHERE key LIKE '%system%' -- set_config\n",
    ):
        rows(store, query)


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


def test_numbers_are_the_same_on_both_databases(store):
    """Also of Postgres' `numeric`, which sums, means and literals are there."""
    (found,) = rows(
        store,
        "SELECT sum(n) AS sum, avg(n) AS mean, 1.5 AS literal, 2.0 AS whole, -sum(n) AS below,"
        " 9223372036854775807 AS most, 12345678901234567890 AS beyond"
        " FROM (SELECT valid_from AS n FROM nodes WHERE valid_from = 1) AS one",
    )
    count = rows(store, "SELECT count(*) AS n FROM nodes WHERE valid_from = 1")[0]["n"]
    expected = {
        "sum": count,
        "mean": 1.0,
        "literal": 1.5,
        "whole": 2.0,
        "below": -count,
        "most": 2**63 - 1,
        "beyond": 12345678901234567890.0,
    }
    assert [(k, type(v), v) for k, v in found.items()] == [
        (k, type(v), v) for k, v in expected.items()
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
    """`v_preemptions` has the decisions that evicted, with the time as text.

    Decision 2 judged a scheduler's call that was answered otherwise.
    """
    found = rows(store, "SELECT * FROM v_preemptions ORDER BY decision_id")
    assert [
        (r["decision_id"], r["cluster"], r["decided_at"], r["preemptor"], r["node"], r["actor"])
        for r in found
    ] == [(i, "default", "2026-09-21T14:13:20.000Z", "team/urgent", "n1", "bob") for i in (1, 3)]
    assert [(r["rule_set"], r["environment"]) for r in found] == [("by-hand", "prod-default")] * 2


def test_calls_of_schedulers(store):
    """`v_extender_calls` has what was decided for a call, and whether that was the answer."""
    (call,) = rows(store, "SELECT * FROM v_extender_calls")
    assert (call["decision_id"], call["preemptor"], call["outcome"], call["node"]) == (
        2,
        "team/urgent",
        "preempt",
        "n1",
    )
    assert (call["carried_out"], call["cluster"], call["rule_set"]) == (
        False,
        "default",
        "by-hand",
    )


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
        ("team", "shop", 2, 7200, "2026-09-21T14:13:20.000Z"),
    ]


def test_counts_by_hour_criterion_and_rule(store):
    """The aggregated views count decisions, not rows."""
    hourly = rows(store, "SELECT hour_at, preemptions, victims FROM v_preemptions_hourly")
    assert hourly == [{"hour_at": "2026-09-21T14:00:00.000Z", "preemptions": 2, "victims": 3}]
    ties = rows(store, "SELECT rule_set, criterion, decisions FROM v_tie_breakers")
    assert ties == [{"rule_set": "by-hand", "criterion": "fewest-pdb-violations", "decisions": 2}]
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


ENDLESS = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n",
    "postgresql": "SELECT {} FROM generate_series(1, 1000000000000) AS n (i)",
}


@pytest.mark.parametrize("what", ["count(*)", "i"])
def test_a_query_is_stopped_in_time(store, database_url, what):
    """Before its first row and between two of them; the time may be set."""
    query = ENDLESS[parse_url(database_url).get_backend_name()].format(what)
    with (
        pytest.raises(StoreError, match="the query was stopped after 1 seconds") as caught,
        store.sql(query, timeout=1) as found,
    ):
        list(found)
    assert caught.value.help == "ask for less"


def test_a_query_is_stopped_between_two_pieces(store, monkeypatch):
    """The time may end in the instant in which a piece of the rows has just come."""
    pieces = []

    def call(self, function):
        pieces.append(function())
        if len(pieces) < 3:  # the query itself, and the first of its rows
            return pieces[-1]
        self._cancel()
        raise OutOfTime

    monkeypatch.setattr(Stoppable, "call", call)
    query = ENDLESS["sqlite"].format("i")
    with (
        pytest.raises(StoreError, match="the query was stopped after 1 seconds"),
        store.sql(query, timeout=1) as found,
    ):
        list(found)
    assert len(pieces) == 3


def test_only_the_work_of_the_database_takes_time(store):
    """Whoever reads slowly, page by page, is not cut off."""
    with store.sql("SELECT key FROM pods", timeout=1) as found:
        rest = iter(found)
        first = [next(rest)]
        time.sleep(1.2)
        assert len(first + list(rest)) > 1


def test_a_step_that_cannot_be_cancelled_is_left_behind(tmp_path):
    """SQLite does not look up in the middle of one comparison; the caller goes on all the same."""
    query = "SELECT instr(zeroblob(20000000), CAST(zeroblob(10000000) || x'01' AS BLOB))"
    script = (
        "from policy.store import Store, StoreError\n"
        "with Store.open('policy.db') as store:\n"
        "    try:\n"
        f"        store.sql({query!r}, timeout=1)\n"
        "    except StoreError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "the query was stopped after 1 seconds\n",
        "",
    )


def test_json_tables_can_be_queried(store, database_url):
    """Table-valued functions are reading, too."""
    function = "json_each" if "sqlite" in database_url else "json_array_elements_text"
    assert rows(store, f"SELECT value FROM {function}('[7]')") in ([{"value": 7}], [{"value": "7"}])
