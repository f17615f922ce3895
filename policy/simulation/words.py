"""Results in the words of tables: counts, times and differences, means over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from policy.audit.compare import duration
from policy.simulation.figures import Figures
from policy.simulation.paired import PairedDifference
from policy.simulation.run import Result

_TIMES: Final = ("wait", "turnaround", "lost work")


def names(results: Sequence[Result]) -> list[str]:
    """The rule sets, in the order in which they were given."""
    return list(dict.fromkeys(result.rules for result in results))


def of_rules(results: Sequence[Result], name: str) -> list[Result]:
    """The results of one rule set, by seed."""
    return sorted((r for r in results if r.rules == name), key=lambda r: r.seed)


def figure_line(rules: str, priority: str, found: Sequence[Figures]) -> dict[str, Any]:
    """The figures of one priority, or of all pods."""

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


def whole_line(results: Sequence[Result]) -> dict[str, Any]:
    """What is not counted by priority."""

    def mean(of: Callable[[Result], float]) -> float:
        return sum(of(result) for result in results) / len(results)

    def used(resource: str) -> str:
        share = mean(lambda r: r.timeline.used_mean.get(resource, 0.0))
        return f"{resource} {100 * share:.1f} %"

    resources = sorted(results[0].timeline.used_mean)
    return {
        "rules": results[0].rules,
        "cycles": _count(mean(lambda r: r.cycles)),
        "nominations": _count(mean(lambda r: r.nominations)),
        "broken": _count(mean(lambda r: r.nominations_broken)),
        "mean queue": f"{mean(lambda r: r.timeline.waiting_mean):.1f}",
        "longest queue": _count(mean(lambda r: r.timeline.waiting_highest)),
        "used": ", ".join(map(used, resources)),
    }


def difference_line(one: PairedDifference) -> dict[str, Any]:
    """A figure that differs, with its interval."""

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
