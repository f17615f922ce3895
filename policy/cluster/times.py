"""Instants: RFC 3339 text of the API to integer milliseconds since 1970 UTC, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

MISSING: Final = -(2**63)
"""Column value of an instant that the object does not carry (smaller than every real one)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class TimeError(ValueError):
    """A text that is no RFC 3339 instant."""


@lru_cache(maxsize=65536)
def parse(text: str) -> int:
    """Milliseconds since 1970 UTC. Raises TimeError."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(f"`{text[:80]}` is not an RFC 3339 time") from None
    if value.tzinfo is None:
        raise TimeError(f"`{text[:80]}` has no time zone")
    return (value - _EPOCH) // _MILLISECOND


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


def to_text(millis: int) -> str | None:
    """RFC 3339 in UTC (`2026-11-21T00:00:00Z`, fractions only where there are any)."""
    value = to_datetime(millis)
    if value is None:
        return None
    # isoformat gives every year four digits, as RFC 3339 wants them; strftime does not.
    parts = "milliseconds" if value.microsecond else "seconds"
    return value.replace(tzinfo=None).isoformat(timespec=parts) + "Z"
