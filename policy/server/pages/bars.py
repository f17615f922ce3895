"""Bars of a count by time, each with a link to the list of what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from policy.audit.documents import instant
from policy.cluster import times
from policy.store.read.figures import DAY_MS

HEIGHT: Final = 60
"""Of a bar's picture, in units of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What was counted in one stretch of time."""

    label: str  #: when, in UTC
    at: str  #: the instant that it begins at; "" for days, which are those of UTC
    count: int
    height: int  #: of `HEIGHT`; at least 2 where something was counted
    href: str  #: the list of it


def bars(
    counts: Mapping[int, int],
    *,
    since_ms: int,
    until_ms: int,
    step_ms: int,
    given: Mapping[str, str],
) -> list[Bar]:
    """Bars from an instant to another one, with empty ones where nothing was counted.

    The last one may be of less than a step. counts: by the first millisecond of a stretch. given:
    filters of the list beside the time.
    """
    starts = range(since_ms, until_ms, step_ms)
    ends = [min(start + step_ms, until_ms) for start in starts]
    most = max((counts.get(start, 0) for start in starts), default=0)
    return [
        Bar(
            label=_label(start, end, step_ms),
            at=instant(start) if step_ms < DAY_MS else "",
            count=counts.get(start, 0),
            height=max(2, round(HEIGHT * counts[start] / most)) if counts.get(start) else 0,
            href="/decisions?" + urlencode({**given, "since": instant(start), "until": _end(end)}),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _label(start: int, end: int, step_ms: int) -> str:
    """`2026-11-22 14:00`, `2026-11-22`, or both ends of more days."""
    text = instant(start)
    if step_ms < DAY_MS:
        return text[:16].replace("T", " ")
    if end - start == DAY_MS:
        return text[:10]
    return f"{text[:10]} to {_end(end - DAY_MS)[:10]}"


def _end(millis: int) -> str:
    """The end of a stretch; of the last one that is the last instant that can be written."""
    return instant(min(millis, times.LATEST))
