"""docs/sql.md is the schema, its examples run, and so do the saved queries; on both databases."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest
from sqlalchemy import create_engine, inspect

from policy.cli.app import run
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.connection import parse_url
from policy.store.journal import StoreJournal
from policy.store.partitions import KEYS, OPEN
from policy.store.read.saved_queries import DEFAULTS, saved_queries
from policy.store.read.tables import tables
from tests.contract.filled import fill
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects, rule_set

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
SECTIONS = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (name, example)
    for name, body in SECTIONS
    for example in re.findall(r"```sql\n(.*?)\n```", body, re.DOTALL)
]
KUBE = rule_set("kube-1.35")
CLUSTER = objects(
    a_node("n1").cpu("4").running(a_pod("low").priority(1).cpu("4").started(60).labelled(app="x")),
    a_node("n2").cpu("4").running(a_pod("mid").in_namespace("shop").priority(5).cpu("4")),
    a_pdb("x").selecting(app="x"),
    a_pod("high").priority(10).cpu("4"),
    a_pod("next").priority(9).cpu("4"),
    a_pod("huge").priority(9).cpu("8"),
)


def documented(body: str) -> list[tuple[str, str]]:
    """Columns of a section with their types."""
    return re.findall(r"^\| `(\w+)` \| ([a-z0-9]+\??) \| .+ \|$", body, re.MULTILINE)


@pytest.fixture
def decided_url(database_url):
    """A database in which every table has rows, and preemptions of several sorts."""
    with Store.open(database_url) as store:
        fill(store)
        store.record.import_objects("real", CLUSTER, at_ms=NOW_MS, source="dump.json")
        journal = StoreJournal(store, "real", actor="ann", clock=lambda: NOW_MS)
        list(Scheduler(journal, KUBE, clock=lambda: NOW_MS, seed=0).run())
    return database_url


def test_the_page_names_every_table_and_column(database_url):
    """Each table in its section, each column in order with its type; none that is not there."""
    engine = create_engine(parse_url(database_url))
    found = inspect(engine)
    # Partitions on Postgres are asked by way of their table: the page says so in a part of its own.
    beside = {"policy_schema", *(f"{table}_{OPEN}" for table in KEYS)}
    real = {
        name: [column["name"] for column in found.get_columns(name)]
        for name in [*found.get_table_names(), *found.get_view_names()]
        if name not in beside
    }
    engine.dispose()
    told = {name: [column for column, _ in documented(body)] for name, body in SECTIONS}
    assert told == real


def test_the_page_gives_the_type_of_every_column_of_a_table():
    """int, millis, bool, text or json, with `?` where it may be null."""
    told = dict(SECTIONS)
    for name, columns in tables().items():
        expected = [
            (c.name, c.type.replace("int64", "int") + ("?" if c.nullable else "")) for c in columns
        ]
        assert documented(told[name]) == expected


def test_null_stands_only_where_the_page_says_so(decided_url):
    """A column of a view without `?` has a value in every row."""
    with Store.open(decided_url, read_only=True) as store:
        for name, body in SECTIONS:
            never = [column for column, kind in documented(body) if not kind.endswith("?")]
            condition = " OR ".join(f"{column} IS NULL" for column in never)
            with store.sql(
                f"SELECT count(*) FROM {name} WHERE {condition}", trust_connection=True
            ) as found:
                assert (name, list(found)) == (name, [(0,)])


def test_every_example_runs(decided_url):
    """What the page shows can be typed in."""
    assert len(EXAMPLES) > 20
    for name, example in EXAMPLES:
        assert name in example
        with (
            Store.open(decided_url, read_only=True) as store,
            store.sql(example, {"since": 0}, trust_connection=True) as found,
        ):
            list(found)


def test_saved_queries_are_on_the_page():
    """Name, sentence and parameters, as they are."""
    for saved in saved_queries().values():
        parameters = ", ".join(f"`{name}`" for name in saved.parameters)
        assert f"| `{saved.name}` | {saved.about} | {parameters} |" in PAGE
        assert saved.about.endswith(".")


@pytest.mark.parametrize("name", saved_queries())
def test_a_saved_query_answers_on_both_databases(decided_url, name, capsys):
    """With its defaults, and narrowed to nothing by each of its parameters."""
    saved = saved_queries()[name]
    empty = {"since": 2**61, "until": -1, "cluster": "nowhere", "namespace": "nowhere"}
    with Store.open(decided_url, read_only=True) as store:
        with store.sql(saved.sql, DEFAULTS, trust_connection=True) as found:
            whole = list(found)
        assert whole, "no row with every restriction left out"
        with store.sql(saved.sql, {**DEFAULTS, "limit": 1}, trust_connection=True) as found:
            assert list(found) == whole[:1]
        for parameter in saved.parameters:
            if parameter != "limit":
                with store.sql(
                    saved.sql, {**DEFAULTS, parameter: empty[parameter]}, trust_connection=True
                ) as found:
                    assert (parameter, list(found)) == (parameter, [])


def test_who_preempts_whom_is_narrowed_by_time(decided_url, capsys):
    """`--since` leaves out what was decided before."""

    def evictions(*more: str) -> list[dict[str, str]]:
        options = ["--db", decided_url, "--output", "csv", "--cluster", "real"]
        assert run(["sql", "who-preempts-whom", *options, *more]) == 0
        return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    told = [(r["preemptor_namespace"], r["victim_namespace"], r["evictions"]) for r in evictions()]
    assert told == [("default", "default", "1"), ("default", "shop", "1")]
    assert (
        evictions("--since", "2026-11-21T00:00:00Z", "--namespace", "shop")[0]["victim_namespace"]
        == "shop"
    )
    assert evictions("--since", "2026-11-21T00:00:01Z") == []


def test_a_result_as_parquet_holds_what_the_json_holds(decided_url, capfdbinary):
    """The same rows with their types."""
    query = "SELECT id, preemptor, node, seed FROM decisions ORDER BY id"
    assert run(["sql", query, "--trust-connection", "--db", decided_url, "--output", "json"]) == 0
    rows = json.loads(capfdbinary.readouterr().out)
    assert (
        run(["sql", query, "--trust-connection", "--db", decided_url, "--output", "parquet"]) == 0
    )
    written = pyarrow.parquet.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert written.to_pylist() == rows


def test_export_writes_every_table_in_both_forms(decided_url, tmp_path, capsys):
    """CSV and Parquet of a table hold the same rows, as many as the table."""
    for form in ("csv", "parquet"):
        folder = tmp_path / form
        assert run(["export", "--db", decided_url, "-o", str(folder), "--format", form]) == 0
        written = [*(f"{name}.{form}" for name in tables()), "policy-export.json"]
        assert sorted(p.name for p in folder.iterdir()) == sorted(written)
    for name, columns in tables().items():
        whole = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
        assert whole.column_names == [c.name for c in columns]
        lines = list(csv.reader((tmp_path / "csv" / f"{name}.csv").open(newline="")))
        assert lines[0] == whole.column_names
        assert lines[1:] == [[_cell(v) for v in row.values()] for row in whole.to_pylist()]
        with (
            Store.open(decided_url, read_only=True) as store,
            store.sql(f"SELECT count(*) FROM {name}", trust_connection=True) as found,
        ):
            assert list(found) == [(whole.num_rows,)]


def _cell(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sql"], "give a query, or `--list`"),
        (["sql", "who-preempt"], "did you mean `who-preempts-whom`?"),
        (["sql", "hourly", "--namespace", "x"], "`hourly` has no parameter `namespace`"),
        (["sql", "SELECT 1", "-p", "x"], "`x` is not like `NAME=VALUE`"),
        (["export", "-o", "{folder}", "--table", "pod"], "there is no table `pod`"),
    ],
)
def test_what_is_wrong_is_said(decided_url, tmp_path, capsys, arguments, message):
    """Each mistake has its sentence, and nothing is written."""
    words = [word.replace("{folder}", str(tmp_path / "out")) for word in arguments]
    assert run([*words, "--db", decided_url]) in (1, 2)
    told = capsys.readouterr()
    assert (told.out, message in told.err) == ("", True), told.err
    assert not (tmp_path / "out").exists()
