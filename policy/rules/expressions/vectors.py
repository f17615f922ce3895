"""Values during one evaluation: per row, per entry of a table of distinct values, or one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policy.rules.expressions import kernels
from policy.rules.expressions.columns import (
    BoolArray,
    BoolColumn,
    CodeArray,
    Columns,
    IntColumn,
    InternedColumn,
    NoFigures,
    Scalar,
    TimestampColumn,
)
from policy.rules.expressions.variables import ValueType

NUMERIC = frozenset({ValueType.BOOL, ValueType.INT, ValueType.TIMESTAMP, ValueType.DURATION})


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """What the entries of a vector stand for; compared by identity."""

    length: int
    codes: CodeArray | None = None  #: per row the entry of the table; None: one entry per row


@dataclass(frozen=True, slots=True)
class Vec:
    """Intermediate values.

    data: an array for numbers, a list for strings and maps, as long as the axis (None: 1);
    errors: None, or a mask of that length, or of length 1 where all entries are alike.
    """

    data: Any
    errors: BoolArray | None = None
    axis: Axis | None = None


def scalar(value: Any, kind: ValueType) -> Vec:
    """One value for all rows."""
    if kind is ValueType.BOOL:
        return Vec(np.array([value], np.bool_))
    if kind in NUMERIC:
        return Vec(np.array([value], np.int64))
    return Vec([value])


def from_values(values: Sequence[Any], kind: ValueType) -> Any:
    """Vector data from plain values."""
    if kind is ValueType.BOOL:
        return np.array(values, np.bool_)
    if kind in NUMERIC:
        return np.array(values, np.int64)
    return list(values)


@dataclass(slots=True)
class Frame:
    """One evaluation: the columns, and the vectors already made from them."""

    columns: Columns
    rows: Axis = field(init=False)
    _variables: dict[str, Vec] = field(default_factory=dict)
    _axes: dict[int, Axis] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = Axis(self.columns.size)

    def variable(self, name: str, kind: ValueType) -> Vec:
        """The vector of a declared variable."""
        known = self._variables.get(name)
        if known is None:
            known = self._variables[name] = self._load(name, kind)
        return known

    def _load(self, name: str, kind: ValueType) -> Vec:
        column = self.columns.get(name)
        if isinstance(column, NoFigures):
            return Vec(np.zeros(1, np.int64), np.ones(1, np.bool_))
        if isinstance(column, Scalar):
            vec = scalar(column.value, kind)
            if kind is ValueType.TIMESTAMP:
                return Vec(vec.data, kernels.timestamp_range(vec.data))
            return vec
        if isinstance(column, InternedColumn):
            if not self.worth_a_table(column):
                values = column.values
                return Vec([values[c] for c in column.codes.tolist()], None, self.rows)
            return Vec(list(column.values), None, self.table_axis(column))
        if isinstance(column, TimestampColumn):
            return Vec(column.values, kernels.timestamp_range(column.values), self.rows)
        assert isinstance(column, IntColumn | BoolColumn)
        return Vec(column.values, None, self.rows)

    def worth_a_table(self, column: InternedColumn) -> bool:
        """Whether working on the distinct values beats working on the rows."""
        return len(column.values) <= self.columns.size

    def table_axis(self, column: InternedColumn) -> Axis:
        """The axis of a column's distinct values, the same for the same codes."""
        # Two columns may share their codes (one code per pod template, say).
        key = id(column.codes)
        axis = self._axes.get(key)
        if axis is None or axis.length != len(column.values):
            axis = self._axes[key] = Axis(len(column.values), column.codes)
        return axis

    def align(self, *vecs: Vec) -> tuple[tuple[Vec, ...], Axis | None]:
        """Vectors whose entries stand for the same things, scalars aside."""
        axes = {id(vec.axis): vec.axis for vec in vecs if vec.axis is not None}
        if not axes:
            return vecs, None
        if len(axes) == 1:
            return vecs, next(iter(axes.values()))
        return tuple(self.to_rows(vec) for vec in vecs), self.rows

    def to_rows(self, vec: Vec) -> Vec:
        """One entry per row; scalars stay as they are."""
        if vec.axis is None or vec.axis.codes is None:
            return vec
        codes = vec.axis.codes
        if isinstance(vec.data, list):
            data: Any = [vec.data[code] for code in codes.tolist()]
        else:
            data = vec.data.take(codes)
        return Vec(data, gathered(vec.errors, codes), self.rows)


def gathered(errors: BoolArray | None, codes: CodeArray) -> BoolArray | None:
    """A mask over a table's entries as a mask over rows."""
    return errors if errors is None or len(errors) == 1 else errors.take(codes)


def length(axis: Axis | None) -> int:
    """Entries of a vector on this axis."""
    return 1 if axis is None else axis.length


def stretched(data: list[Any], size: int) -> list[Any]:
    """A list at full length, a scalar's one value repeated."""
    return data if len(data) == size else data * size
