"""A compiled expression: what the engine evaluates, and what lint and audit ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from policy.rules.expressions.checking import check
from policy.rules.expressions.columns import (
    BoolColumn,
    Columns,
    Evaluated,
    IntColumn,
    InternedColumn,
    Scalar,
    TimestampColumn,
)
from policy.rules.expressions.compiler import Compiler, Evaluator
from policy.rules.expressions.engine import Program, RowFailure, split_failures
from policy.rules.expressions.hazards import Hazard, hazards
from policy.rules.expressions.kernels import timestamp_range
from policy.rules.expressions.variables import VARIABLES, Context, Shape, ValueType
from policy.rules.expressions.vectors import Frame, from_values, gathered

CONDITION: Final[frozenset[ValueType]] = frozenset({ValueType.BOOL})
ORDER_KEY: Final[frozenset[ValueType]] = frozenset(
    {
        ValueType.INT,
        ValueType.TIMESTAMP,
        ValueType.DURATION,
        ValueType.STRING,
        ValueType.BOOL,
    }
)
SCORE: Final[frozenset[ValueType]] = frozenset({ValueType.BOOL, ValueType.INT})
RANKING_KEY: Final[frozenset[ValueType]] = frozenset(
    {ValueType.BOOL, ValueType.INT, ValueType.TIMESTAMP, ValueType.DURATION}
)

_ANSWERS: Final = 256
"""Answers of one expression that are kept."""

_COMPILED: Final = 1024
"""Compiled expressions that are kept: rule sets share most of theirs, with their bases alike."""

_PLACEHOLDER: dict[ValueType, Any] = {ValueType.BOOL: False, ValueType.STRING: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A type-checked expression; equal to another of the same text in the same place."""

    source: str
    context: Context
    type: ValueType
    variables: tuple[str, ...] = field(compare=False)  #: sorted
    history_needs: frozenset[tuple[str, int | None]] = field(compare=False)
    """(function, window in seconds) whose figures have to be frozen beforehand."""
    vectorised: bool = field(compare=False)
    """False where a part is evaluated once per row by the CEL library."""
    row_wise_reasons: tuple[str, ...] = field(compare=False)
    constant: bool | int | str | None = field(compare=False)
    """The value of an expression without variables and history, else None."""
    hazards: tuple[Hazard, ...] = field(compare=False)
    """Operations that may have no value, in the order of the text."""
    _evaluator: Evaluator = field(repr=False, compare=False)
    _program: Program = field(repr=False, compare=False)
    _varies: bool = field(repr=False, compare=False)
    """Some variable has a value for each row."""
    _variable: str = field(repr=False, compare=False)
    """The variable that the expression is and nothing else, "" where it is more."""
    _answers: dict[tuple[Any, ...], Evaluated] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By the values of the variables: the same few questions come with every pod."""

    def __str__(self) -> str:
        return self.source

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _recompile, (self.source, self.context)

    @property
    def total(self) -> bool:
        """The expression has a value whatever the values of its variables are."""
        return not self.hazards

    def evaluate(self, columns: Columns) -> Evaluated:
        """The value for every row; length 1 where it is the same for all rows."""
        if self._variable:
            column = columns.get(self._variable)
            if isinstance(column, IntColumn | BoolColumn):
                return Evaluated(column.values)
            if isinstance(column, TimestampColumn):
                return Evaluated(column.values, timestamp_range(column.values))
        asked = self._scalars(columns)
        if asked is None:
            return self._evaluate(columns)
        found = self._answers.get(asked)
        if found is None:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            found = self._answers[asked] = self._evaluate(columns)
        return found

    def _scalars(self, columns: Columns) -> tuple[Any, ...] | None:
        """The values of the variables, where all of them are the same for all rows.

        None where some are not, or figures of the past are read.
        """
        if self.history_needs or self._varies:
            return None
        values = []
        for name in self.variables:
            column = columns.get(name)
            if not isinstance(column, Scalar) or isinstance(column.value, Mapping):
                return None
            values.append(column.value)
        return tuple(values)

    def _evaluate(self, columns: Columns) -> Evaluated:
        frame = Frame(columns)
        vec = self._evaluator(frame)
        if self.type is not ValueType.STRING:
            vec = frame.to_rows(vec)
            return Evaluated(vec.data, vec.errors)
        if vec.axis is not None and vec.axis.codes is not None:
            errors = gathered(vec.errors, vec.axis.codes)
            return Evaluated(InternedColumn(vec.axis.codes, vec.data), errors)
        codes = np.arange(len(vec.data), dtype=np.intp)
        return Evaluated(InternedColumn(codes, vec.data), vec.errors)

    def evaluate_rows(self, columns: Columns) -> Evaluated:
        """The same as `evaluate`, row by row through the CEL library: slow and obvious."""
        found = self._program.run_rows(columns)
        values, errors = split_failures(found, _PLACEHOLDER.get(self.type, 0))
        data = from_values(values, self.type)
        if self.type is ValueType.STRING:
            data = InternedColumn(np.arange(len(values), dtype=np.intp), data)
        return Evaluated(data, errors)

    def error_at(self, columns: Columns, row: int) -> str | None:
        """Why the expression has no value in one row; None where it has one."""
        found = self._program.run_rows(columns.at(row))[0]
        return found.why.value if isinstance(found, RowFailure) else None


def _recompile(source: str, context: Context) -> Expression:
    return compile_expression(source, context=context, expected=frozenset(ValueType))


def compile_expression(
    source: str, *, context: Context, expected: frozenset[ValueType]
) -> Expression:
    """Parse, type-check and compile; raises `ExpressionError` with every complaint.

    `expected` are the result types that make sense in this place of a rule file.
    """
    return _compiled(source, context, expected)


@lru_cache(maxsize=_COMPILED)
def _compiled(source: str, context: Context, expected: frozenset[ValueType]) -> Expression:
    checked = check(source, context=context, expected=expected)
    compiler = Compiler(checked.tree)
    evaluator = compiler.compile_root(checked.type)
    program = Program.build(
        checked.serialized,
        kind=checked.type,
        variables=checked.variables,
        uses_history=bool(checked.history_needs),
    )
    constant = None
    if not checked.variables and not checked.history_needs:
        constant = program.run({}, None)
        # INVARIANT: a part without variables and without a value is refused by `check`.
        assert not isinstance(constant, RowFailure)
    return Expression(
        source=source,
        context=context,
        type=checked.type,
        variables=checked.variables,
        history_needs=checked.history_needs,
        vectorised=not compiler.reasons,
        row_wise_reasons=tuple(compiler.reasons),
        constant=constant,
        hazards=tuple(sorted(hazards(checked.tree.root), key=lambda hazard: hazard.offset)),
        _evaluator=evaluator,
        _program=program,
        _variable=source.strip() if checked.variables == (source.strip(),) else "",
        _varies=any(VARIABLES[name].shape is not Shape.SCALAR for name in checked.variables),
    )
