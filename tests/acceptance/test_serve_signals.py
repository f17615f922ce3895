"""Signals that come while the service starts: it ends as it does later, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policy.server.extender.child import DESKS
from policy.store import Store
from tests.acceptance.test_serve_desks import a_cluster, runs, until
from tests.support.serving import children

_HANDLED = re.compile(r"^SigCgt:\t([0-9a-f]+)$", re.MULTILINE)


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    file = tmp_path / "policy.db"
    file.write_bytes(sqlite_template.read_bytes())
    return a_cluster(str(file))


def handles(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Has it said to the system that it wants the signal?"""
    found = _HANDLED.search(Path(f"/proc/{process.pid}/status").read_text())
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def begun(url: str, folder: Path) -> subprocess.Popen[str]:
    """A service that has just begun to start."""
    command = [sys.executable, "-m", "policy", "serve", "--db", url, "--environment", "prod"]
    return subprocess.Popen(
        [*command, "--port", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
    )


def desks_of(process: subprocess.Popen[str]) -> list[int]:
    """The process of the desks, once it is that: before, it is a copy of its parent."""
    pids = children(process.pid)
    return [pid for pid in pids if DESKS in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_well(
    sqlite_url: str, tmp_path: Path, number: signal.Signals, after: float
) -> None:
    """Status 0 and no traceback; its child ends before it, and the database is whole."""
    with begun(sqlite_url, tmp_path) as process:
        # SIGINT is caught by Python itself from its beginning on.
        until(lambda: handles(process, signal.SIGTERM), "it never handles the signal")
        until(lambda: bool(desks_of(process)), "it starts no child")
        pids = desks_of(process)
        time.sleep(after)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in said, [*map(runs, pids)]) == (0, False, [False])
    with Store.open(sqlite_url) as store:
        assert store.ledger.verify().ok


def test_a_signal_before_its_child_is_started(sqlite_url: str, tmp_path: Path) -> None:
    """It ends with status 0 as soon as it is handled at all."""
    with begun(sqlite_url, tmp_path) as process:
        until(lambda: handles(process, signal.SIGTERM), "it never handles the signal")
        process.send_signal(signal.SIGHUP)  # as a terminal that is closed: it ends nothing
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, "")
