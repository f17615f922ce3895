"""Observed preemptions as programs see them: by the commands and by the service alike."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from policy.cluster import times
from policy.store.observed import ObservationRow


def document(row: ObservationRow) -> dict[str, Any]:
    """Everything that is known of an observation, with the names of the tables' columns."""
    values: dict[str, Any] = to_builtins(row)
    for name in ("at_ms", "now_ms"):
        values[name.removesuffix("_ms")] = times.to_text(values.pop(name)) or ""
    return values
