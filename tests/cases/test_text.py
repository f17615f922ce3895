"""Text on its way out: escaped for people, within JSON and YAML, and for spreadsheets."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policy.cli import output
from policy.cluster import times
from policy.text.csv_cells import csv_cell
from policy.text.printable import is_printable, json_escaped, printable, printable_lines
from policy.text.system import explained

HOSTILE = "n3\nfake\x1b[31m\x85\u202e\u200b\u2028\u2066\ufeff\x00\x7f\u3164\U000e0041\udcff"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n3\nfake", "n3\\nfake"),
        ("\ta\rb", "\\ta\\rb"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("\x85\x9b", "\\x85\\x9b"),
        ("a\u202eb\u2069", "a\\u202eb\\u2069"),
        ("a\u200bb\ufeff\u00ad", "a\\u200bb\\ufeff\\xad"),
        ("\u2028\u2029\u00a0", "\\u2028\\u2029\\xa0"),
        ("\u3164\ufe0f", "\\u3164\\ufe0f"),
        ("\U000e0041\udcff", "\\U000e0041\\udcff"),
        ("Grüße, 世界 😀 [red]", "Grüße, 世界 😀 [red]"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_escaped(text: str, shown: str) -> None:
    """Each character shows itself or its number; letters of any language stay."""
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    """Escaping once is enough, and nothing that is escaped is left."""
    shown = printable(text)
    assert (is_printable(shown), printable(shown), len(shown.splitlines()) <= 1) == (
        True,
        shown,
        True,
    )


def test_lines_stay_lines() -> None:
    """A text of several lines keeps its line ends and nothing else."""
    assert printable_lines("a\x1b\nb\u2028c\n") == "a\\x1b\nb\\u2028c\n"


@given(st.text(st.characters(exclude_categories=())))
def test_json_keeps_its_meaning(text: str) -> None:
    """The escaped document says the same, without a character that a terminal obeys."""
    made = json_escaped(json.dumps({"name": text}, ensure_ascii=False, indent=2))
    # Two halves that stand beside each other are one character to every reader of JSON.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads(made) == {"name": whole}
    assert all(map(is_printable, made.split("\n")))


@given(st.text())
def test_yaml_keeps_its_meaning(text: str) -> None:
    """Texts with such characters stand in double quotes, where YAML has escapes."""
    made = output.as_yaml([{"name": text, text: 1}])
    assert yaml.safe_load(made) == [{"name": text, text: 1}]
    assert all(map(is_printable, made.split("\n")))


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-5", "'-5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("a=1", "a=1"),
        (-5, -5),
        (-0.5, -0.5),
        (Decimal("-3"), Decimal("-3")),
        (True, "true"),
        (None, None),
        ([-1, "=a"], '[-1, "=a"]'),
    ],
)
def test_a_formula_is_marked_as_text_and_a_number_stays_one(value: Any, quoted: Any) -> None:
    """The type decides, not the look; raw cells have no mark."""
    assert csv_cell(value, raw=False) == quoted
    assert csv_cell(value, raw=True) == (value if isinstance(value, str) else quoted)


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "0999-12-31T23:59:59.120Z", "2026-11-21T00:00:00Z"],
)
def test_a_time_is_read_back(text: str) -> None:
    """Years have four digits, also before the year 1000."""
    assert times.to_text(times.parse(text)) == text


def test_the_system_is_put_into_our_words(tmp_path: Path) -> None:
    """Real refusals: a loop of links, a path through a file, a long name, a folder, a NUL."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    found = {}
    for name in ("loop", "file/below", "x" * 300, ".", "a\0b", "missing"):
        try:
            os.close(os.open(tmp_path / name, os.O_RDWR))
        except (OSError, ValueError) as exc:
            found[name[:10]] = explained(exc).message
    assert found == {
        "loop": "a symbolic link that leads to itself",
        "file/below": "not a folder, or a path that leads through a file as if it were one",
        "xxxxxxxxxx": "the name is longer than the file system allows",
        ".": "is a folder, not a file",
        "a\0b": "a name with a NUL character, which no file can have",
        "missing": "no such file or folder",
    }
