"""Numbers and instants in sentences."""

from __future__ import annotations


def number(count: int, what: str) -> str:
    """`1 pod`, `2 pods`"""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
