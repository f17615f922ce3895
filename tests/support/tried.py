"""Counting what the tests try, so that docs/reliability.md is made from a run and not typed.

A test says `tried(Kind.KILL, 40)`. Where `POLICY_TEST_RESULTS` names a folder, the run writes one
JSON object a line there for each such call: kind, number of tries, test, and how the test ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

import pytest

RESULTS: Final = "POLICY_TEST_RESULTS"
_PROPERTY: Final = "tried"


class Kind(Enum):
    """What is tried; what has to come of it."""

    KILL = (
        "a process is killed (SIGKILL) while it records decisions",
        "no reported decision is lost, none is half written, the ledger verifies",
    )
    CONCURRENT = (
        "two processes decide on one cluster at the same moment",
        "one of them is recorded, the other decides again; no room is given twice",
    )
    CHANGED_CELL = ("a stored value is changed", "`audit verify` finds it")
    DELETED_ROW = ("a stored row is deleted", "`audit verify` finds it")
    INSERTED_ROW = ("a row is inserted", "`audit verify` finds it")
    SWAPPED_ROWS = ("values of two rows are exchanged", "`audit verify` finds it")
    FORGED_LEDGER = (
        "ledger entries are cut off, reordered, copied or hashed anew",
        "`audit verify` finds it, by a kept head where nothing else can",
    )
    OLD_FORMAT = (
        "a decision or session in the database of a released format is replayed",
        "it is made again with the digest it had",
    )
    BAD_RULES = (
        "a wrong rule file is loaded",
        "it is refused, with the place and the reason",
    )
    BAD_MANIFEST = (
        "a wrong manifest is imported",
        "it is refused, with file, object and field",
    )
    HOSTILE_SQL = (
        "a query tries to write, to leave the database or to gain rights",
        "it is refused, and nothing was written",
    )
    FUZZ_CORPUS = (
        "an input that fuzzing found or began with is read again",
        "it ends in a result or in an error of ours",
    )
    FUZZ_TARGET = (
        "an entry point is fuzzed for its share of two minutes",
        "every input ends in a result or in an error of ours",
    )

    @property
    def what(self) -> str:
        return self.value[0]

    @property
    def expected(self) -> str:
        return self.value[1]


Tried = Callable[..., None]


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Tried:
    """Called with a kind and a number of tries; they count as held where the test passes."""

    def count(kind: Kind, tries: int = 1) -> None:
        request.node.user_properties.append((_PROPERTY, (kind.name, tries)))

    return count


def note(kind: Kind, tries: int, *, by: str, held: bool) -> None:
    """Write down what was tried, where the environment names a folder for it."""
    folder = os.environ.get(RESULTS)
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    line = {"kind": kind.name, "tries": tries, "by": by, "held": held}
    with (Path(folder) / "tried.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


class Results:
    """The part of a run that hears of every test, on whichever worker it ran."""

    @staticmethod
    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY:
                kind, tries = value
                by = report.nodeid.partition("::")[0]
                note(Kind[kind], tries, by=by, held=report.passed)
