"""How `policy simulate` shows what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from policy.audit.compare import duration
from policy.cli import output, session
from policy.simulation.figures import Figures
from policy.simulation.paired import Difference, differences
from policy.simulation.run import Result

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

_TIMES: Final = ("wait", "turnaround", "lost work")


def show(results: Sequence[Result], form: str) -> None:
    """Results on standard output, and what differs between rule sets."""
    if form == "json":
        output.document(document(results), form)
        return
    lines = [
        line for name in _names(results) for line in _lines([r for r in results if r.rules == name])
    ]
    output.print_table(lines, columns=("rules", *_RIGHT), right=_RIGHT)
    output.line()
    output.print_table(
        [_whole([r for r in results if r.rules == name]) for name in _names(results)],
        columns=("rules", "cycles", "nominations", "broken", "mean queue", "longest queue", "used"),
        right=("cycles", "nominations", "broken", "mean queue", "longest queue"),
    )
    apart = differences(results)
    if apart:
        output.line()
        output.line(f"what differs from `{apart[0].against}`, seed by seed")
        output.print_table(
            [_difference(one) for one in apart],
            columns=("rules", "priority", "figure", "difference", "95 % interval"),
            right=("priority", "difference", "95 % interval"),
        )
    elif len(_names(results)) > 1:
        output.line()
        output.line("no figure differs between the rule sets")


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for programs. Times in milliseconds where a name ends in `_ms`."""
    return {
        "simulations": [_result(result) for result in results],
        "differences": [asdict(one) for one in differences(results)],
    }


def _result(result: Result) -> dict[str, Any]:
    told = asdict(result)
    told["start"] = session.instant(told.pop("start_ms"))
    told["end"] = session.instant(told.pop("end_ms"))
    told["by_priority"] = {str(p): f for p, f in told["by_priority"].items()}
    told["outcomes"] = {str(o): n for o, n in told["outcomes"].items()}
    return told


def _names(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.rules for result in results))


def _lines(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The figures of one rule set, means over the seeds; all pods first."""
    priorities = sorted({p for r in results for p in r.by_priority}, reverse=True)
    lines = [_line(results[0].rules, "all", [r.everyone for r in results])]
    for priority in priorities:
        found = [r.by_priority[priority] for r in results if priority in r.by_priority]
        lines.append(_line(results[0].rules, str(priority), found))
    return lines


def _line(rules: str, priority: str, found: Sequence[Figures]) -> dict[str, Any]:
    def mean(of: Callable[[Figures], int | None]) -> float | None:
        values = [of(figures) for figures in found]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(values) else None

    came = any(figures.arrived for figures in found)
    return {
        "rules": rules,
        "priority": priority,
        "pods": _count(mean(lambda f: f.pods)),
        "started": _count(mean(lambda f: f.started)),
        "not started": _count(mean(lambda f: f.not_started)),
        "wait p50": _time(mean(lambda f: f.wait.p50)) if came else "",
        "wait p95": _time(mean(lambda f: f.wait.p95)) if came else "",
        "wait p99": _time(mean(lambda f: f.wait.p99)) if came else "",
        "turnaround p50": _time(mean(lambda f: f.turnaround.p50)) if came else "",
        "evictions": _count(mean(lambda f: f.evictions)),
        "repeats": _count(mean(lambda f: f.repeats)),
        "pdb violations": _count(mean(lambda f: f.pdb_violations)),
        "lost work": _time(mean(lambda f: f.lost_ms)),
        "lost cpu": f"{_number((mean(lambda f: f.lost_cpu_ms) or 0) / 3_600_000_000)} cpu h",
    }


def _whole(results: Sequence[Result]) -> dict[str, Any]:
    def mean(of: Callable[[Result], float]) -> float:
        return sum(of(result) for result in results) / len(results)

    resources = sorted(results[0].timeline.used_mean)
    return {
        "rules": results[0].rules,
        "cycles": _count(mean(lambda r: r.cycles)),
        "nominations": _count(mean(lambda r: r.nominations)),
        "broken": _count(mean(lambda r: r.nominations_broken)),
        "mean queue": f"{mean(lambda r: r.timeline.waiting_mean):.1f}",
        "longest queue": _count(mean(lambda r: r.timeline.waiting_highest)),
        "used": ", ".join(
            f"{name} {100 * mean(lambda r, name=name: r.timeline.used_mean.get(name, 0.0)):.1f} %"  # type: ignore[misc]
            for name in resources
        ),
    }


def _difference(one: Difference) -> dict[str, Any]:
    def told(value: float | None) -> str:
        if value is None:
            return ""
        sign = "+" if value > 0 else "-" if value < 0 else ""
        if one.figure.startswith(_TIMES):
            return f"{sign}{_time(abs(value))}"
        if one.figure == "lost cpu":
            return f"{sign}{_number(abs(value) / 3_600_000_000)} cpu h"
        return f"{sign}{_number(abs(value))}"

    between = "" if one.low is None else f"{told(one.low)} .. {told(one.high)}"
    return {
        "rules": one.rules,
        "priority": "all" if one.priority is None else str(one.priority),
        "figure": one.figure,
        "difference": told(one.mean) if one.mean is not None else "never in one of them",
        "95 % interval": between,
    }


def _count(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _time(millis: float | None) -> str:
    """`0.005 s`, `38 s`, `2 h 5 min`; `never` where the percentile's pod did not get there."""
    if millis is None:
        return "never"
    if 0 < millis < 10_000:
        return f"{millis / 1000:.3f} s"
    return duration(round(millis / 1000))
