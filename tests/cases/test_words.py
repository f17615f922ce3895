"""Numbers and lengths of time in sentences."""

from __future__ import annotations

import pytest

from policy.text.words import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (3600, "1 h"),
        (86400 * 1234 + 5, "1 234 d"),
        (86400 + 3600 * 5, "1 d 5 h"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds: int, text: str) -> None:
    """Exact enough to compare, short enough to read."""
    assert duration(seconds) == text
