"""The command line starts fast: help loads none of the heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from policy.cli import app
from policy.store import Store

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

COMMANDS = {home.partition(":")[0] for home in app.COMMANDS.values()}

LOADED = COMMANDS | {
    "policy",
    "policy.cli",
    "policy.cli.app",
    "policy.cli.exits",
    "policy.cli.options",
    "policy.cli.output",
    "policy.cli.rule_files",
    "policy.cli.session",
    "policy.cluster",
    "policy.cluster.times",
}
"""Modules of ours that `policy --help` needs: each command's own, and what they share."""

PROGRAM = """
import json, sys
from policy.cli.app import run
run(sys.argv[1:])
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


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["rules", "--help"]])
def test_the_module_is_the_command(arguments: list[str]) -> None:
    """`python -m policy` is `policy`."""
    done = subprocess.run(
        [sys.executable, "-m", "policy", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "policy" in done.stdout


def test_a_list_of_decisions_loads_no_columns(tmp_path: Path) -> None:
    """Reading the record needs the database, not what decides."""
    database = str(tmp_path / "policy.db")
    Store.open(database).close()
    modules = loaded("decisions", "--db", database, "--output", "json")
    assert "sqlalchemy" in modules
    assert not modules & {"cel_expr_python", "numpy", "policy.rules", "policy.cluster.snapshot"}
