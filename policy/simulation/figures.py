"""The figures of a simulation, per priority and in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.simulation.lives import Life, Lives, SimulatedEviction, Where
from policy.simulation.series import TimeSeries

REPEATED_WITHIN_MS: Final = 3_600_000
"""An eviction is a repeat where one of the same workload is at most so long past."""

CURVE: Final = tuple(range(101))
"""Percentiles of the curve of waiting times."""


_NONE_LEFT: Final = frozenset({Where.DONE, Where.WITHDRAWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles in milliseconds; None where the pod at that place never got there.

    Nearest rank over all pods; one that never got there counts as longer than any.
    """

    p50: int | None
    p95: int | None
    p99: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What happened to a group of pods."""

    pods: int  #: that came in the simulated time, and those that ran at its start
    arrived: int  #: of them, those that came
    started: int  #: of those that came, the ones that started at least once
    not_started: int  #: that came and never started, withdrawn ones too
    withdrawn: int
    done: int
    wait: Spread  #: from arrival to first start, of those that came
    turnaround: Spread  #: from arrival until the work is done, of those that came and have an end
    evictions: int
    repeats: int  #: evictions of a workload within an hour of another one
    pdb_violations: int
    run_ms: int  #: pod milliseconds of running in the simulated time
    done_ms: int
    lost_ms: int  #: work that was thrown away, with what was done of it before the simulated time
    lost_cpu_ms: int  #: thousandths of a cpu times milliseconds, thrown away
    wait_curve: tuple[int | None, ...]  #: waits at `CURVE`; empty where no pod came
    #: of `lost_ms`, what was done before the simulated time: run == done + lost - lost before
    lost_before_ms: int = 0
    #: work that is left at the end, of pods that have an end and were not withdrawn; None in a
    #: recorded result of format 1
    remaining_ms: int | None = None
    #: pod milliseconds of waiting in the simulated time; None in a recorded result of format 2
    waiting_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Quantities over time: means over stretches of equal length."""

    waiting: tuple[float, ...]
    running: tuple[float, ...]
    used: Mapping[str, tuple[float, ...]]  #: by resource, as parts of what there is
    waiting_mean: float
    waiting_highest: int
    used_mean: Mapping[str, float]  #: by resource, as part of what there is


def by_priority(lives: Lives) -> tuple[Figures, dict[int, Figures]]:
    """The figures of all pods, and by priority from the highest."""
    groups: dict[int, list[Life]] = defaultdict(list)
    evictions: dict[int, list[SimulatedEviction]] = defaultdict(list)
    for life in lives.by_key.values():
        groups[life.priority].append(life)
    repeated = set(_repeats(lives.evictions))
    for eviction in lives.evictions:
        evictions[eviction.priority].append(eviction)
    repeats: dict[int, int] = defaultdict(int)
    for number in repeated:
        repeats[lives.evictions[number].priority] += 1
    everyone = _figures(
        list(lives.by_key.values()), lives.evictions, len(repeated), lives.waiting.total
    )
    return everyone, {
        priority: _figures(
            groups[priority],
            evictions[priority],
            repeats[priority],
            lives.waiting_of[priority].total,
        )
        for priority in sorted(groups, reverse=True)
    }


def timeline(lives: Lives) -> Timeline:
    """The quantities of a finished simulation over time."""
    length = lives.end_ms - lives.start_ms
    return Timeline(
        waiting=tuple(lives.waiting.means()),
        running=tuple(lives.running.means()),
        used={name: _share(used, lives.capacity[name]) for name, used in lives.used.items()},
        waiting_mean=round(lives.waiting.total / length, 3) if length else 0.0,
        waiting_highest=lives.waiting.highest,
        used_mean={
            name: round(used.total / lives.capacity[name].total, 6)
            for name, used in lives.used.items()
            if lives.capacity[name].total
        },
    )


def spread(values: Sequence[int | None]) -> Spread:
    """Percentiles of values of which None is the longest."""
    ordered = _ordered(values)
    return Spread(p50=_at(ordered, 50), p95=_at(ordered, 95), p99=_at(ordered, 99))


def _figures(
    lives: Sequence[Life],
    evictions: Sequence[SimulatedEviction],
    repeats: int,
    waiting_ms: int,
) -> Figures:
    present = [life for life in lives if life.where is not Where.AHEAD]
    came = [life for life in present if not life.task.running]
    waits = [_since(life, life.first_start_ms) for life in came]
    ends = [
        _since(life, life.ended_ms if life.where is Where.DONE else None)
        for life in came
        if life.task.work_ms is not None and life.where is not Where.WITHDRAWN
    ]
    started = sum(life.first_start_ms is not None for life in came)
    ordered = _ordered(waits)
    return Figures(
        pods=len(present),
        arrived=len(came),
        started=started,
        not_started=len(came) - started,
        withdrawn=sum(life.where is Where.WITHDRAWN for life in present),
        done=sum(life.where is Where.DONE for life in present),
        wait=spread(waits),
        turnaround=spread(ends),
        evictions=len(evictions),
        repeats=repeats,
        pdb_violations=sum(e.pdb_violating for e in evictions),
        run_ms=sum(life.done_ms + life.lost_ms - life.lost_before_ms for life in present),
        done_ms=sum(life.done_ms for life in present),
        lost_ms=sum(life.lost_ms for life in present),
        lost_cpu_ms=sum(life.lost_ms * life.cpu_milli for life in present),
        lost_before_ms=sum(life.lost_before_ms for life in present),
        remaining_ms=sum(life.left_ms or 0 for life in present if life.where not in _NONE_LEFT),
        waiting_ms=waiting_ms,
        wait_curve=tuple(_at(ordered, p) for p in CURVE) if ordered else (),
    )


def _since(life: Life, at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms - life.task.arrives_ms


def _ordered(values: Iterable[int | None]) -> list[int | None]:
    return sorted(values, key=lambda v: (v is None, v or 0))


def _at(ordered: Sequence[int | None], percent: int) -> int | None:
    if not ordered:
        return None
    rank = max(1, -(-percent * len(ordered) // 100))
    return ordered[rank - 1]


def _repeats(evictions: Sequence[SimulatedEviction]) -> Iterable[int]:
    last: dict[str, int] = {}
    for number, eviction in enumerate(evictions):
        before = last.get(eviction.workload)
        if before is not None and eviction.at_ms - before <= REPEATED_WITHIN_MS:
            yield number
        last[eviction.workload] = eviction.at_ms


def _share(used: TimeSeries, capacity: TimeSeries) -> tuple[float, ...]:
    pairs = zip(used.means(), capacity.means(), strict=True)
    return tuple(round(u / c, 6) if c else 0.0 for u, c in pairs)
