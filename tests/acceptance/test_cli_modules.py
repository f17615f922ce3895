"""The command line starts fast: help loads none of the heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from policy.cli import app

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
    "policy.cli.session",
    "policy.cluster",
    "policy.cluster.times",
}
"""Modules of ours that `policy --help` needs: each command's own, and what they share."""

PROGRAM = """
import sys, time
started = time.process_time()
from policy.cli.app import run
run(["--help"])
spent = time.process_time() - started
import json
print(json.dumps([sorted(sys.modules), spent]), file=sys.stderr)
"""


def loaded() -> tuple[set[str], float]:
    """Modules after `policy --help`, and the seconds of processor time that it took."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    modules, spent = json.loads(done.stderr.splitlines()[-1])
    return set(modules), spent


def test_help_loads_no_heavy_library() -> None:
    """Arrays, databases, rule expressions and tables are loaded by the commands that use them."""
    modules, _ = loaded()
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()


def test_help_loads_these_modules() -> None:
    """The list of our own modules that help needs grows only on purpose."""
    modules, _ = loaded()
    assert {name for name in modules if name.partition(".")[0] == "policy"} == LOADED


def test_help_takes_less_than_150_ms() -> None:
    """Importing the command line and printing its help is quick (best of five runs)."""
    assert min(loaded()[1] for _ in range(5)) < 0.150


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["rules", "--help"]])
def test_the_module_is_the_command(arguments: list[str]) -> None:
    """`python -m policy` is `policy`."""
    done = subprocess.run(
        [sys.executable, "-m", "policy", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "policy" in done.stdout
