"""Results in the words of tables: counts, times and differences, means over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from policy.simulation.figures import Figures
from policy.simulation.options import Options
from policy.simulation.paired import AMOUNTS, PERCENTILES, PairedDifference, arrived, figures_of
from policy.simulation.run import Result
from policy.text.words import duration, number

_CPU_HOUR: Final = 3_600_000_000
_TIMES: Final = ("wait", "turnaround", "lost work")


def names(results: Sequence[Result]) -> list[str]:
    """The rule sets, in the order in which they were given."""
    return list(dict.fromkeys(result.rules for result in results))


def of_rules(results: Sequence[Result], name: str) -> list[Result]:
    """The results of one rule set, by seed."""
    return sorted((r for r in results if r.rules == name), key=lambda r: r.seed)


def assumed(options: Options) -> list[tuple[str, str]]:
    """What a simulation assumes, by what it concerns."""
    o = options
    bare = "never" if o.bare_return_ms is None else f"after {o.bare_return_ms / 1000:g} s"
    return [
        ("evicted pods restart", f"with their {o.restart} work"),
        ("controllers make them again", f"after {o.return_ms / 1000:g} s"),
        ("pods without controller come back", bare),
        ("a scheduling cycle takes", f"{o.cycle_ms} ms"),
        ("unknown durations", str(o.durations)),
        ("the past that rules may read", o.history),
        ("scheduler", o.scheduler),
    ]


def figure_lines(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The figures of one rule set, means over the seeds: of all pods, then by priority."""
    priorities = sorted({p for r in results for p in r.by_priority}, reverse=True)
    return [_figure_line(results, priority) for priority in (None, *priorities)]


def _figure_line(results: Sequence[Result], priority: int | None) -> dict[str, Any]:
    def amount(of: Callable[[Figures], int]) -> float:
        """What no pod of a seed has is 0."""
        found = (figures_of(result, priority) for result in results)
        return sum(0 if figures is None else of(figures) for figures in found) / len(results)

    def told(name: str) -> float | None:
        values = [AMOUNTS[name](result, priority) for result in results]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(values) else None

    share = told("used cpu")
    return {
        "rules": results[0].rules,
        "priority": "all" if priority is None else str(priority),
        "pods": _count(amount(lambda f: f.pods)),
        "started": _count(amount(lambda f: f.started)),
        "not started": _count(told("not started")),
        **{
            name: _percentile(results, priority, name)
            for name in ("wait p50", "wait p95", "wait p99", "turnaround p50")
        },
        "evictions": _count(told("evictions")),
        "repeats": _count(told("repeats")),
        "pdb violations": _count(told("pdb violations")),
        "lost work": _time(told("lost work")),
        "lost cpu": f"{_number((told('lost cpu') or 0) / _CPU_HOUR)} cpu h",
        "broken": _count(told("broken nominations")),
        "mean queue": _one_decimal(told("mean queue")),
        "longest queue": _count(told("longest queue")),
        "used cpu": "" if share is None else f"{100 * share:.1f} %",
    }


def _percentile(results: Sequence[Result], priority: int | None, name: str) -> str:
    """The mean over the seeds in which pods came; it says in how many of them it is never."""
    came = [r for r in results if arrived(r, priority)]
    values = [PERCENTILES[name](result, priority) for result in came]
    known = [value for value in values if value is not None]
    if not came:
        return ""
    if not known:
        text = "never"
    elif len(known) < len(values):
        return f"never in {len(values) - len(known)} of {number(len(results), 'seed')}"
    else:
        text = _time(sum(known) / len(known))
    every = len(came) == len(results)
    return text if every else f"{text} in {len(came)} of {number(len(results), 'seed')}"


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
        "mean queue": _one_decimal(mean(lambda r: r.timeline.waiting_mean)),
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
            return f"{sign}{_number(abs(value) / _CPU_HOUR)} cpu h"
        if one.figure.startswith("used "):
            return f"{sign}{100 * abs(value):.2f} points"  # of percent
        return f"{sign}{_number(abs(value))}"

    between = "" if one.low is None else f"{told(one.low)} .. {told(one.high)}"
    return {
        "rules": one.rules,
        "priority": "all" if one.priority is None else str(one.priority),
        "figure": one.figure,
        "difference": told(one.mean) if one.mean is not None else "never in one of them",
        "95 % interval": between,
        "seeds": _seeds(one),
    }


def _seeds(one: PairedDifference) -> str:
    """`4`; `3 of 4` where no pod of the priority came with one, or the figure is never with it."""
    if one.seeds == one.of_seeds:
        return str(one.seeds)
    text = f"{one.seeds} of {one.of_seeds}"
    return f"{text}, never in {one.never}" if one.never else text


def _one_decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


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
