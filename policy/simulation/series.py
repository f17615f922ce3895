"""Quantities over time: exact means over equal stretches, whatever happens within one."""

from __future__ import annotations


class TimeSeries:
    """A quantity that keeps its value until it is changed.

    Sums are exact integers: value times milliseconds.
    """

    def __init__(self, *, start_ms: int, end_ms: int, parts: int) -> None:
        self._start = self._at = start_ms
        self._end = end_ms
        self._parts = parts
        self._sums = [0] * parts
        self.value = 0
        self.highest = 0
        self.total = 0  #: over the whole time so far

    def add(self, at_ms: int, amount: int) -> None:
        """From `at_ms` on the value is larger by `amount`. Instants never go back."""
        self.move(at_ms)
        self.value += amount
        self.highest = max(self.highest, self.value)

    def move(self, at_ms: int) -> None:
        """The value has been the same until now."""
        assert at_ms >= self._at, "time runs backwards"
        if at_ms == self._at:
            return
        self.total += self.value * (at_ms - self._at)
        if self.value:
            self._spread(self._at, min(at_ms, self._end))
        self._at = at_ms

    def _spread(self, since: int, until: int) -> None:
        length = self._end - self._start
        while since < until:
            part = (since - self._start) * self._parts // length
            # The first instant of the next part, rounded up as the line above rounds down.
            edge = self._start + -(-(part + 1) * length // self._parts)
            stop = min(edge, until)
            self._sums[part] += self.value * (stop - since)
            since = stop

    def means(self) -> list[float]:
        """Mean value of each part, rounded to three digits."""
        length = self._end - self._start
        found = []
        for part, total in enumerate(self._sums):
            begin = -(-part * length // self._parts)
            end = -(-(part + 1) * length // self._parts)
            found.append(round(total / (end - begin), 3) if end > begin else 0.0)
        return found
