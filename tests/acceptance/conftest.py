"""A command line, a dump to import, a database in which something was decided, a browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from policy.cli.app import run
from tests.acceptance.commands import CLUSTER, NOW, Done, Policy

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "the pages are tested with the system's chromium: `apt-get install chromium`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def policy(capsys: pytest.CaptureFixture[str]) -> Policy:
    """Runs one command line in this process."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        return Done(status, *capsys.readouterr())

    return call


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": CLUSTER}))
    return file


@pytest.fixture
def decided(policy: Policy, dump: Path, database_url: str) -> str:
    """A database, of each kind, in which shop/high has been decided as decision 1."""
    assert policy("import", dump, "--db", database_url).status == 0
    assert policy("preempt", "shop/high", "--now", NOW, "--db", database_url).status == 0
    return database_url
