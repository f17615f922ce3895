"""A table for a pipe looks as the library prints it on a terminal that is wide enough."""

from __future__ import annotations

import sys

import pytest

from policy.cli import output

COLUMNS = ("id", "name", "a-long-heading", "empty")
ROWS = [
    {"id": 1, "name": "web", "a-long-heading": "x" * 70, "empty": ""},
    {"id": 22, "name": "日本 x", "a-long-heading": True, "empty": None},
    {"id": None, "name": "[a] é", "a-long-heading": {"cpu": 1, "memory": 2}},
]


@pytest.mark.parametrize("right", [(), ("id",), ("name", "empty")], ids="-".join)
def test_it_is_the_table_of_the_library(
    right: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Widths, alignment, the rule below the headings, spaces at the end: all is the same."""
    output.rows(ROWS, "table", columns=COLUMNS, right=set(right))
    printed = capsys.readouterr().out
    cells = [[output.cell(row.get(column)) for column in COLUMNS] for row in ROWS]
    output._console(sys.stdout).print(output._table(cells, COLUMNS, [0] * len(COLUMNS), set(right)))
    assert printed == capsys.readouterr().out
