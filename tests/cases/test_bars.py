"""Bars of a count by time."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from policy.cluster import times
from policy.server.pages.bars import bars
from policy.store.read.figures import DAY_MS


def test_the_last_bar_ends_with_the_time_that_is_shown() -> None:
    """Of seven days each; the rest of the last week is to come."""
    since_ms = times.parse("2026-11-14T00:00:00Z")
    counts = {since_ms: 4, since_ms + 14 * DAY_MS: 2}
    found = bars(
        counts, since_ms=since_ms, until_ms=since_ms + 15 * DAY_MS, step_ms=7 * DAY_MS, given={}
    )
    assert [(one.label, one.count, dict(parse_qsl(urlsplit(one.href).query))) for one in found] == [
        (label, count, {"since": f"{since}T00:00:00Z", "until": f"{until}T00:00:00Z"})
        for label, count, since, until in (
            ("2026-11-14 to 2026-11-20", 4, "2026-11-14", "2026-11-21"),
            ("2026-11-21 to 2026-11-27", 0, "2026-11-21", "2026-11-28"),
            ("2026-11-28", 2, "2026-11-28", "2026-11-29"),
        )
    ]
