"""How `policy simulate` shows what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from policy.cli import output, session
from policy.simulation.keeping import document as plain
from policy.simulation.paired import differences
from policy.simulation.run import Result
from policy.simulation.words import difference_line, figure_lines, names, of_rules, whole_line

_RIGHT: Final = (
    "priority",
    "pods",
    "started",
    "not started",
    "wait p50",
    "wait p95",
    "wait p99",
    "turnaround p50",
    "evictions",
    "repeats",
    "pdb violations",
    "lost work",
    "lost cpu",
)


def show(results: Sequence[Result], form: str, *, notes: Sequence[str]) -> None:
    """Results on standard output, and what differs between rule sets."""
    if form == "html":
        # Only who wants the page loads the template engine.
        from policy.simulation.page import page

        output.data(page(results, notes))
        return
    if form == "json":
        output.document(document(results), form)
        return
    lines = [line for name in names(results) for line in figure_lines(of_rules(results, name))]
    output.print_table(lines, columns=("rules", *_RIGHT), right=_RIGHT)
    output.line()
    output.print_table(
        [whole_line(of_rules(results, name)) for name in names(results)],
        columns=("rules", "cycles", "nominations", "broken", "mean queue", "longest queue", "used"),
        right=("cycles", "nominations", "broken", "mean queue", "longest queue"),
    )
    apart = differences(results)
    if apart:
        output.line()
        output.line(f"what differs from `{apart[0].against}`, seed by seed")
        output.print_table(
            [difference_line(one) for one in apart],
            columns=("rules", "priority", "figure", "difference", "95 % interval", "seeds"),
            right=("priority", "difference", "95 % interval", "seeds"),
        )
    elif len(names(results)) > 1:
        output.line()
        output.line("no figure differs between the rule sets")


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for programs. Times in milliseconds where a name ends in `_ms`."""
    return {
        "simulations": [_result(result) for result in results],
        "differences": [asdict(one) for one in differences(results)],
    }


def _result(result: Result) -> dict[str, Any]:
    told = plain(result)
    told["start"] = session.instant(told.pop("start_ms"))
    told["end"] = session.instant(told.pop("end_ms"))
    return told
