"""Rule sets beside each other: what differs, seed by seed, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import mean, stdev
from typing import Final

from policy.cluster.requests import CPU
from policy.simulation.figures import Figures
from policy.simulation.run import Result
from policy.simulation.uses import PriorityUse

Value = Callable[[Result, int | None], float | None]
"""Of the pods of a priority, None for all pods."""


def figures_of(result: Result, priority: int | None) -> Figures | None:
    """None where there is no pod of the priority."""
    return result.everyone if priority is None else result.by_priority.get(priority)


def _amount(value: Callable[[Figures], int]) -> Value:
    """What no pod has is 0."""

    def of(result: Result, priority: int | None) -> int:
        found = figures_of(result, priority)
        return 0 if found is None else value(found)

    return of


def _percentile(value: Callable[[Figures], int | None]) -> Value:
    def of(result: Result, priority: int | None) -> int | None:
        found = figures_of(result, priority)
        return None if found is None else value(found)

    return of


def _use(
    whole: Callable[[Result], float | None], value: Callable[[PriorityUse], float | None]
) -> Value:
    def of(result: Result, priority: int | None) -> float | None:
        if priority is None:
            return whole(result)
        found = result.use_by_priority.get(priority)
        if found is not None:
            return value(found)
        # None: the result was recorded before that was counted.
        return 0 if result.use_by_priority else None

    return of


def _broken(result: Result) -> int | None:
    """None for what really happened, which tells nothing of nominations."""
    told = [use.nominations_broken for use in result.use_by_priority.values()]
    return None if None in told else result.nominations_broken


PERCENTILES: Final[Mapping[str, Value]] = {
    "wait p50": _percentile(lambda f: f.wait.p50),
    "wait p95": _percentile(lambda f: f.wait.p95),
    "wait p99": _percentile(lambda f: f.wait.p99),
    "turnaround p50": _percentile(lambda f: f.turnaround.p50),
    "turnaround p95": _percentile(lambda f: f.turnaround.p95),
    "turnaround p99": _percentile(lambda f: f.turnaround.p99),
}
"""In milliseconds; None where the pod at that place never got there, or there is no pod."""

AMOUNTS: Final[Mapping[str, Value]] = {
    "not started": _amount(lambda f: f.not_started),
    "evictions": _amount(lambda f: f.evictions),
    "repeats": _amount(lambda f: f.repeats),
    "pdb violations": _amount(lambda f: f.pdb_violations),
    "lost work": _amount(lambda f: f.lost_ms),
    "lost cpu": _amount(lambda f: f.lost_cpu_ms),
    "done": _amount(lambda f: f.done),
    "broken nominations": _use(_broken, lambda u: u.nominations_broken),
    "mean queue": _use(lambda r: r.timeline.waiting_mean, lambda u: u.waiting_mean),
    "longest queue": _use(lambda r: r.timeline.waiting_highest, lambda u: u.waiting_highest),
    "used cpu": _use(lambda r: r.timeline.used_mean.get(CPU), lambda u: u.used_cpu_mean),
}
"""Lost work in pod milliseconds, lost cpu in thousandths of a cpu times milliseconds, used cpu as a
part of what the nodes have. None where a result does not tell it."""


def _compared(results: Sequence[Result]) -> dict[str, Value]:
    """Figures that are compared; of other resources than cpu what is used of them in all."""
    others = sorted({name for r in results for name in r.timeline.used_mean} - {CPU})
    used = {f"used {name}": _use(partial(_used, name), lambda _: None) for name in others}
    return {**PERCENTILES, **AMOUNTS, **used}


def _used(resource: str, result: Result) -> float | None:
    return result.timeline.used_mean.get(resource)


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
    seeds: int  #: at which both have the figure, and so what the mean is of
    of_seeds: int  #: at which both were simulated
    never: int  #: at which the figure is never for one of them or both, though pods came
    mean: float | None  #: None where no seed has both
    low: float | None  #: of the 95 % confidence interval of the mean; None with fewer than 2 seeds
    high: float | None


def differences(results: Sequence[Result]) -> list[PairedDifference]:
    """Every rule set against the first one, paired by seed; figures that are equal left out."""
    names = list(dict.fromkeys(result.rules for result in results))
    by_rules = {name: {r.seed: r for r in results if r.rules == name} for name in names}
    if not names:
        return []
    base = by_rules[names[0]]
    compared = _compared(results)
    found = []
    for name in names[1:]:
        other = by_rules[name]
        pairs = [(base[seed], other[seed]) for seed in sorted(base) if seed in other]
        for priority in _priorities(results):
            for figure, value in compared.items():
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
    never = 0
    for one, other in pairs:
        before, after = value(one, priority), value(other, priority)
        same &= before == after
        if before is not None and after is not None:
            values.append(round(after - before, 6))
        elif figure not in PERCENTILES:
            return None  # one of them does not tell it
        elif any(arrived(result, priority) for result in (one, other)):
            never += 1
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
        of_seeds=len(pairs),
        never=never,
        mean=mean(values) if values else None,
        low=low,
        high=high,
    )


def arrived(result: Result, priority: int | None) -> bool:
    """Did any pod of the priority come?"""
    found = figures_of(result, priority)
    return found is not None and found.arrived > 0
