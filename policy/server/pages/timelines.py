"""Time lines: strips of one axis, each with what lasts as bars and what happens as marks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 16
MARK: Final = 4
"""Width of a mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What lasts."""

    x: float
    width: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What happens at an instant, and the page about it."""

    x: float
    words: str
    address: str  #: "" where it has no page


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """What a template draws in one line."""

    label: str
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The time that all strips of a time line show."""

    first_ms: int
    last_ms: int

    @classmethod
    def over(cls, instants: Iterable[int]) -> Axis:
        """From the earliest to the latest of at least one instant."""
        known = sorted(instants)
        return cls(first_ms=known[0], last_ms=known[-1])

    def at(self, ms: int) -> float:
        """Where an instant is; one outside is at the edge."""
        length = self.last_ms - self.first_ms
        share = (ms - self.first_ms) / length if length else 0.5
        return round(min(max(share, 0.0), 1.0) * WIDTH, 1)

    def span(self, from_ms: int, to_ms: int, words: str) -> Span:
        """Never too narrow to be seen."""
        x = self.at(from_ms)
        width = max(self.at(to_ms) - x, 1.0)
        return Span(x=min(x, WIDTH - width), width=round(width, 1), words=words)

    def mark(self, ms: int, words: str, address: str) -> Mark:
        x = min(max(self.at(ms) - MARK / 2, 0.0), WIDTH - MARK)
        return Mark(x=round(x, 1), words=words, address=address)
