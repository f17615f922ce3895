"""Numbers and values in sentences and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def number(count: int, what: str) -> str:
    """`1 pod`, `2 pods`"""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def rounded(value: float, digits: int) -> str:
    """Of so many digits, or of all that are whole ones, and no power of ten: `0.562`, `2048`."""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def grouped(value: int) -> str:
    """`1 234 567`"""
    return f"{value:,}".replace(",", " ")


def duration(seconds: int) -> str:
    """`3 d 4 h`, `5 h 20 min`, `12 min`, `8 s`: the two largest units."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    largest = next((i for i, (_, size) in enumerate(units) if seconds >= size), len(units) - 1)
    parts: list[str] = []
    for name, size in units[largest : largest + 2]:
        count, seconds = divmod(seconds, size)
        if count or not parts:
            parts.append(f"{grouped(count)} {name}")
    return " ".join(parts)


def counted(counts: Mapping[str, int]) -> str:
    """`3 Secret, 1 Ingress`: the most first."""
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items(), key=lambda c: (-c[1], c)))


def value_text(value: Any) -> str:
    """A value as a rule file has it, a text without quotes; `none` for a list without entries."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and not value:
        return "none"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
