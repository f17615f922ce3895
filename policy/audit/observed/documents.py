"""Observed preemptions as programs see them: by the commands and by the service alike."""

from __future__ import annotations

from collections.abc import Mapping
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


def nodes(told: Mapping[str, Any]) -> list[str]:
    """The nodes on which it took room; told: its document, or the part of it that one may see.

    Those of a pod group are where its victims were: its events name none, but `cluster`.
    """
    if told["preemptor_kind"] == "Pod":
        return [told["node"]]
    return sorted({victim["node"] for victim in told["victims"]} - {""})
