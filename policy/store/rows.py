"""Canonical lines of stored rows, and the digest over those that belong to one ledger entry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import RowMapping, Table

from policy.cluster import canonical
from policy.store.tables import covered
from policy.store.tables.base import LEDGER_FORMAT, column_names

Values: TypeAlias = Mapping[str, Any] | RowMapping
"""A row by column name: as it is written, or as it was read."""

_DECODER: Final = msgspec.json.Decoder()


def from_json(text: str) -> Any:
    return _DECODER.decode(text)


@lru_cache(maxsize=256)
def _reader(table: Table, ledger_format: int) -> Callable[[Values], tuple[Any, ...]]:
    return itemgetter(*covered(table, ledger_format))


def line(table: Table, row: Values, *, ledger_format: int = LEDGER_FORMAT) -> bytes:
    """One row as entries of that format cover it."""
    return line_of(table, _reader(table, ledger_format)(row))


def line_of(table: Table, values: Iterable[Any]) -> bytes:
    """One row as an entry covers it; values: of the covered columns, in their order."""
    return canonical.encode((str(table.name), *values))


def lines_of(table: Table, rows: Iterable[Iterable[Any]]) -> list[bytes]:
    """Rows as `line_of` gives each."""
    name = str(table.name)
    return canonical.encode_each([(name, *values) for values in rows])


def lines_of_all(made: Iterable[tuple[Table, Iterable[Iterable[Any]]]]) -> list[bytes]:
    """Rows of several tables as `line_of` gives each."""
    return canonical.encode_each([(str(of.name), *values) for of, rows in made for values in rows])


@lru_cache(maxsize=256)
def _values(table: Table) -> Callable[[Values], tuple[Any, ...]]:
    return itemgetter(*column_names(table))


def of_table(table: Table, row: Values) -> tuple[Any, ...]:
    """The values of all columns, in the order of the table."""
    return _values(table)(row)


def closed_lines(table_name: str, ended: Iterable[tuple[str, int, int]]) -> list[bytes]:
    """The ends of versions (key, valid_from, valid_to): each belongs to the revision `valid_to`."""
    name = str(table_name)
    return canonical.encode_each([("closed", name, *end) for end in ended])


_AT_ONCE: Final = 100
"""Lines that are hashed together, which takes half as long as one by one."""


def digest_of(lines: Iterable[bytes]) -> str:
    """Digest of a set of lines, whatever order the database gives them in."""
    hasher = hashlib.sha256()
    ordered = sorted(lines)
    for start in range(0, len(ordered), _AT_ONCE):
        hasher.update(b"\n".join((*ordered[start : start + _AT_ONCE], b"")))
    return "sha256:" + hasher.hexdigest()
