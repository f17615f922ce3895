"""Numbers and instants in sentences."""

from __future__ import annotations

from collections.abc import Mapping


def number(count: int, what: str) -> str:
    """`1 pod`, `2 pods`"""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def counted(counts: Mapping[str, int]) -> str:
    """`3 Secret, 1 Ingress`: the most first."""
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items(), key=lambda c: (-c[1], c)))
