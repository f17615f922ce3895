"""Partitions by month on Postgres: rows move, and everything about them stays as it was."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
import yaml
from sqlalchemy import text

from policy.cli.app import run
from policy.store import Store, StoreError, check, current, downgrade, upgrade
from policy.store.partitions import KEYS, Partition, complete_months, of_decisions
from policy.store.readers import create_reader
from tests.contract.builders import BY_HAND, a_cluster, a_decision, made_on
from tests.contract.filled import fill, fill_more

CRON_JOB = Path(__file__).parents[2] / "deploy" / "base" / "cronjob.yaml"
MONTHS = ("2026-01", "2026-02", "2026-04")


def at(month: str, day: int = 3) -> int:
    return int(datetime.fromisoformat(f"{month}-{day:02d}T12:00:00+00:00").timestamp()) * 1000


APRIL = at("2026-04", 20)


@pytest.fixture
def url(make_postgres, postgres_template) -> str:
    return make_postgres(postgres_template)


@pytest.fixture
def old_url(make_postgres) -> str:
    """A database of the schema before partitions."""
    made = make_postgres(None)
    upgrade(made)
    downgrade(made, "0002")
    return made


def decide(store: Store, at_ms: int, *, cluster: str = "default") -> int:
    """A decision that changes nothing, at a time."""
    count = len(store.read.decisions(hypothetical=None))
    made = made_on(store, a_decision(seed=100 + count, now_ms=at_ms), cluster)
    return store.record.decision(
        cluster,
        made,
        [],
        expected_revision=store.state.head_revision(cluster),
        rules=BY_HAND,
        actor="ann",
        at_ms=at_ms,
    ).decision_id


def months_of_decisions(url: str, counts: Sequence[int] = (3, 2, 1)) -> None:
    """Decisions of January, of February and of April, behind a dump of a cluster."""
    with Store.open(url) as store:
        store.record.import_objects(
            "default", a_cluster(), at_ms=at("2026-01", 1), source="dump.json", actor="ann"
        )
        for month, count in zip(MONTHS, counts, strict=True):
            for day in range(count):
                decide(store, at(month, 3 + day))


def contents(url: str) -> dict[str, list[tuple]]:
    """All rows of the partitioned tables, of the ledger, and of a view over them."""
    with psycopg.connect(url) as connection:
        return {
            table: connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall()
            for table in (*KEYS, "ledger", "v_victims")
        }


def partitions(url: str) -> list[Partition]:
    with Store.open(url) as store, store._database.reading() as connection:
        return of_decisions(connection)


@pytest.mark.parametrize("counts", [(3, 2, 1), (1, 2, 3)], ids=["kept", "copied"])
def test_months_that_are_over_get_partitions_of_their_own(url, counts):
    """Rows, ledger and views are what they were; the month of today stays open."""
    months_of_decisions(url, counts)
    before = contents(url)
    january, february = counts[0] + 1, counts[0] + counts[1] + 1
    done = list(complete_months(url, now_ms=APRIL))
    assert done == [
        Partition(name="2026_01", first_id=None, behind_id=january),
        Partition(name="2026_02", first_id=january, behind_id=february),
    ]
    assert partitions(url) == [*done, Partition(name="open", first_id=february, behind_id=None)]
    assert contents(url) == before
    assert check(url).problems == ()
    with Store.open(url) as store:
        assert store.ledger.verify().ok
        assert decide(store, APRIL) == 7
    assert list(complete_months(url, now_ms=APRIL)) == []
    # The month that was open, with nothing behind it.
    assert list(complete_months(url, now_ms=at("2026-05"))) == [
        Partition(name="2026_04", first_id=february, behind_id=8)
    ]
    with Store.open(url) as store:
        assert decide(store, at("2026-05")) == 8
        assert store.ledger.verify().ok
    assert check(url).problems == ()


def test_an_older_database_is_partitioned_by_its_upgrade(old_url):
    """Each month is one transaction; the newest one stays open; and all of it goes back."""
    with Store.open(upgraded(old_url)) as store:
        fill(store)
        fill_more(store)
    months_later(old_url)
    downgrade(old_url, "0002")
    before = contents(old_url)
    with psycopg.connect(old_url) as connection:
        kinds = "SELECT count(*) FROM pg_class WHERE relkind = 'p' OR relispartition"
        assert connection.execute(kinds).fetchone() == (0,)
    # Interrupted after the first month, it goes on with the second one.
    with pytest.raises(KeyboardInterrupt):
        upgrade(old_url, moved=interrupt)
    assert [one.name for one in partitions(old_url)] == ["2026_09", "open"]
    assert contents(old_url) == before
    made = complete_months(old_url, now_ms=at("2027-01"))
    assert [one.name for one in made] == ["2026_11"]
    assert [one.name for one in partitions(old_url)] == ["2026_09", "2026_11", "open"]
    assert contents(old_url) == before
    assert check(old_url).problems == ()
    with Store.open(old_url) as store:
        assert store.ledger.verify().ok
        later = decide(store, at("2027-01", 4))
        assert [row.id for row in store.read.decisions(limit=1)] == [later]
    downgrade(old_url, "0002")
    downgrade(old_url, "base")


def interrupt(_: Partition) -> None:
    raise KeyboardInterrupt


def upgraded(url: str) -> str:
    upgrade(url)
    return url


def months_later(url: str) -> None:
    with Store.open(url) as store:
        for month in ("2026-11", "2027-01"):
            decide(store, at(month))


def test_who_may_read_and_what_reads_stay(old_url):
    """Roles, their rights to write, and views of others, over an upgrade and months that close."""
    reader, writer = (f"role_{uuid.uuid4().hex[:12]}" for _ in range(2))
    upgrade(old_url)
    made = create_reader(old_url, reader)
    downgrade(old_url, "0002")
    with psycopg.connect(old_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {writer}")
        admin.execute(f"GRANT SELECT, INSERT ON decisions TO {writer}")
        admin.execute("CREATE VIEW of_others AS SELECT id, '50%' AS share FROM decisions")
        admin.execute(f"GRANT SELECT ON of_others TO {reader}")
    try:
        upgrade(old_url)
        months_of_decisions(old_url)
        list(complete_months(old_url, now_ms=APRIL))
        with psycopg.connect(made.url) as connection:
            for relation in ("victims", "v_victims", "of_others", "v_preemptions"):
                assert connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0] >= 6
        with psycopg.connect(old_url) as admin:
            query = "SELECT has_table_privilege(%s, 'decisions', 'INSERT')"
            assert admin.execute(query, (writer,)).fetchone() == (True,)
            query = "SELECT pg_get_viewdef('of_others'::regclass)"
            assert "FROM decisions;" in admin.execute(query).fetchone()[0]
    finally:
        with psycopg.connect(old_url, autocommit=True) as admin:
            for role in (reader, writer):
                admin.execute(f"DROP OWNED BY {role}")
                admin.execute(f"DROP ROLE {role}")


def test_a_materialized_view_keeps_the_upgrade_off(old_url):
    """It would go on reading what was put aside."""
    with psycopg.connect(old_url, autocommit=True) as admin:
        admin.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM decisions")
    with pytest.raises(StoreError, match="materialized view `kept` reads tables"):
        upgrade(old_url)


def test_a_question_about_some_days_reads_their_partitions(url):
    """By time in victims and decisions, by number in the others."""
    months_of_decisions(url)
    list(complete_months(url, now_ms=APRIL))
    first, behind = at("2026-02", 1), at("2026-02", 28)
    asked = {
        f"SELECT * FROM victims WHERE now_ms >= {first} AND now_ms < {behind}": "victims",
        f"SELECT * FROM decisions WHERE now_ms >= {first} AND now_ms < {behind}": "decisions",
        "SELECT * FROM candidates WHERE decision_id = 4": "candidates",
        f"SELECT * FROM v_victims WHERE now_ms >= {first} AND now_ms < {behind}": "victims",
    }
    with Store.open(url) as store, store._database.reading() as connection:
        for query, table in asked.items():
            plan = "\n".join(connection.execute(text(f"EXPLAIN {query}")).scalars())
            assert f"{table}_2026_02" in plan, query
            assert f"{table}_2026_01" not in plan, query


def test_a_foreign_key_holds_between_partitions(url):
    """No row of a decision without it, no decision or ledger entry of one that is gone."""
    months_of_decisions(url)
    list(complete_months(url, now_ms=APRIL))
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            "INSERT INTO decision_traces VALUES (99, '{}')",
            "DELETE FROM decisions WHERE id = 1",
            "DELETE FROM cycles WHERE id = 5",
            "UPDATE ledger SET decision_id = 98 WHERE decision_id = 2",
        ):
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                connection.execute(statement)


def test_pruning_drops_whole_partitions(url):
    """January and half of February go: one partition is dropped, rows of the other deleted."""
    months_of_decisions(url)
    list(complete_months(url, now_ms=APRIL))
    with Store.open(url) as store:
        plan = store.ledger.prune(at("2026-02", 4), actor="ann", at_ms=APRIL)
        assert [taken.decisions for taken in plan.clusters] == [4]
        assert [row.id for row in store.read.decisions()] == [6, 5]
        assert store.ledger.verify().ok
    assert [one.name for one in partitions(url)] == ["2026_02", "open"]
    assert check(url).problems == ()
    assert {table: count(url, table) for table in ("cycles", "victims")} == {
        "cycles": 2,
        "victims": 4,
    }


def test_pruning_deletes_rows_where_the_tables_are_in_use(url):
    """Whoever reads is not waited for: the partition stays, empty."""
    months_of_decisions(url)
    list(complete_months(url, now_ms=APRIL))
    with psycopg.connect(url) as reader, Store.open(url) as store:
        reader.execute("SELECT count(*) FROM victims")
        store.ledger.prune(at("2026-02", 1), actor="ann", at_ms=APRIL)
        assert [row.id for row in store.read.decisions()] == [6, 5, 4]
    assert [one.name for one in partitions(url)] == ["2026_01", "2026_02", "open"]
    with Store.open(url) as store:
        store.ledger.prune(at("2026-02", 4), actor="ann", at_ms=APRIL)
    assert [one.name for one in partitions(url)] == ["2026_02", "open"]


def test_pruning_one_cluster_keeps_what_others_have(url):
    """Partitions with decisions of another cluster stay."""
    months_of_decisions(url)
    with Store.open(url) as store:
        fill(store, "other")
    list(complete_months(url, now_ms=at("2027-01")))
    kept = partitions(url)
    with Store.open(url) as store:
        store.ledger.prune(at("2027-01"), cluster="other", actor="ann", at_ms=APRIL)
        assert {row.cluster for row in store.read.decisions()} == {"default"}
        assert store.ledger.verify().ok
    # Those of the other cluster were recorded later, in a month of their own.
    assert [one.name for one in kept] == ["2026_01", "2026_02", "2026_04", "2026_09", "open"]
    assert partitions(url) == [*kept[:3], kept[4]]


def test_months_close_beside_writers(url):
    """No decision fails, and none is lost."""
    months_of_decisions(url)
    made: list[int] = []
    failed: list[StoreError] = []
    stop = threading.Event()

    def write() -> None:
        try:
            with Store.open(url) as store:
                while not stop.is_set():
                    made.append(decide(store, at("2026-05") + len(made)))
        except StoreError as exc:
            failed.append(exc)

    writer = threading.Thread(target=write)
    writer.start()
    while len(made) < 3 and writer.is_alive():
        stop.wait(0.05)
    done = [one.name for one in complete_months(url, now_ms=at("2026-05"))]
    behind = len(made)
    while len(made) < behind + 3 and writer.is_alive():
        stop.wait(0.05)
    stop.set()
    writer.join()
    assert (failed, done) == ([], ["2026_01", "2026_02", "2026_04"])
    with Store.open(url) as store:
        assert [row.id for row in store.read.decisions()] == [*reversed(made), 6, 5, 4, 3, 2, 1]
        assert store.ledger.verify().ok
    assert check(url).problems == ()


def test_check_names_partitions_that_do_not_fit(url):
    """One that is missing, and one that was cut loose from its decisions."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE decision_rules_open")
        connection.execute("ALTER TABLE victims_open DROP CONSTRAINT fk_victims_decision_id_open")
    assert check(url).problems == (
        "table decision_rules has no partition decision_rules_open like that of decisions",
        "table victims_open has no foreign key to decisions_open",
    )


def test_the_command(url, capsys):
    """It says what it made; where there is nothing to do; and that a file has no partitions."""
    months_of_decisions(url)
    assert run(["db", "partition", "--db", url, "--output", "csv"]) == 0
    printed = capsys.readouterr()
    past = [line for line in printed.out.splitlines() if line.startswith("2026_0")]
    assert past[:2] == ["2026_01,,3", "2026_02,4,5"]
    assert run(["db", "partition", "--db", url]) == 0
    assert "every month that is over has a partition" in capsys.readouterr().err


def test_the_command_for_an_older_database(old_url, capsys):
    """It names each month that got a partition."""
    months_of_decisions(upgraded(old_url))
    downgrade(old_url, "0002")
    assert run(["db", "upgrade", "--db", old_url]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "partition 2026_01",
        "partition 2026_02",
        f"schema {current(old_url).newest}",
    ]
    assert check(old_url).problems == ()


def test_the_cron_job(url, capsys, monkeypatch):
    """What it starts every month, with the variables that it gives."""
    job = yaml.safe_load(CRON_JOB.read_text())["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    (variable,) = container["env"]
    months_of_decisions(url)
    monkeypatch.setenv(variable["name"], url)
    assert run(container["args"]) == 0
    assert "2026_01" in capsys.readouterr().out


def test_a_file_has_no_partitions(tmp_path: Path, capsys):
    """SQLite: said, with a hint."""
    file = tmp_path / "policy.db"
    upgrade(str(file))
    assert run(["db", "partition", "--db", str(file)]) == 1
    assert "is a file, which has no partitions" in capsys.readouterr().err


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
