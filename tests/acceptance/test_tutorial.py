"""The tutorial's commands run as they are written, one after the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    """A reader who types the blocks in order sees no command fail, and the record verifies."""
    shutil.copytree(PROJECT / "examples", tmp_path / "examples")
    page = (PROJECT / "docs" / "tutorial.md").read_text()
    blocks = BLOCK.findall(page)
    environment = {name: value for name, value in os.environ.items() if "POLICY" not in name}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (len(blocks), done.returncode) == (9, 0), done.stderr
    shown = "".join(re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)).splitlines()
    assert (len(shown), [line for line in shown if line not in done.stdout.splitlines()]) == (2, [])


def test_an_investigation_runs_as_it_is_written(tmp_path: Path) -> None:
    """From the victim to the answer in three commands, whose output is that of the page."""
    shutil.copytree(PROJECT / "examples" / "investigate", tmp_path / "examples" / "investigate")
    page = (PROJECT / "docs" / "investigate.md").read_text()
    blocks = BLOCK.findall(page)
    environment = {name: value for name, value in os.environ.items() if "POLICY" not in name}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (len(blocks), done.returncode) == (4, 0), done.stderr
    yesterday = re.search(r"is read as ([0-9-]+)T14:00:00Z", done.stderr)
    assert yesterday is not None
    printed = done.stdout.replace(yesterday[1], "2026-11-21")
    shown = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    missing = [line for text in shown for line in text.splitlines() if line not in printed]
    assert (len(shown), missing) == (3, [])
