"""docs/reliability.md is what a run of the tests wrote down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.reliability import page
from tests.support.tried import RESULTS, Kind, note

pytest_plugins = ["pytester"]

COMMITTED = Path(__file__).parents[2] / "docs" / "reliability.md"


def row(text: str, kind: Kind) -> str:
    """The end of a kind's row: tries, and how many held."""
    start = f"| {kind.what} | {kind.expected} |"
    [found] = [line for line in text.splitlines() if line.startswith(start)]
    return found.removeprefix(start)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RESULTS, str(tmp_path / "results"))
    return tmp_path / "results"


def test_tries_are_summed_by_kind(results: Path) -> None:
    """What was tried on both databases counts twice; the page names the test."""
    for kind in Kind:
        note(kind, 600, by="tests/a.py", held=True)
        note(kind, 600, by="tests/a.py", held=True)
    text, good = page(results)
    assert ({row(text, kind) for kind in Kind}, good) == ({" 1,200 | all |"}, True)
    assert f"- {Kind.KILL.what}: `tests/a.py`\n" in text


def test_what_did_not_hold_is_counted(results: Path) -> None:
    """A failed test, and a kind that nothing tried, are no good result."""
    note(Kind.KILL, 40, by="tests/a.py", held=True)
    note(Kind.KILL, 40, by="tests/a.py", held=False)
    text, good = page(results)
    found = (row(text, Kind.KILL), row(text, Kind.DELETED_ROW), good)
    assert found == (" 80 | 40 |", " 0 | 0 |", False)


def test_nothing_is_written_unless_a_run_is_asked_for_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable no file appears."""
    monkeypatch.delenv(RESULTS, raising=False)
    monkeypatch.chdir(tmp_path)
    note(Kind.KILL, 1, by="tests/a.py", held=True)
    assert list(tmp_path.iterdir()) == []


def test_the_count_of_a_test_reaches_the_results(pytester: pytest.Pytester, results: Path) -> None:
    """The fixture's tries are written with the name of the file and how the test ended."""
    pytester.makeconftest(
        """
        from tests.support.tried import Results, tried

        def pytest_configure(config):
            config.pluginmanager.register(Results())
        """
    )
    pytester.makepyfile(
        test_it="""
        from tests.support.tried import Kind

        def test_held(tried):
            tried(Kind.KILL, 3)

        def test_failed(tried):
            tried(Kind.KILL, 4)
            assert False
        """
    )
    pytester.runpytest_inprocess()
    lines = [json.loads(line) for line in (results / "tried.jsonl").read_text().splitlines()]
    assert [(line["by"], line["tries"], line["held"]) for line in lines] == [
        ("test_it.py", 3, True),
        ("test_it.py", 4, False),
    ]


def test_the_committed_page_has_every_kind_and_nothing_that_failed() -> None:
    """A kind that is added, or worded anew, needs a page of a new run."""
    text = COMMITTED.read_text()
    assert {row(text, kind).split("|")[1].strip() for kind in Kind} == {"all"}
