"""Numbers of Postgres' `numeric` as SQLite gives such values: `sum()`, `avg()`, a literal like 1.5.

Imported where a server is connected to: it needs the driver.
"""

from __future__ import annotations

from typing import Final

from psycopg.abc import Buffer
from psycopg.adapt import Loader

_DIGITS: Final = 19
"""Of the largest whole number of 64 bits."""


class NumericLoader(Loader):
    """Without decimal places a whole number, as far as 64 bits hold it; otherwise a float."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        digits = text.removeprefix("-")
        if digits.isdigit() and len(digits) <= _DIGITS and -(2**63) <= int(text) < 2**63:
            return int(text)
        return float(text)
