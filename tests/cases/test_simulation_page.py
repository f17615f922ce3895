"""The page of a simulation: pictures whose every place can be worked out, and nothing from afar."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from policy.simulation.charts import front, over_time, unbeaten
from policy.simulation.folder import read_trace
from policy.simulation.keeping import document, result_of
from policy.simulation.options import Options
from policy.simulation.page import page
from policy.simulation.run import simulate
from tests.support.builders import rule_set

TRACE = Path(__file__).parents[2] / "examples" / "simulation" / "trace"


class _Page(HTMLParser):
    """Elements that are open, those that load something, and the headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.foreign: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"} or {n for n, _ in attrs} & {"src", "href"}:
            self.foreign.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    """Every element is closed, nothing is loaded, and every part is there."""
    trace = read_trace(TRACE)
    results = [
        simulate(trace, rule_set(name), options=Options(length_ms=200_000), seed=seed)
        for seed in range(2)
        for name in ("kube-1.36", "kube-1.20")
    ]
    told = _Page()
    told.feed(page(results, ["a <note>"]))
    assert (told.open, told.foreign, told.headings) == (
        [],
        [],
        [
            "Figures",
            "The whole run",
            "What differs from kube-1.36, seed by seed",
            "Pods that wait",
            "Requested cpu",
            "Lost work against waiting",
            "Priority 9",
            "Priority 1",
            "What was assumed",
        ],
    )
    assert "a &lt;note&gt;" in page(results, ["a <note>"])


def test_a_result_that_was_recorded_before_can_be_read(tmp_path: Path) -> None:
    """Of format 1: without what was counted later, and perhaps of no time at all."""
    result = simulate(read_trace(TRACE), rule_set("kube-1.36"), options=Options(length_ms=200_000))
    told = document(result)
    del told["format"]
    for figures in (told["everyone"], *told["by_priority"].values()):
        del figures["lost_before_ms"], figures["remaining_ms"], figures["waiting_ms"]
    options = told.pop("options")
    del options["history"]
    told["end_ms"] = told["start_ms"]
    old = result_of(json.dumps(options), json.dumps(told))
    assert (old.format, old.everyone.remaining_ms, old.everyone.lost_before_ms, old.options) == (
        1,
        None,
        0,
        result.options,
    )
    assert (result.format, result.everyone.remaining_ms, result.everyone.waiting_ms) == (
        3,
        0,
        80_030,
    )
    assert "0 s</text>" in page([old], [])


def test_a_line_over_time_is_made_of_steps() -> None:
    """Two stretches with 1 and 3 pods, on an axis that ends at 3."""
    chart = over_time("t", [("a", [1.0, 3.0])], seconds=600, shown=lambda v: f"{v:g}")
    assert (chart.lines[0].path, [m.text for m in chart.x], [m.text for m in chart.y]) == (
        "M64.0,132.7 506.0,132.7 506.0,10.0 948.0,10.0",
        ["0 min", "5 min", "10 min"],
        ["0", "1", "2", "3"],
    )


def test_the_front_joins_what_nothing_beats() -> None:
    """A point that another one beats in one direction, and equals in the other, is not of it."""
    points = [(1.0, 4.0), (2.0, 2.0), (2.0, 3.0), (4.0, 1.0), (4.0, 4.0)]
    chart = front("t", [("a", points)], shown=(str, str), note="")
    assert unbeaten(points) == {(1.0, 4.0), (2.0, 2.0), (4.0, 1.0)}
    assert [dot.best for dot in chart.dots] == [True, True, False, True, False]
