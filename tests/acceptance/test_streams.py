"""What the outside does to a command: readers that leave, full disks, closed streams, odd paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policy.cli.app import run
from policy.store import Store
from tests.acceptance.commands import CLUSTER, a_pod

PODS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database in which many pods wait, and paths that cannot be read."""
    items = [*CLUSTER, *(a_pod(f"shop/w{n:02}", "", 50, 1) for n in range(PODS))]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": items}))
    assert run(["import", str(tmp_path / "cluster.json"), "--db", str(tmp_path / "policy.db")]) == 0
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def shell(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in which `policy` is the command."""
    head = f'policy() {{ "{sys.executable}" -m policy "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", head + script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )


def decisions(folder: Path) -> int:
    with Store.open(str(folder / "policy.db"), read_only=True) as store:
        return len(store.read.decisions(None, limit=1000))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_reader_that_leaves_does_not_decide_what_is_decided(folder: Path, form: str) -> None:
    """`policy run | head -1` decides and records every pod, says so, and ends with status 0."""
    done = shell(folder, f"policy run -o {form} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, decisions(folder), len(done.stdout.splitlines())) == (0, PODS + 2, 1)
    assert done.stderr.startswith(f"{PODS + 2} decisions made and recorded")


def test_sessions_go_on_without_a_reader(folder: Path) -> None:
    """`policy batch run` holds and records its session, whoever reads."""
    done = shell(folder, "policy batch run -o jsonl | true; exit ${PIPESTATUS[0]}")
    with Store.open(str(folder / "policy.db"), read_only=True) as store:
        assert (done.returncode, len(store.read.sessions(None, limit=9))) == (0, 1)


def test_an_export_goes_on_without_a_reader(folder: Path) -> None:
    """All tables are written, although nobody reads their names."""
    done = shell(folder, "policy export -o tables | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, (folder / "tables" / "victims.csv").exists()) == (0, True)


def test_a_full_disk_behind_standard_output(folder: Path) -> None:
    """Everything is decided and recorded; the lost output is an error."""
    done = shell(folder, "policy run -o jsonl >/dev/full")
    assert (done.returncode, decisions(folder)) == (1, PODS + 2)
    assert done.stderr.splitlines()[-2:] == [
        "standard output: no space left on the device",
        "  help: what the command recorded or changed is done; only its output is lost",
    ]


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("policy decisions -o json >&-", 1, "standard output: is closed"),
        ("policy decisions -o csv >/dev/full", 1, "standard output: no space left on the device"),
        ("policy rules --help >/dev/full", 1, "standard output: no space left on the device"),
        ("policy decisions -o json 2>&-", 0, ""),
        ("policy decisions 2>/dev/full", 0, ""),
        ("policy import - <&-", 1, "<stdin>: standard input is not available"),
        ("policy sql - <&-", 2, "Error: standard input is closed"),
        ("policy import $'\\xff.json'", 2, r"Error: `\xff.json` is not UTF-8 text"),
        ("policy decisions --cluster $'\\xff'", 2, r"Error: `\xff` is not UTF-8 text"),
        (
            "LC_ALL=C PYTHONUTF8=0 policy decisions --cluster é",
            2,
            r"Error: `\xe9` cannot be read in this locale",
        ),
        ("POLICY_ENV=$'\\xff' policy run", 2, r"Error: `\xff` is not UTF-8 text"),
    ],
)
def test_streams_and_arguments_that_are_none(
    folder: Path, script: str, status: int, words: str
) -> None:
    """Each ends with a message and its status, never with a traceback."""
    done = shell(folder, script)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False)
    assert words in done.stderr.splitlines() or not words


def test_a_locale_without_letters(folder: Path) -> None:
    """Words are escaped for an ASCII terminal; data stays UTF-8."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    query = "SELECT char(233) AS x"
    assert [
        shell(folder, f'policy sql "{query}" -o {form}', **plain).stdout.split()[-1]
        for form in ("table", "csv")
    ] == ["\\xe9", "é"]


LOOP = "loop: a symbolic link that leads to itself"
LONG = "x" * 300
TOO_LONG = f"{LONG}: the name is longer than the file system allows"
THROUGH = "cluster.json/x: not a folder, or a path that leads through a file as if it were one"

READERS = (
    ("import", "{}"),
    ("decisions", "--db", "{}"),
    ("run", "--db", "policy.db", "--dry-run", "--rules", "./{}"),
    ("rules", "show", "./{}"),
    ("rules", "test", "./{}"),
    ("batch", "run", "--dry-run", "--rules", "./{}"),
    ("what-if", "--db", "policy.db", "--pod", "{}"),
    ("conform", "{}"),
    ("export", "--db", "policy.db", "--table", "clusters", "--output", "{}/below"),
)


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_path_that_cannot_be_read(
    folder: Path,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command that reads a path says in the same words why it cannot."""
    monkeypatch.chdir(folder)
    told = []
    for path in ("loop", LONG, "cluster.json/x"):
        capsys.readouterr()
        assert run([a.format(path) for a in arguments]) == 1
        told.append(capsys.readouterr().err.splitlines()[0].replace("/below", ""))
    assert told == [LOOP, TOO_LONG, THROUGH]


@pytest.mark.parametrize(
    "arguments", [line for line in READERS if "policy.db" not in line], ids=" ".join
)
def test_a_path_that_is_not_for_everybody(
    folder: Path,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user without the right to a folder reads that, and what is needed."""
    monkeypatch.chdir(folder)
    (folder / "closed").mkdir()
    (folder / "closed" / "file.yaml").touch()
    line = [argument.format("closed/file.yaml") for argument in arguments]
    run([argument.format("loop") for argument in arguments])  # loads what the command needs
    capsys.readouterr()
    (folder / "closed").chmod(0)
    with somebody_else():
        status = run(line)
    assert (status, capsys.readouterr().err.splitlines()[:2]) == (
        1,
        [
            "closed/file.yaml: permission denied",
            "  help: the user who runs the command needs the right to it, and to every folder"
            " above it",
        ],
    )


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read everything, so that the block is run as another user."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
