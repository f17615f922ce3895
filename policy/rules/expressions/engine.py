"""The CEL library: parsing, type checking, and evaluation of one row at a time.

It is both the judge of what an expression means and the fallback for what has no array form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from cel_expr_python import cel

from policy.rules.expressions import kernels, syntax
from policy.rules.expressions.columns import (
    BoolArray,
    BoolColumn,
    Columns,
    History,
    IntArray,
    IntColumn,
    InternedColumn,
    NoFigures,
    Scalar,
    TimestampColumn,
    ValueTable,
)
from policy.rules.expressions.semantics import NoValue, no_value
from policy.rules.expressions.variables import (
    HISTORY_FUNCTIONS,
    VARIABLES,
    HistoryFunction,
    ValueType,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_CEL_TYPES = {
    ValueType.BOOL: cel.Type.BOOL,
    ValueType.INT: cel.Type.INT,
    ValueType.STRING: cel.Type.STRING,
    ValueType.TIMESTAMP: cel.Type.TIMESTAMP,
    ValueType.DURATION: cel.Type.DURATION,
    ValueType.STRING_MAP: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    ValueType.INT_MAP: cel.Type.Map(cel.Type.STRING, cel.Type.INT),
}


def _parameters(function: HistoryFunction) -> list[Any]:
    return [cel.Type.STRING, cel.Type.DURATION] if function.windowed else [cel.Type.STRING]


@lru_cache(maxsize=1)
def environment() -> cel.Env:
    """Every variable and function declared; functions are bound when a row is evaluated."""
    return _environment("policy")


@lru_cache(maxsize=1)
def _runtime() -> cel.Env:
    """What checked expressions run in: reads with a default are written with optional values.

    Rule files cannot write these, so that an expression stays what Kubernetes' own CEL takes.
    """
    made = _environment("policy", "optional")
    # An environment takes instants and durations only after it has compiled something.
    made.compile("true")
    return made


def _environment(name: str, *extensions: str) -> cel.Env:
    functions = [
        cel.FunctionDecl(
            f"history.{function.name}",
            [
                cel.Overload(
                    f"history_{function.name}",
                    return_type=cel.Type.INT,
                    parameters=_parameters(function),
                )
            ],
        )
        for function in HISTORY_FUNCTIONS.values()
    ]
    listed = "".join(f"\n  - name: {extension}" for extension in extensions)
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(
            f"name: {name}" + (f"\nextensions:{listed}" if listed else "")
        ),
        variables={name: _CEL_TYPES[variable.type] for name, variable in VARIABLES.items()},
        extensions=[cel.CelExtension("history", functions)],
    )


def _history_functions(history: History) -> list[cel.Function]:
    def bind(function: HistoryFunction) -> cel.Function:
        def figure(key: str, window: int | None) -> int:
            figures = history.figures(function.name, window)
            if figures is None:
                raise LookupError(NoValue.HISTORY.value)
            return figures.get(key, function.missing)

        def windowed(key: str, window: timedelta) -> int:
            return figure(key, int(window.total_seconds()))

        def unwindowed(key: str) -> int:
            return figure(key, None)

        implementation = windowed if function.windowed else unwindowed
        name = f"history.{function.name}"
        return cel.Function(name, _parameters(function), False, implementation, cel.Type.INT)

    return [bind(function) for function in HISTORY_FUNCTIONS.values()]


@dataclass(frozen=True, slots=True)
class RowFailure:
    """A row without a value."""

    why: NoValue


def _to_datetime(milliseconds: int) -> datetime | None:
    inside = kernels.TIMESTAMP_MIN_MS <= milliseconds <= kernels.TIMESTAMP_MAX_MS
    return _EPOCH + timedelta(milliseconds=milliseconds) if inside else None


def _convert_result(value: Any, kind: ValueType) -> Any:
    """A plain Python value, or None where it is not of the expected type."""
    if kind is ValueType.BOOL:
        return value if isinstance(value, bool) else None
    if kind is ValueType.INT:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if kind is ValueType.STRING:
        return value if isinstance(value, str) else None
    if kind is ValueType.TIMESTAMP:
        return (value - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else None
    return value // _MILLISECOND if isinstance(value, timedelta) else None


def column_values(columns: Columns, name: str) -> Sequence[Any]:
    """One value per row for the CEL library; None where a timestamp is out of range.

    None, too, where history figures are missing.
    """
    column = columns.get(name)
    if isinstance(column, NoFigures):
        return [None] * columns.size
    if isinstance(column, Scalar):
        value = column.value
        if VARIABLES[name].type is ValueType.TIMESTAMP:
            value = _to_datetime(value)
        return [value] * columns.size
    if isinstance(column, InternedColumn):
        return [column.values[code] for code in column.codes.tolist()]
    if isinstance(column, TimestampColumn):
        return [_to_datetime(value) for value in column.values.tolist()]
    assert isinstance(column, IntColumn | BoolColumn)
    plain: list[Any] = column.values.tolist()
    return plain


@dataclass(frozen=True, slots=True)
class Program:
    """An expression, or a part of one, that the CEL library evaluates."""

    serialized: bytes = field(repr=False)
    kind: ValueType
    variables: tuple[str, ...]
    uses_history: bool
    _compiled: Any = field(repr=False, compare=False)

    @classmethod
    def build(
        cls, serialized: bytes, *, kind: ValueType, variables: tuple[str, ...], uses_history: bool
    ) -> Program:
        """Prepare a serialised expression."""
        compiled = _runtime().deserialize(serialized)
        return cls(serialized, kind, variables, uses_history, compiled)

    def run(self, data: Mapping[str, Any], functions: Sequence[Any] | None) -> Any:
        """The value for one binding of the variables, or a `RowFailure`."""
        # A variable without a value is left out: using it is then an error that && can absorb.
        bound = {name: value for name, value in data.items() if value is not None}
        try:
            result = self._compiled.eval(data=bound, functions=functions)
            plain = result.plain_value()
        except (RuntimeError, LookupError) as exc:
            # Some errors are values, others (too many steps, a key twice) end the evaluation.
            return RowFailure(no_value(str(exc)))
        # The plain value of an error is its message, a string like any other.
        if self.kind is ValueType.STRING and result.type() == cel.Type.ERROR:
            plain = None
        value = _convert_result(plain, self.kind)
        return RowFailure(no_value(str(result.value()))) if value is None else value

    def functions(self, history: History) -> list[cel.Function] | None:
        """The `history.*` functions over these figures, where the expression uses any."""
        return _history_functions(history) if self.uses_history else None

    def run_rows(self, columns: Columns) -> list[Any]:
        """Values and `RowFailure`s, one per row; a single one where there are no variables."""
        functions = self.functions(columns.history)
        if not self.variables:
            return [self.run({}, functions)]
        rows = zip(*(column_values(columns, name) for name in self.variables), strict=True)
        return [self.run(dict(zip(self.variables, row, strict=True)), functions) for row in rows]

    def run_distinct(self, columns: Columns) -> tuple[list[Any], IntArray]:
        """Values per distinct combination of the variables, and each row's combination."""
        varying = [
            name for name in self.variables if not isinstance(columns.get(name), Scalar | NoFigures)
        ]
        if not varying:
            return self.run_rows(Columns(1, columns.values, columns.history)), np.zeros(1, np.intp)
        combined: IntArray = np.zeros(columns.size, np.intp)
        for name in varying:
            codes, count = _codes(columns, name)
            combined = combined * count + codes
            # Renumbering after each variable keeps the product inside int64.
            _, combined = np.unique(combined, return_inverse=True)
        _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
        return self.run_rows(columns.take(first)), codes

    def run_table(self, columns: Columns, name: str) -> list[Any]:
        """Values per entry of the only interned variable's table, from its cache if it has one."""
        column = columns.get(name)
        assert isinstance(column, InternedColumn)
        table = column.values
        cacheable = (
            isinstance(table, ValueTable) and self.variables == (name,) and not self.uses_history
        )
        done: list[Any] = []
        if isinstance(table, ValueTable) and cacheable:
            done = table.cache.setdefault(self.serialized, [])
        functions = self.functions(columns.history)
        scalars = {
            other: column_values(Columns(1, columns.values), other)[0]
            for other in self.variables
            if other != name
        }
        for value in table[len(done) :]:
            done.append(self.run({**scalars, name: value}, functions))
        return done


def _codes(columns: Columns, name: str) -> tuple[IntArray, int]:
    column = columns.get(name)
    if isinstance(column, InternedColumn):
        return column.codes, len(column.values)
    assert not isinstance(column, Scalar | NoFigures)
    values, codes = np.unique(column.values, return_inverse=True)
    return codes, len(values)


def literal_text(node: syntax.SyntaxNode) -> str | None:
    """The text in `duration('...')` and `timestamp('...')`, None for any other node."""
    if (
        isinstance(node, syntax.Call)
        and node.function in ("duration", "timestamp")
        and isinstance(node.arguments[0], syntax.Constant)
        and isinstance(node.arguments[0].value, str)
    ):
        return node.arguments[0].value
    return None


def literal_time(node: syntax.SyntaxNode) -> int | None:
    """Milliseconds in `duration('...')` or `timestamp('...')`; None if not a whole number."""
    text = literal_text(node)
    if text is None:
        return None
    assert isinstance(node, syntax.Call)
    return _milliseconds(node.function, text)


@lru_cache(maxsize=256)
def _milliseconds(function: str, text: str) -> int | None:
    literal = f"{function}({json.dumps(text)})"
    kind = ValueType(function)
    plain = environment().compile(literal).eval(data={}).plain_value()
    value = _convert_result(plain, kind)
    if value is None:
        return None
    # Python's datetimes end at microseconds; only the library knows whether this is exact.
    if kind is ValueType.DURATION:
        rounded = f"duration('{value}ms')"
    else:
        moment = _to_datetime(value)
        if moment is None:
            return None
        rounded = f"timestamp('{moment.isoformat(timespec='milliseconds')}')"
    exact = environment().compile(f"{literal} == {rounded}").eval(data={}).plain_value()
    return value if exact is True else None


def constant_value(serialized: bytes) -> Any:
    """The value of a part without variables, or a `RowFailure`."""
    try:
        result = _runtime().deserialize(serialized).eval(data={})
        value = result.plain_value()
    except RuntimeError as exc:
        return RowFailure(no_value(str(exc)))
    return RowFailure(no_value(str(value))) if result.type() == cel.Type.ERROR else value


def failure_of(source: str) -> str | None:
    """What the CEL library says of an expression without variables that has no value."""
    result = environment().compile(source).eval(data={})
    return str(result.value()) if result.type() == cel.Type.ERROR else None


def split_failures(values: list[Any], instead: Any) -> tuple[list[Any], BoolArray | None]:
    """The values with `instead` where the evaluation failed, and which these are."""
    errors = np.fromiter((type(v) is RowFailure for v in values), np.bool_, len(values))
    if not errors.any():
        return values, None
    return [instead if type(v) is RowFailure else v for v in values], errors
