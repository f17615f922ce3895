"""Bar and line of two columns of a result, as the server draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

WIDTH: Final = 360
HEIGHT: Final = 120
MOST: Final = 200
"""Points that are drawn."""
KINDS: Final = ("bar", "line")
Number: TypeAlias = int | float

_TOP: Final = 12
_BOTTOM: Final = 104


class NoChart(Exception):  # in words, with what to do
    """The columns cannot be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row."""

    x: float  #: middle of the row's place
    y: float
    top: float  #: of its bar
    height: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What a template draws; places in units of WIDTH and HEIGHT, from the upper left."""

    kind: str
    label: str  #: the chart in one sentence
    points: tuple[Point, ...]
    bar: float  #: width of a bar
    zero: float  #: where 0 is
    line: str  #: `points` of a polyline; "" for bars
    first: str  #: x of the first row, and of the last
    last: str
    highest: str
    lowest: str
    note: str  #: what is not drawn; "" where all is


def chart(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, x: str, y: str, kind: str
) -> Chart:
    """The rows in their order, side by side. Raises NoChart."""
    for name, given in (("x", x), ("y", y)):
        if given not in columns:
            raise NoChart(f"there is no column `{given}` for {name}")
    across, up = columns.index(x), columns.index(y)
    texts = [row[up] for row in rows if row[up] is not None and not is_number(row[up])]
    if texts:
        raise NoChart(f"column `{y}` holds `{str(texts[0])[:40]}`, which is no number")
    whole = [(_words(row[across]), row[up]) for row in rows if row[up] is not None]
    found = [(name, value) for name, value in whole if math.isfinite(value)]
    if not found:
        raise NoChart(f"column `{y}` holds no number")
    drawn = found[:MOST]
    # As the table prints them; 0 is on every chart.
    values = [0, *(value for _, value in drawn)]
    most, least = max(values), min(values)
    highest, lowest = float(most), float(least)
    # The height is divided, not the values: their difference may be beyond every float.
    span = highest / 2 - lowest / 2
    step = WIDTH / len(drawn)
    shown = "1 row" if len(drawn) == 1 else f"{len(drawn)} rows in their order"

    def place(value: Number) -> float:
        share = (highest / 2 - float(value) / 2) / span if span else 1.0
        return round(_TOP + share * (_BOTTOM - _TOP), 1)

    zero = place(0)
    points = tuple(
        Point(
            x=round((i + 0.5) * step, 1),
            y=place(value),
            top=min(place(value), zero),
            height=round(abs(place(value) - zero), 1),
            words=f"{name}: {value}",
        )
        for i, (name, value) in enumerate(drawn)
    )
    return Chart(
        kind=kind,
        label=f"{y} by {x}: {shown}, from {least} to {most}",
        points=points,
        bar=round(step * 0.8, 2),
        zero=zero,
        line=" ".join(f"{point.x},{point.y}" for point in points) if kind == "line" else "",
        first=drawn[0][0],
        last=drawn[-1][0] if len(drawn) > 1 else "",
        highest=str(most),
        lowest=str(least),
        note=_note(len(rows), len(found), len(drawn)),
    )


def _note(rows: int, found: int, drawn: int) -> str:
    parts = []
    if drawn < found:
        parts.append(f"the first {drawn} of {found} rows are drawn")
    if found < rows:
        parts.append(f"{rows - found} without a number are left out")
    return "; ".join(parts)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(value: Any) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
