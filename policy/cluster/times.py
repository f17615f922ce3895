"""Instants: RFC 3339 text of the API to integer milliseconds since 1970 UTC, and back."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

MISSING: Final = -(2**63)
"""Column value of an instant that the object does not carry (smaller than every real one)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000

EARLIEST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LATEST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The instants that can be written: the first and last millisecond of the years 0001 to 9999."""

LONGEST_GRACE_SECONDS: Final = (2**63 - 1) // 10**9
"""Longest grace period of a pod: an API server counts it in int64 nanoseconds (292 years)."""

LATEST_NOW: Final = (datetime(9700, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""Latest time to decide for: what ends a grace period later still is a time."""

# INVARIANT: a victim's deletion timestamp can be written, whatever its grace period.
assert LATEST_NOW + LONGEST_GRACE_SECONDS * 1000 <= LATEST

_USUAL: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3})?Z"
).fullmatch
"""What an API server writes: `2024-06-01T00:00:00Z`; and what `to_text` does, with milliseconds."""

_DAYS: Final[dict[str, int]] = {}
_MINUTES: Final[dict[str, int]] = {}
_SECONDS: Final[dict[str, int]] = {}
"""Milliseconds of the parts of usual texts that were read: `2024-06-01T`, `12:30:` and `59Z` (or
`59.250Z`). Times differ from pod to pod, of the days that they fall on there are few."""
_MOST_DAYS: Final = 10_000

_RFC_3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


class TimeError(ValueError):
    """A text that is no RFC 3339 instant."""


def parse(text: str) -> int:
    """Milliseconds since 1970 UTC of an RFC 3339 text; finer digits are cut off.

    A leap second (`23:59:60Z` at the end of a month) is the second after it. Raises TimeError,
    also for a time whose UTC form is outside of the years 0001 to 9999.
    """
    day, minute, second = _DAYS.get(text[:11]), _MINUTES.get(text[11:17]), _SECONDS.get(text[17:])
    if day is not None and minute is not None and second is not None:
        return day + minute + second
    if _USUAL(text):
        try:
            return _remembered(text, datetime.fromisoformat(text))
        except ValueError:
            pass  # a year or a day that there is not: below is said which
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise _not_a_time(text)
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    leap = second == 60
    try:
        # In the year 2000 every month has its days, so that the year 0000 is a matter of range.
        value = datetime(year or 2000, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError:
        raise _not_a_time(text) from None
    millis = (value - _EPOCH) // _MILLISECOND + leap * 1000
    fraction, sign, hours, minutes = found.groups()[6:]
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise _not_a_time(text)
        offset = (int(hours) * 60 + int(minutes)) * 60_000
        millis += offset if sign == "-" else -offset
    if leap and not _ends_a_month(millis):
        raise _not_a_time(text)
    if fraction:
        millis += int(fraction[1:4].ljust(3, "0"))
    if not year or not EARLIEST <= millis <= LATEST:
        raise TimeError(f"`{text[:80]}` is outside of the years 0001 to 9999")
    return millis


def _remembered(text: str, value: datetime) -> int:
    """The time of a usual text, whose parts will be known from now on."""
    millis = (value - _EPOCH) // _MILLISECOND
    minute = (int(text[11:13]) * 60 + int(text[14:16])) * 60_000
    second = int(text[17:19]) * 1000 + value.microsecond // 1000
    if len(_DAYS) >= _MOST_DAYS:
        _DAYS.clear()
    _DAYS[text[:11]] = millis - minute - second
    _MINUTES[text[11:17]] = minute
    _SECONDS[text[17:]] = second
    return millis


def _not_a_time(text: str) -> TimeError:
    return TimeError(f"`{text[:80]}` is not an RFC 3339 time")


def _ends_a_month(after: int) -> bool:
    """Whether this instant is the midnight that begins a month, where leap seconds end."""
    days, rest = divmod(after, _DAY_MS)
    if rest or after <= EARLIEST:
        return False
    date = _EPOCH + timedelta(days=days - 1)
    return date.day == calendar.monthrange(date.year, date.month)[1]


def parse_optional(text: str | None) -> int:
    """`parse`, with MISSING for an absent or empty text."""
    return parse(text) if text else MISSING


def from_datetime(value: datetime) -> int:
    """Milliseconds since 1970 UTC of an aware datetime. Raises TimeError for a naive one."""
    if value.tzinfo is None:
        raise TimeError("a time without zone; give an aware datetime (for example in UTC)")
    return (value - _EPOCH) // _MILLISECOND


def to_datetime(millis: int) -> datetime | None:
    """An aware UTC datetime, None for MISSING."""
    return None if millis == MISSING else _EPOCH + timedelta(milliseconds=millis)


@lru_cache(maxsize=1024)
def to_text(millis: int) -> str | None:
    """RFC 3339 in UTC (`2026-11-21T00:00:00Z`, fractions only where there are any)."""
    value = to_datetime(millis)
    if value is None:
        return None
    # isoformat gives every year four digits, as RFC 3339 wants them; strftime does not.
    parts = "milliseconds" if value.microsecond else "seconds"
    return value.replace(tzinfo=None).isoformat(timespec=parts) + "Z"
