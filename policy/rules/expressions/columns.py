"""What an expression is evaluated over: named columns of equal length, or scalars.

The engine fills these from a snapshot; expressions only read them. Timestamps are
milliseconds since 1970-01-01T00:00:00Z, later than the first instant of the year 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from policy.rules.expressions.semantics import OnError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
CodeArray = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class IntColumn:
    """(rows,) int64."""

    values: IntArray


@dataclass(frozen=True, slots=True)
class BoolColumn:
    """(rows,) bool."""

    values: BoolArray


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """(rows,) int64, milliseconds since the epoch."""

    values: IntArray


class ValueTable(Sequence[Any]):
    """Distinct values that many evaluations share, with a cache for what was derived from them.

    The values may be appended to, never changed: a cached result covers a prefix of them.
    """

    __slots__ = ("cache", "values")

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.cache: dict[bytes, list[Any]] = {}

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@dataclass(frozen=True, slots=True)
class InternedColumn:
    """Strings or maps: row r has the value `values[codes[r]]`.

    codes: (rows,) intp; values: few, need not be distinct. Give a `ValueTable` where the same
    values serve many evaluations.
    """

    codes: CodeArray
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value for all rows: int, bool, str, a dict, or milliseconds for a timestamp."""

    value: Any


@dataclass(frozen=True, slots=True)
class NoFigures:
    """No row has a value: the snapshot does not have the history figures that it comes from."""


Column = IntColumn | BoolColumn | TimestampColumn | InternedColumn | Scalar | NoFigures


class History(Protocol):
    """Figures about the past, frozen before the decision."""

    def figures(self, function: str, window_seconds: int | None) -> Mapping[str, int] | None:
        """Figure per key (workload or namespace); a missing key has the function's default.

        None where nothing is known: the function has no value then.
        """
        ...


class NoHistory:
    """A past in which nothing was ever preempted."""

    def figures(self, function: str, window_seconds: int | None) -> Mapping[str, int]:
        """No figure at all."""
        return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows that one evaluation sees. `values` may compute its columns on demand."""

    size: int
    values: Mapping[str, Column]
    history: History = field(default_factory=NoHistory)

    def get(self, name: str) -> Column:
        """The column of a declared variable; KeyError where the engine gave none."""
        return self.values[name]

    def take(self, rows: CodeArray) -> Columns:
        """Only these rows."""
        return Columns(len(rows), _Rows(self.values, rows), self.history)

    def at(self, row: int) -> Columns:
        """One row."""
        return self.take(np.array([row], np.intp))


class RowByRow(Mapping[str, Column]):
    """Columns of which some can be computed for a few rows alone."""

    @abstractmethod
    def at(self, name: str, rows: CodeArray) -> Column | None:
        """The column at these rows; None where it is computed as a whole."""


class _Rows(Mapping[str, Column]):
    """Columns at some rows, each taken when it is asked for first."""

    def __init__(self, columns: Mapping[str, Column], rows: CodeArray) -> None:
        self._columns, self._rows = columns, rows
        self._taken: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        found = self._taken.get(name)
        if found is None:
            found = self._taken[name] = self._take(name)
        return found

    def _take(self, name: str) -> Column:
        if isinstance(self._columns, RowByRow):
            some = self._columns.at(name, self._rows)
            if some is not None:
                return some
        column = self._columns[name]
        if isinstance(column, Scalar | NoFigures):
            return column
        if isinstance(column, InternedColumn):
            return InternedColumn(column.codes.take(self._rows), column.values)
        if isinstance(column, BoolColumn):
            return BoolColumn(column.values.take(self._rows))
        return type(column)(column.values.take(self._rows))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The result of an expression for every row, or for all rows at once.

    values: bool for conditions, int64 for ints, milliseconds for timestamps and durations,
    an `InternedColumn` for strings; of length `size`, or 1 where no column was involved.
    errors: rows whose value does not exist (overflow, missing key, ...), or None; of length 1
    where it is the same for all rows. The value there is a placeholder.
    """

    values: IntArray | BoolArray | InternedColumn
    errors: BoolArray | None = None

    def broadcast(self, size: int) -> Evaluated:
        """The same with every array at full length."""
        errors = None if self.errors is None else np.broadcast_to(self.errors, (size,))
        if isinstance(self.values, InternedColumn):
            codes = np.broadcast_to(self.values.codes, (size,))
            return Evaluated(InternedColumn(codes, self.values.values), errors)
        return Evaluated(_stretched(self.values, size), errors)

    def holds(self, size: int, on_error: OnError) -> BoolArray:
        """(size,) bool: the condition is true, or an error that counts as true."""
        assert not isinstance(self.values, InternedColumn)
        held = self.values.astype(np.bool_, copy=False)
        if self.errors is not None:
            held = held | self.errors if on_error is OnError.HOLDS else held & ~self.errors
        return held if held.size == size else np.broadcast_to(held, (size,))

    def order_keys(self, *, errors_as: int) -> IntArray:
        """Numbers that sort as the values do; strings sort by code point.

        errors_as: the number of a row without a value.
        """
        keys = self._keys()
        return keys if self.errors is None else np.where(self.errors, errors_as, keys)

    def _keys(self) -> IntArray:
        if not isinstance(self.values, InternedColumn):
            return self.values.astype(np.int64, copy=False)
        column = self.values
        rank = {value: place for place, value in enumerate(sorted(set(column.values)))}
        ranks = np.fromiter((rank[v] for v in column.values), np.int64, len(column.values))
        return ranks[column.codes]

    def tolist(self) -> list[Any]:
        """Plain values, None for errors."""
        if isinstance(self.values, InternedColumn):
            column = self.values
            plain = [column.values[code] for code in column.codes.tolist()]
        else:
            plain = self.values.tolist()
        if self.errors is None:
            return plain
        errors = np.broadcast_to(self.errors, (len(plain),)).tolist()
        return [None if bad else value for value, bad in zip(plain, errors, strict=True)]


def _stretched(values: IntArray | BoolArray, size: int) -> IntArray | BoolArray:
    if values.size == size:
        return values
    # The union of two array types confuses numpy's annotations.
    stretched: IntArray = np.broadcast_to(cast("IntArray", values), (size,))
    return stretched
