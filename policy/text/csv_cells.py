"""Cells of CSV that a spreadsheet takes for what they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_cell(value: Any, *, raw: bool) -> Any:
    """A value as a cell: `true` and `false`, lists and mappings as JSON.

    A text that a spreadsheet would take for a formula gets an apostrophe before it, the mark by
    which spreadsheets know text; numbers stay numbers, negative ones too. raw: without it.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, str) and not raw and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Column names as SQL gives them; a second `id` becomes `id_2`."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(found)
