"""Pictures in SVG: where lines, points and marks of an axis are. The template draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 220
LEFT: Final = 64
RIGHT: Final = 12
TOP: Final = 10
BOTTOM: Final = 26
COLOURS: Final = 7
"""Colours there are; further lines begin again."""

ChartPoint = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A labelled place on an axis."""

    at: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    colour: int  #: 1 to COLOURS
    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    colour: int
    name: str
    x: str
    y: str
    best: bool = False  #: no other one is better in both directions


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture. Coordinates are texts with one decimal."""

    title: str
    note: str = ""
    x: Sequence[Mark]
    y: Sequence[Mark]
    lines: Sequence[Line] = ()
    dots: Sequence[Dot] = ()


def colour(number: int) -> int:
    """The colour of the n-th rule set, from 0."""
    return number % COLOURS + 1


def over_time(
    title: str,
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    seconds: float,
    shown: Callable[[float], str],
    note: str = "",
) -> Chart:
    """Means over equal stretches as steps, one line for each (name, values)."""
    most = max((max(values, default=0.0) for _, values in series), default=0.0)
    steps, top = _steps(most)
    lines = []
    for number, (name, values) in enumerate(series):
        places: list[ChartPoint] = []
        for i, value in enumerate(values):
            places += [(i / len(values), value / top), ((i + 1) / len(values), value / top)]
        lines.append(Line(colour=colour(number), name=name, path=_path(places)))
    return Chart(
        title=title, note=note, x=_times(seconds), y=_marks(steps, top, shown), lines=lines
    )


def curves(title: str, curves: Sequence[tuple[str, Sequence[float | None]]], note: str) -> Chart:
    """Shares of pods (0 to 1) by waiting seconds, on a logarithmic axis.

    curves: names, and the wait at equally distant shares; None where it has no end.
    """
    known = [v for _, values in curves for v in values if v is not None]
    low, high = -3, max(1, _exponent(max(known, default=1.0)) + 1)
    lines = []
    for number, (name, values) in enumerate(curves):
        places = [
            (_log_place(value, low, high), i / max(1, len(values) - 1))
            for i, value in enumerate(values)
            if value is not None
        ]
        lines.append(Line(colour=colour(number), name=name, path=_path(places)))
    x = [
        Mark(at=_x((e - low) / (high - low)), text=_power(e))
        for e in range(low, high + 1, 1 if high - low < 8 else 2)
    ]
    y = [Mark(at=_y(share / 4), text=f"{25 * share} %") for share in range(5)]
    return Chart(title=title, note=note, x=x, y=y, lines=lines)


def front(
    title: str,
    groups: Sequence[tuple[str, Sequence[ChartPoint]]],
    *,
    shown: tuple[Callable[[float], str], Callable[[float], str]],
    note: str,
) -> Chart:
    """Points where less is better in both directions; those that none beats are joined."""
    everything = [p for _, points in groups for p in points]
    steps_x, top_x = _steps(max((x for x, _ in everything), default=0.0))
    steps_y, top_y = _steps(max((y for _, y in everything), default=0.0))
    best = sorted(unbeaten(everything))
    dots = [
        Dot(
            colour=colour(number),
            name=name,
            x=_x(x / top_x),
            y=_y(y / top_y),
            best=(x, y) in best,
        )
        for number, (name, points) in enumerate(groups)
        for x, y in points
    ]
    joined = [(x / top_x, y / top_y) for x, y in best]
    return Chart(
        title=title,
        note=note,
        x=[Mark(at=_x(s / top_x), text=shown[0](s)) for s in steps_x],
        y=_marks(steps_y, top_y, shown[1]),
        lines=[Line(colour=0, name="", path=_path(joined))],
        dots=dots,
    )


def unbeaten(points: Iterable[ChartPoint]) -> set[ChartPoint]:
    """Those than which no other is as good in both directions and better in one."""
    distinct = set(points)
    return {
        (x, y)
        for x, y in distinct
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in distinct)
    }


def _steps(most: float) -> tuple[list[float], float]:
    """Round numbers from 0 to at least the largest value, and the last of them."""
    if most <= 0:
        return [0.0, 1.0], 1.0
    rough = most / 4
    size = 10.0 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    count = -int(-most // step)
    return [round(step * i, 9) for i in range(count + 1)], step * count


def _marks(steps: Iterable[float], top: float, shown: Callable[[float], str]) -> list[Mark]:
    return [Mark(at=_y(step / top), text=shown(step)) for step in steps]


def _times(seconds: float) -> list[Mark]:
    """Marks in the largest unit of which there are at least two."""
    if not seconds:  # a simulation that was recorded when no time was not refused yet
        return [Mark(at=_x(0), text="0 s")]
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    name, size = next((u for u in units if seconds >= 2 * u[1]), units[-1])
    steps, _ = _steps(seconds / size)
    return [
        Mark(at=_x(step * size / seconds), text=f"{step:g} {name}")
        for step in steps
        if step * size <= seconds
    ]


def _exponent(value: float) -> int:
    return floor(log10(value)) if value > 0 else -3


def _log_place(value: float, low: int, high: int) -> float:
    return 0.0 if value <= 10.0**low else (log10(value) - low) / (high - low)


def _power(exponent: int) -> str:
    return {-3: "1 ms", -2: "10 ms", -1: "0.1 s"}.get(exponent, f"{10 ** max(0, exponent)} s")


def _path(places: Iterable[ChartPoint]) -> str:
    return "M" + " ".join(f"{_x(x)},{_y(y)}" for x, y in places) if places else ""


def _x(share: float) -> str:
    return f"{LEFT + share * (WIDTH - LEFT - RIGHT):.1f}"


def _y(share: float) -> str:
    return f"{HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM):.1f}"
