"""The command line starts fast: help loads none of the heavy libraries."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from policy.cli import app
from tests.acceptance.commands import NOW, Policy

HEAVY = {
    "alembic",
    "cel_expr_python",
    "numpy",
    "psycopg",
    "pydantic",
    "rich",
    "sqlalchemy",
    "yaml",
}

LOADED = {
    "policy",
    "policy.cli",
    "policy.cli.app",
    "policy.cli.exits",
    "policy.cli.options",
    "policy.cli.output",
    "policy.cli.rule_files",
    "policy.cli.streams",
    "policy.cluster",
    "policy.cluster.quantities",
    "policy.cluster.times",
    "policy.lazy",
    "policy.text",
    "policy.text.csv_cells",
    "policy.text.printable",
    "policy.text.system",
    "policy.text.words",
    "policy.garbage",
}
"""Modules of ours that `policy --help` needs: what commands share, and none of their own."""

PROGRAM = """
import json, sys
from policy.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    """Modules after a command."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_no_heavy_library() -> None:
    """Arrays, databases, rule expressions and tables are loaded by the commands that use them."""
    modules = loaded("--help")
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()


def test_help_loads_these_modules() -> None:
    """The list of our own modules that help needs grows only on purpose."""
    modules = loaded("--help")
    assert {name for name in modules if name.partition(".")[0] == "policy"} == LOADED


@pytest.mark.parametrize("name", app.COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    """The summaries stand apart from the commands, so that help need not load them."""
    command = app.cli.get_command(click.Context(app.cli), name)
    assert command is not None
    assert app.COMMANDS[name].summary == command.get_short_help_str(1000)


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["rules", "--help"]])
def test_the_module_is_the_command(arguments: list[str]) -> None:
    """`python -m policy` is `policy`."""
    done = subprocess.run(
        [sys.executable, "-m", "policy", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "policy" in done.stdout


DECIDES = {
    "alembic",
    "cel_expr_python",
    "numpy",
    "policy.cluster.snapshot",
    "policy.preemption",
    "policy.rules.loading",
    "policy.rules.ruleset",
    "policy.rules.schema",
    "pydantic",
    "yaml",
}
"""What decides, reads rule files or changes the schema."""

OTHER_DATABASE = {"psycopg", "sqlalchemy.dialects.postgresql"}

WRITES_OR_VERIFIES = {
    "policy.store.ledger.checkpoints",
    "policy.store.ledger.covering",
    "policy.store.ledger.orphans",
    "policy.store.ledger.pruning",
    "policy.store.ledger.verify",
    "policy.store.ledger.witnesses",
    "policy.store.record.changing",
    "policy.store.record.decisions",
    "policy.store.record.importing",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ("decisions",),
        ("decisions", "--output", "json"),
        ("explain", "1"),
        ("explain", "1", "--output", "json"),
        ("nominations",),
        ("env", "list"),
    ],
    ids=" ".join,
)
def test_what_only_reads_loads_only_what_reads(
    policy: Policy, dump: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Showing what is recorded needs the database, and neither what decides nor what writes."""
    database = str(tmp_path / "policy.db")
    assert policy("import", dump, "--db", database).status == 0
    assert policy("preempt", "shop/high", "--now", NOW, "--db", database).status == 0
    modules = loaded(*arguments, "--db", database)
    assert "sqlalchemy" in modules
    assert modules & (DECIDES | OTHER_DATABASE | WRITES_OR_VERIFIES) == set()


OF_OTHER_LISTS = {
    "policy.cli.batch",
    "policy.cli.env",
    "policy.cli.groups_view",
    "policy.store.model.environments",
    "policy.store.model.sessions",
    "policy.store.observed",
    "policy.store.read.evictions",
    "policy.store.read.hits",
    "policy.store.read.observed",
    "policy.store.read.reports",
    "policy.store.record",
    "policy.store.totals",
}
"""What shows sessions, environments, observations and reports."""


@pytest.mark.parametrize("arguments", [("decisions",), ("explain", "1")], ids=" ".join)
def test_decisions_load_no_other_lists(
    policy: Policy, dump: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Of what reads the record, decisions load what reads decisions."""
    database = str(tmp_path / "policy.db")
    assert policy("import", dump, "--db", database).status == 0
    assert policy("preempt", "shop/high", "--now", NOW, "--db", database).status == 0
    assert loaded(*arguments, "--db", database) & OF_OTHER_LISTS == set()


def test_commands_print_through_one_module() -> None:
    """No command writes to a stream itself, so that none can print a name unescaped."""
    folder = Path(app.__file__).parent
    own = {"output.py", "streams.py", "docs.py"}
    found = [
        f"{file.name}:{node.lineno}"
        for file in sorted(folder.glob("*.py"))
        if file.name not in own
        for node in ast.walk(ast.parse(file.read_text()))
        if ast.unparse(node) in {"print", "click.echo", "click.secho", "sys.stdout", "sys.stderr"}
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"))
    ]
    # A question of `run` and `sql`: whether it is a terminal; and that lines go out as they come.
    assert [place.partition(":")[0] for place in found] == ["run.py", "sql.py"]
