"""Rule sets beside each other: what differs, seed by seed, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Final

from policy.simulation.figures import Figures
from policy.simulation.run import Result

Value = Callable[[Figures], int | None]

COMPARED: Final[Mapping[str, Value]] = {
    "wait p50": lambda f: f.wait.p50,
    "wait p95": lambda f: f.wait.p95,
    "wait p99": lambda f: f.wait.p99,
    "not started": lambda f: f.not_started,
    "evictions": lambda f: f.evictions,
    "repeats": lambda f: f.repeats,
    "pdb violations": lambda f: f.pdb_violations,
    "lost work": lambda f: f.lost_ms,
    "lost cpu": lambda f: f.lost_cpu_ms,
    "done": lambda f: f.done,
    "turnaround p50": lambda f: f.turnaround.p50,
    "turnaround p95": lambda f: f.turnaround.p95,
}
"""Figures that are compared. Waits and turnarounds in milliseconds, lost work in pod milliseconds,
lost cpu in thousandths of a cpu times milliseconds."""

_T975: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 0.975 for 1 to 30 degrees of freedom; beyond, the last one: a little too wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """One figure of a rule set less that of the first one, over the seeds."""

    figure: str
    priority: int | None  #: None: of all pods
    rules: str
    against: str
    seeds: int  #: at which both have the figure
    mean: float | None  #: None where no seed has both
    low: float | None  #: of the 95 % confidence interval of the mean; None with fewer than 2 seeds
    high: float | None

    @property
    def certain(self) -> bool:
        """Does the interval leave out zero?"""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def differences(results: Sequence[Result]) -> list[PairedDifference]:
    """Every rule set against the first one, paired by seed; figures that are equal left out."""
    names = list(dict.fromkeys(result.rules for result in results))
    by_rules = {name: {r.seed: r for r in results if r.rules == name} for name in names}
    if not names:
        return []
    base = by_rules[names[0]]
    found = []
    for name in names[1:]:
        other = by_rules[name]
        pairs = [(base[seed], other[seed]) for seed in sorted(base) if seed in other]
        for priority in _priorities(results):
            for figure, value in COMPARED.items():
                difference = _difference(figure, value, priority, pairs)
                if difference is not None:
                    found.append(difference)
    return found


def _priorities(results: Sequence[Result]) -> list[int | None]:
    return [None, *sorted({p for r in results for p in r.by_priority}, reverse=True)]


def _difference(
    figure: str, value: Value, priority: int | None, pairs: Sequence[tuple[Result, Result]]
) -> PairedDifference | None:
    values = []
    same = True
    for one, other in pairs:
        before, after = (_value(result, value, priority) for result in (one, other))
        same &= before == after
        if before is not None and after is not None:
            values.append(after - before)
    if same:
        return None
    low = high = None
    if len(values) > 1:
        wide = _T975[min(len(values) - 1, len(_T975)) - 1] * stdev(values) / sqrt(len(values))
        low, high = mean(values) - wide, mean(values) + wide
    return PairedDifference(
        figure=figure,
        priority=priority,
        rules=pairs[0][1].rules,
        against=pairs[0][0].rules,
        seeds=len(values),
        mean=mean(values) if values else None,
        low=low,
        high=high,
    )


def _value(result: Result, value: Value, priority: int | None) -> int | None:
    if priority is None:
        return value(result.everyone)
    figures = result.by_priority.get(priority)
    return None if figures is None else value(figures)
