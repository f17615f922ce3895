"""Spans of time as Go writes them: 90s, 1h30m, 250ms."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "ns": Decimal("0.000001"),
    "us": Decimal("0.001"),
    "µs": Decimal("0.001"),
    "ms": Decimal(1),
    "s": Decimal(1000),
    "m": Decimal(60_000),
    "h": Decimal(3_600_000),
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def milliseconds(text: str) -> int | None:
    """`time.ParseDuration`, cut to milliseconds; None where it fails or nothing is given."""
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-")
    if not rest or text != ("-" + rest if sign < 0 else text):
        return None
    total, at = Decimal(0), 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        total += Decimal(part[1]) * _UNITS[part[2]]
        at = part.end()
    return sign * int(total)
