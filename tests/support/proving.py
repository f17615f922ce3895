"""What the translation of an expression says of concrete rows, to hold against the product."""

from __future__ import annotations

import functools
from typing import Any

import z3

from policy.proving.patterns import NotTranslatable, text_value
from policy.proving.terms import Term, Translator
from policy.proving.world import NUMBER, Declarations, literal_text, number_of
from policy.rules.expressions import (
    HISTORY_FUNCTIONS,
    VARIABLES,
    Columns,
    Expression,
    Scalar,
    TimestampColumn,
)
from policy.rules.expressions.engine import column_values


def literal(value: Any) -> Any:
    if isinstance(value, bool):
        return z3.BoolVal(value)
    return text_value(value) if isinstance(value, str) else z3.IntVal(value)


def plain(term: Any) -> Any:
    """The Python value of a term without variables."""
    for _ in range(3):  # what one pass has rewritten, the next one computes
        term = z3.simplify(term)
    if z3.is_int_value(term):
        return term.as_long()
    if z3.is_string_value(term):
        return literal_text(term)
    if z3.is_true(term) or z3.is_false(term):
        return z3.is_true(term)
    raise AssertionError(term)


def raw(columns: Columns, name: str) -> list[Any]:
    """One value per row; instants in milliseconds."""
    column = columns.get(name)
    if isinstance(column, Scalar):
        return [column.value] * columns.size
    if isinstance(column, TimestampColumn):
        return column.values.tolist()
    return list(column_values(columns, name))


def by_terms(expression: Expression, columns: Columns) -> list[Any] | None:
    """A value per row, None for an error; None where a part is not understood."""
    world = Declarations()
    try:
        term = Translator(world).condition(expression)
    except NotTranslatable:  # an instant or a length of time, which no condition is
        return None
    if world.opaque:
        return None
    names = {*world.variables, *(r.function for r in world.readings if r.function in VARIABLES)}
    values = {name: raw(columns, name) for name in names}
    rows = [{name: values[name][row] for name in names} for row in range(columns.size)]
    unlike = {repr(row): row for row in rows}
    found = {text: _at(term, world, row, columns.history) for text, row in unlike.items()}
    return [found[repr(row)] for row in rows]


def _at(term: Term, world: Declarations, row: dict[str, Any], history: Any) -> Any:
    pairs = [(constant, literal(row[name])) for name, constant in world.variables.items()]
    for reading in world.readings:
        key = _key_read_at(z3.substitute(reading.term, *pairs))
        present, value = _read(reading.function, key, row, history)
        default = 0 if z3.is_int(reading.value) else ""
        pairs += [
            (reading.key, text_value(key)),
            (reading.present, z3.BoolVal(present)),
            (reading.value, literal(default if value is None else value)),
        ]
    if plain(z3.substitute(term.error, *pairs)):
        return None
    return plain(z3.substitute(term.value, *pairs))


def _key_read_at(term: Any) -> str:
    """The text that a value is looked up by.

    A key that is an error itself, `string(32 / 0)`, has any text: what is read there must not
    matter to the error and the value of the whole.
    """
    key: str = plain(_any_model().eval(term, model_completion=True))
    return key


@functools.cache
def _any_model() -> z3.ModelRef:
    solver = z3.Solver()
    solver.check()
    return solver.model()


def _read(function: str, key: str, row: dict[str, Any], history: Any) -> tuple[bool, Any]:
    if function == NUMBER:
        return number_of(key) is not None, number_of(key)
    if function.startswith("history."):
        name, _, window = function.removeprefix("history.").partition("/")
        figures = history.figures(name, int(window) if window else None)
        return True, figures.get(key, HISTORY_FUNCTIONS[name].missing)
    return key in row[function], row[function].get(key)
