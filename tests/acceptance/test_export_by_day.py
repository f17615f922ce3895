"""`policy export --by-day`: one folder a table, one file a day, read by others as one table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet
import pytest

from policy.cli.app import run
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.read.tables import has_days, tables
from tests.contract.filled import fill
from tests.support.builders import NOW_MS, a_node, a_pod, objects, rule_set
from tests.support.groups import a_group, of_group

DAY_MS = 86_400_000
PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def two_days(database_url):
    """Every table has rows; pods were preempted on two days, two days apart."""
    with Store.open(database_url) as store:
        fill(store)
        for number, at_ms in enumerate((NOW_MS, NOW_MS + 2 * DAY_MS)):
            cluster = objects(
                a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
                a_pod("urgent").priority(9).cpu(4),
                of_group(a_pod("train-0").priority(5).cpu(1), "train"),
            )
            cluster = (*cluster, a_group("train", priority=100, least=1))
            name = f"c{number}"
            store.record.import_objects(name, cluster, at_ms=at_ms, source="dump.json")
            journal = StoreJournal(store, name, actor="ann", clock=lambda at=at_ms: at)
            rules = rule_set("kube-1.36")
            list(Scheduler(journal, rules, clock=lambda at=at_ms: at, seed=0).run())
            groups = rule_set("kube-1.36-groups")
            Scheduler(journal, groups, clock=lambda at=at_ms: at, seed=0).decide_group(
                "default/train"
            )
    return database_url


def export(url: str, folder: Path, *options: str) -> int:
    return run(["export", "--db", url, "-o", str(folder), "--format", "parquet", *options])


def test_every_row_is_in_the_file_of_its_day(two_days, tmp_path):
    """The same rows as in one file; what belongs to a decision is of the decision's day."""
    assert export(two_days, tmp_path / "whole") == 0
    assert export(two_days, tmp_path / "days", "--by-day") == 0
    whole = {
        name: pyarrow.parquet.read_table(tmp_path / "whole" / f"{name}.parquet").to_pylist()
        for name in tables()
    }
    day_of = {row["id"]: day(row["now_ms"]) for row in whole["decisions"]}
    held = {row["id"]: row for row in whole["sessions"]}
    cycles = {day(row["now_ms"]) for row in held.values() if row["kind"] == "group"}
    assert (len(set(day_of.values())) > 1, len(cycles)) == (True, 2)
    for name in tables():
        if not has_days(name):
            file = tmp_path / "days" / f"{name}.parquet"
            assert pyarrow.parquet.read_table(file).to_pylist() == whole[name]
            continue
        found = []
        for file in sorted((tmp_path / "days" / name).glob("*/*")):
            of = file.parent.name.removeprefix("day=")
            rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
            for row in rows:
                at = row.get("now_ms", row.get("at_ms"))
                if at is not None:
                    assert of == day(at)
                elif "decision_id" in row:
                    assert of == day_of[row["decision_id"]]
                elif "session_id" in row:
                    assert of == day(held[row["session_id"]]["now_ms"])
            found += rows
        assert sorted(map(repr, found)) == sorted(map(repr, whole[name]))


def day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def test_the_tables_that_have_days():
    """All of the record; none of the state of clusters."""
    assert {name for name in tables() if has_days(name)} == {
        "activations",
        "candidate_violations",
        "candidates",
        "cluster_identities",
        "cycles",
        "decision_filters",
        "decision_outcomes",
        "decision_rules",
        "decision_traces",
        "decisions",
        "extender_calls",
        "follow_positions",
        "gaps",
        "idempotency_keys",
        "ledger",
        "observations",
        "observed_victims",
        "prunings",
        "revisions",
        "schedulers",
        "session_outcomes",
        "session_steps",
        "sessions",
        "simulations",
        "victims",
    }


def test_another_export_replaces_the_days_of_before(two_days, tmp_path):
    """A day that the database has no longer is not there afterwards."""
    folder = tmp_path / "tables"
    assert export(two_days, folder, "--by-day", "--table", "victims") == 0
    stale = folder / "victims" / "day=2001-01-01" / "rows.parquet"
    stale.parent.mkdir()
    stale.write_bytes(next((folder / "victims").glob("*/rows.parquet")).read_bytes())
    assert export(two_days, folder, "--by-day", "--table", "victims") == 0
    assert not stale.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["policy-export.json", "victims"]


def test_a_folder_with_anything_else_stays_as_it_is(two_days, tmp_path, capsys):
    """It is named, and nothing in it is removed."""
    other = tmp_path / "victims" / "notes.txt"
    other.parent.mkdir()
    other.write_text("mine")
    assert export(two_days, tmp_path, "--by-day", "--table", "victims") == 1
    assert "holds something else than days of this table" in capsys.readouterr().err
    assert [p.name for p in other.parent.iterdir()] == ["notes.txt"]


def test_a_table_without_rows_has_its_columns(database_url, tmp_path):
    """In a file of no day, which readers take for no rows."""
    with Store.open(database_url):
        pass
    assert export(database_url, tmp_path, "--by-day", "--table", "decisions") == 0
    (file,) = (tmp_path / "decisions").glob("*/*")
    found = pyarrow.parquet.ParquetFile(file).read()
    assert (found.num_rows, found.column_names) == (0, [c.name for c in tables()["decisions"]])


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_page_run(two_days, tmp_path, monkeypatch, capsys, number):
    """DuckDB and Polars read the folders as the page says, and find both days."""
    assert export(two_days, tmp_path / "tables", "--by-day") == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[number], str(PAGE), "exec"), {})
    told = capsys.readouterr().out
    assert (day(NOW_MS) in told, day(NOW_MS + 2 * DAY_MS) in told) == (True, True), told
