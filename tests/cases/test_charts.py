"""Charts of a query's result, and the fields of its parameters."""

from __future__ import annotations

import math

import pytest

from policy.server.http import Failure
from policy.server.pages.charts import MOST, Chart, NoChart, Point, chart
from policy.server.pages.parameters import Parameter, fields, values
from policy.server.pages.rendering import lines


def test_bars_stand_on_zero() -> None:
    """In the order of the rows; one below zero hangs, one without a number is left out."""
    rows = [("a", 4), ("b", -4), ("c", None), ("d", 2.0), ("e", math.inf)]
    assert chart(("name", "n"), rows, x="name", y="n", kind="bar") == Chart(
        kind="bar",
        label="n by name: 3 rows in their order, from -4 to 4",
        points=(
            Point(x=60.0, y=12.0, top=12.0, height=46.0, words="a: 4"),
            Point(x=180.0, y=104.0, top=58.0, height=46.0, words="b: -4"),
            Point(x=300.0, y=35.0, top=35.0, height=23.0, words="d: 2.0"),
        ),
        bar=96.0,
        zero=58.0,
        line="",
        first="a",
        last="d",
        highest="4",
        lowest="-4",
        note="2 without a number are left out",
    )


def test_whole_numbers_are_exact() -> None:
    """As in the table below the chart, however large they are."""
    rows = [("a", 28_559_213), ("b", 9_007_199_254_740_993)]
    found = chart(("name", "n"), rows, x="name", y="n", kind="bar")
    assert [point.words for point in found.points] == ["a: 28559213", "b: 9007199254740993"]
    assert (found.label, found.lowest, found.highest) == (
        "n by name: 2 rows in their order, from 0 to 9007199254740993",
        "0",
        "9007199254740993",
    )


def test_one_row_has_no_order() -> None:
    found = chart(("name", "n"), [("a", 7)], x="name", y="n", kind="bar")
    assert found.label == "n by name: 1 row, from 0 to 7"


def test_a_line_says_what_it_leaves_out() -> None:
    """So many points, and no more."""
    rows = [(i, i) for i in range(MOST + 50)]
    found = chart(("i", "j"), rows, x="i", y="j", kind="line")
    assert (len(found.points), found.note) == (MOST, f"the first {MOST} of 250 rows are drawn")
    assert found.line.startswith("0.9,104.0 2.7,103.5 ")


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ("name", "x", "there is no column `x` for y"),
        ("z", "n", "there is no column `z` for x"),
        ("n", "name", "column `name` holds `a`, which is no number"),
        ("n", "flag", "column `flag` holds `True`, which is no number"),
        ("n", "empty", "column `empty` holds no number"),
    ],
)
def test_what_cannot_be_drawn_is_said(x: str, y: str, why: str) -> None:
    with pytest.raises(NoChart) as caught:
        chart(("name", "n", "flag", "empty"), [("a", 1, True, None)], x=x, y=y, kind="bar")
    assert str(caught.value) == why


def test_extreme_values_have_a_place() -> None:
    """The difference of the highest and the lowest is beyond a float; all equal to 0 is none."""
    found = chart(("a",), [(1.7e308,), (-1.7e308,)], x="a", y="a", kind="bar")
    assert [(p.top, p.height) for p in found.points] == [(12.0, 46.0), (58.0, 46.0)]
    flat = chart(("a",), [(0,), (0,)], x="a", y="a", kind="bar")
    assert [(p.top, p.height) for p in flat.points] == [(104.0, 0.0), (104.0, 0.0)]


def test_parameters_have_fields_and_defaults() -> None:
    """What the address gives stays; numbers are numbers, instants milliseconds."""
    names = ("since", "until", "limit", "namespace", "node")
    query = {"p.since": "2026-01-01T00:00:00Z", "p.limit": "7", "p.node": "n1", "limit": "9"}
    assert [(f.name, f.value) for f in fields(names, query)] == [
        ("since", "2026-01-01T00:00:00Z"),
        ("until", ""),
        ("limit", "7"),
        ("namespace", ""),
        ("node", "n1"),
    ]
    now_ms = 1_767_225_600_000
    assert values(names, query, now_ms=now_ms) == {
        "since": 1_767_225_600_000,
        "until": 2**62,
        "limit": 7,
        "namespace": "",
        "node": "n1",
    }
    assert values(("since",), {"p.since": "1d"}, now_ms=now_ms) == {"since": now_ms - 86_400_000}
    assert values(("other",), {}, now_ms=now_ms) == {}  # the store says that it has no value
    assert fields(("other",), {}) == [
        Parameter(name="other", value="", hint="whole numbers count as numbers")
    ]
    with pytest.raises(Failure, match="`since`: "):
        values(("since",), {"p.since": "yesterdy"}, now_ms=now_ms)


def test_a_text_that_is_edited_keeps_its_lines() -> None:
    """And shows what else it holds that is obeyed instead of shown."""
    assert lines("a\r\n\tb<c>\r\x1b\u202e'") == "a\n\tb&lt;c&gt;\\r\\x1b\\u202e&#39;"
