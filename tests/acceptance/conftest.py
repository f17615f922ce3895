"""A command line, a dump to import, and a database in which something was decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policy.cli.app import run
from tests.acceptance.commands import CLUSTER, NOW, Done, Policy


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
