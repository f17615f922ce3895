"""`policy export` into a folder that holds something already: one form of each table."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from policy.audit.export_folder import ExportFolder
from policy.cli.app import run
from policy.store import Store
from tests.contract.filled import fill

TABLES = ("decisions", "rule_sets")
MANIFEST = "policy-export.json"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("export") / "policy.db")
    with Store.open(url) as store:
        fill(store)
    return url


def export(database: str, folder: Path, *options: str, names: tuple[str, ...] = TABLES) -> int:
    chosen = [word for name in names for word in ("--table", name)]
    return run(["export", "--db", database, "-o", str(folder), *chosen, *options])


def damaged_copy(database: str) -> str:
    """One in which the table `rule_sets` is gone."""
    copy = f"{database}.damaged"
    with Store.open(database) as store:  # so that all is in the file itself
        assert store.read.decisions()
    shutil.copy(database, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DROP TABLE rule_sets")
    return copy


def files(folder: Path) -> list[str]:
    """All files by path, days by any name."""
    found = (path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file())
    return sorted({"/".join("DAY" if "=" in part else part for part in parts) for parts in found})


CSV = ()
PARQUET = ("--format", "parquet")
BY_DAY = ("--by-day",)
DAYS = (*PARQUET, *BY_DAY)
WRITTEN = {
    CSV: ["decisions.csv", "policy-export.json", "rule_sets.csv"],
    PARQUET: ["decisions.parquet", "policy-export.json", "rule_sets.parquet"],
    BY_DAY: ["decisions/DAY/rows.csv", "policy-export.json", "rule_sets.csv"],
    DAYS: ["decisions/DAY/rows.parquet", "policy-export.json", "rule_sets.parquet"],
}


@pytest.mark.parametrize("before", WRITTEN, ids=" ".join)
@pytest.mark.parametrize("after", WRITTEN, ids=" ".join)
def test_one_form_of_each_table(
    database: str, tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Whatever was exported before: a reader of the folder finds every table once."""
    (tmp_path / "README.md").write_text("mine")
    assert export(database, tmp_path, *before) == 0
    assert export(database, tmp_path, *after) == 0
    listed = json.loads((tmp_path / "policy-export.json").read_text())["files"]
    assert files(tmp_path) == sorted(["README.md", *WRITTEN[after]])
    assert listed == sorted({name.partition("/")[0] for name in WRITTEN[after]} - {MANIFEST})


def test_other_tables_stay(database: str, tmp_path: Path) -> None:
    """Those that are not named: the folder may be filled table by table, also in two forms."""
    assert export(database, tmp_path) == 0
    assert export(database, tmp_path, *PARQUET, names=("decisions",)) == 0
    assert files(tmp_path) == ["decisions.parquet", MANIFEST, "rule_sets.csv"]
    assert export(database, tmp_path, *PARQUET) == 0
    assert files(tmp_path) == WRITTEN[PARQUET]


@pytest.mark.parametrize("also", [(), TABLES])
def test_what_no_export_wrote_is_never_removed(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], also: tuple[str, ...]
) -> None:
    """Where it would be read beside a table, nothing is written, and it is named."""
    if also:
        assert export(database, tmp_path) == 0
        (tmp_path / "rule_sets.csv").unlink()
    before = files(tmp_path)
    (tmp_path / "rule_sets.parquet").write_text("mine")
    capsys.readouterr()
    assert export(database, tmp_path) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}/rule_sets.parquet: is there already, and no export that `policy-export.json`"
        " lists wrote it: readers of the folder would take both for one table\n"
        "  help: choose another folder, or remove it\n"
    )
    assert files(tmp_path) == sorted([*before, "rule_sets.parquet"])
    assert (tmp_path / "rule_sets.parquet").read_text() == "mine"


def test_notes_among_the_days_stay(database: str, tmp_path: Path) -> None:
    """A folder of days with anything else in it is not replaced by a file either."""
    assert export(database, tmp_path, *DAYS) == 0
    (tmp_path / "decisions" / "notes.txt").write_text("mine")
    before = files(tmp_path)
    assert [export(database, tmp_path, *form) for form in (CSV, DAYS)] == [1, 1]
    assert files(tmp_path) == before


def test_a_damaged_list_is_said(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not taken for none: what it listed would be in the way, or stay."""
    assert export(database, tmp_path) == 0
    for text in ("{", "[]", '{"files": [1]}', '{"files": 1}'):
        (tmp_path / MANIFEST).write_text(text)
        capsys.readouterr()
        assert export(database, tmp_path) == 1
        assert f"{tmp_path}/{MANIFEST}: is not the list" in capsys.readouterr().err
        assert files(tmp_path) == WRITTEN[CSV]


def test_a_folder_in_place_of_a_file_stays(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rule_sets.csv" / "mine").mkdir(parents=True)
    assert export(database, tmp_path) == 1
    assert f"{tmp_path}/rule_sets.csv: is a folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["rule_sets.csv", "mine"]


@pytest.mark.parametrize("form", WRITTEN, ids=" ".join)
def test_what_fails_leaves_the_export_of_before(
    database: str, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """Whole, to the byte: the second table cannot be read."""
    assert export(database, tmp_path, *DAYS) == 0
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    damaged = damaged_copy(database)
    assert export(damaged, tmp_path, *form) == 1
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_table_that_cannot_take_its_place(database: str, tmp_path: Path) -> None:
    """Those that have taken theirs by then make room again for the ones of before."""
    assert export(database, tmp_path, *DAYS) == 0
    before = files(tmp_path)
    targets = {"decisions": "decisions.csv", "rule_sets": "rule_sets.csv"}
    with ExportFolder(tmp_path, targets) as made:
        made.unfinished("decisions").write_text("new")
        with pytest.raises(FileNotFoundError):
            made.finish()
    assert files(tmp_path) == before
    assert export(database, tmp_path) == 0
    assert files(tmp_path) == WRITTEN[CSV]


def test_the_rest_of_a_killed_export_goes(database: str, tmp_path: Path) -> None:
    """What it had written lies apart, where no reader takes it for a table."""
    left = tmp_path / ".policy-export.part" / "decisions.csv"
    left.parent.mkdir()
    left.write_text("half")
    assert export(database, tmp_path) == 0
    assert files(tmp_path) == WRITTEN[CSV]
