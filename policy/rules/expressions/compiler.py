"""From a checked syntax tree to array functions.

Every supported node becomes a function from a `Frame` to a `Vec`. A node without an array
form is evaluated by the CEL library once per distinct combination of the variables below it,
and the parents go on with arrays. Both ways agree on every value and every error: a property
test compares them on random expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import contains, eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np

from policy.rules.expressions import kernels, syntax
from policy.rules.expressions.columns import IntArray, InternedColumn
from policy.rules.expressions.engine import Program, literal_time, split_failures
from policy.rules.expressions.kernels import Errors, either
from policy.rules.expressions.syntax import Call, CelType, CheckedTree, Identifier, SyntaxNode
from policy.rules.expressions.variables import (
    HISTORY_FUNCTIONS,
    VARIABLES,
    HistoryFunction,
    Shape,
    ValueType,
)
from policy.rules.expressions.vectors import (
    NUMERIC,
    Frame,
    Vec,
    from_values,
    gathered,
    length,
    scalar,
    stretched,
)

Evaluator = Callable[[Frame], Vec]

_KINDS: Mapping[CelType, ValueType] = {
    CelType("bool"): ValueType.BOOL,
    CelType("int"): ValueType.INT,
    CelType("string"): ValueType.STRING,
    CelType("timestamp"): ValueType.TIMESTAMP,
    CelType("duration"): ValueType.DURATION,
    CelType("map", (CelType("string"), CelType("string"))): ValueType.STRING_MAP,
    CelType("map", (CelType("string"), CelType("int"))): ValueType.INT_MAP,
}
_MAPS = frozenset({ValueType.STRING_MAP, ValueType.INT_MAP})
_PLACEHOLDERS: Mapping[ValueType, Any] = {
    ValueType.BOOL: False,
    ValueType.INT: 0,
    ValueType.STRING: "",
    ValueType.TIMESTAMP: 0,
    ValueType.DURATION: 0,
    ValueType.STRING_MAP: {},
    ValueType.INT_MAP: {},
}

_ARITHMETIC: Mapping[
    tuple[str, ValueType, ValueType], Callable[[IntArray, IntArray], tuple[IntArray, Errors]]
] = {
    ("_+_", ValueType.INT, ValueType.INT): kernels.add,
    ("_-_", ValueType.INT, ValueType.INT): kernels.subtract,
    ("_*_", ValueType.INT, ValueType.INT): kernels.multiply,
    ("_/_", ValueType.INT, ValueType.INT): kernels.divide,
    ("_%_", ValueType.INT, ValueType.INT): kernels.modulo,
    ("_+_", ValueType.TIMESTAMP, ValueType.DURATION): kernels.add_time,
    ("_+_", ValueType.DURATION, ValueType.TIMESTAMP): kernels.add_time,
    ("_+_", ValueType.DURATION, ValueType.DURATION): kernels.add_durations,
    ("_-_", ValueType.TIMESTAMP, ValueType.DURATION): kernels.subtract_duration,
    ("_-_", ValueType.TIMESTAMP, ValueType.TIMESTAMP): kernels.subtract_timestamps,
    ("_-_", ValueType.DURATION, ValueType.DURATION): kernels.subtract_durations,
}
_STRING_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "_==_": eq,
    "_!=_": ne,
    "_<_": lt,
    "_<=_": le,
    "_>_": gt,
    "_>=_": ge,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": contains,
}
_DURATION_PARTS = {"getHours": 3_600_000, "getMinutes": 60_000, "getSeconds": 1_000}


class NotCompilable(Exception):  # a signal between functions, not an error
    """The node has no array form; the text says why."""


def kind_of(type_: CelType) -> ValueType | None:
    """The value type of a CEL type, None where arrays do not hold it."""
    return _KINDS.get(type_)


def type_of(kind: ValueType) -> CelType:
    """The CEL type of a value type."""
    return next(type_ for type_, known in _KINDS.items() if known is kind)


@dataclass(slots=True)
class Compiler:
    """Compiles one expression and collects what is said about it."""

    tree: CheckedTree
    reasons: list[str] = field(default_factory=list)  #: why parts are evaluated row by row

    def compile_root(self, kind: ValueType) -> Evaluator:
        """The whole expression, whose result has this kind."""
        try:
            return self.compile(self.tree.root)
        except NotCompilable as signal:
            return self._by_engine(self.tree.root, kind, str(signal))

    def compile(self, node: SyntaxNode) -> Evaluator:
        """The node in array form, or through the CEL library where that gives exact values."""
        try:
            return self._compile_natively(node)
        except NotCompilable as signal:
            kind = kind_of(node.type)
            # The library's instants and durations may be finer than a millisecond: whatever
            # compares them has to be evaluated there too.
            if kind is None or kind in _MAPS:
                raise
            if kind in (ValueType.TIMESTAMP, ValueType.DURATION):
                return self._time_constant(node, kind, str(signal))
            return self._by_engine(node, kind, str(signal))

    def _compile_natively(self, node: SyntaxNode) -> Evaluator:
        kind = kind_of(node.type)
        if isinstance(node, Identifier) and kind is not None:
            return _load(node.name, kind)
        if isinstance(node, syntax.Constant) and kind is not None:
            vec = scalar(node.value, kind)
            return lambda frame: vec
        if isinstance(node, syntax.Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        raise NotCompilable(_describe(node))

    def _time_constant(self, node: SyntaxNode, kind: ValueType, reason: str) -> Evaluator:
        value = literal_time(node)
        if value is None:
            raise NotCompilable(reason)
        if kind is ValueType.DURATION and abs(value) > kernels.DURATION_LIMIT_MS:
            raise NotCompilable("a duration of more than 292 years")
        vec = scalar(value, kind)
        return lambda frame: vec

    # -- the CEL library as a node -------------------------------------------------------

    def _by_engine(self, node: SyntaxNode, kind: ValueType, reason: str) -> Evaluator:
        names = tuple(sorted({ident.name for ident in syntax.free_identifiers(node)}))
        if any(name not in VARIABLES for name in names):
            raise NotCompilable(reason)
        program = Program.build(
            syntax.encode_subtree(self.tree, node),
            kind=kind,
            variables=names,
            uses_history=_uses_history(node),
        )
        varying = [name for name in names if VARIABLES[name].shape is not Shape.SCALAR]
        shapes = {VARIABLES[name].shape for name in varying}
        if len(varying) > 1 or shapes - {Shape.INTERNED}:
            listed = ", ".join(f"`{name}`" for name in varying)
            self.reasons.append(f"{reason}, once per distinct value of {listed}")
        return _engine_evaluator(program, varying)

    # -- nodes with an array form --------------------------------------------------------

    def _select(self, node: syntax.Select) -> Evaluator:
        if kind_of(node.operand.type) not in _MAPS:
            raise NotCompilable("a field of something that is no map")
        operand, key = self.compile(node.operand), node.field
        constant = Vec([key])
        if not node.test_only:
            raise NotCompilable("a field of a map made in the expression")
        return _lists(operand, lambda frame: constant, contains, ValueType.BOOL)

    def _call(self, node: Call) -> Evaluator:
        name, arguments = node.function, node.arguments
        read = syntax.default_read(node)
        if read is not None:
            operand, key, default = read
            return _read(self.compile(operand), self.compile(key), default.value, _kind(node))
        if name.startswith("history."):
            return self._history(node)
        if name in ("_&&_", "_||_"):
            left, right = self.compile(arguments[0]), self.compile(arguments[1])
            return _logic(left, right, conjunction=name == "_&&_")
        if name == "!_":
            return _map_numbers(self.compile(arguments[0]), lambda data: (~data, None))
        if name == "_?_:_":
            return self._choice(node)
        if name == "@in":
            return self._membership(node)
        kinds = [kind_of(argument.type) for argument in arguments]
        if len(kinds) == 2 and None not in kinds:
            return self._binary(node, kinds)
        if len(kinds) == 1 and kinds[0] is not None:
            return self._unary(node, kinds[0])
        raise NotCompilable(_describe(node))

    def _binary(self, node: Call, kinds: list[ValueType | None]) -> Evaluator:
        name = node.function
        first, second = kinds
        assert first is not None and second is not None
        arithmetic = _ARITHMETIC.get((name, first, second))
        compare = kernels.COMPARISONS.get(name)
        text = _STRING_COMPARISONS.get(name)
        strings = first is second is ValueType.STRING
        if not (
            arithmetic
            or (compare and first is second and first in NUMERIC)
            or (strings and (text or name == "_+_"))
        ):
            raise NotCompilable(_describe(node))
        left, right = self.compile(node.arguments[0]), self.compile(node.arguments[1])
        if arithmetic:
            return _numbers(left, right, arithmetic)
        if strings:
            if name == "_+_":
                return _lists(left, right, str.__add__, ValueType.STRING)
            assert text is not None
            return _lists(left, right, text, ValueType.BOOL)
        assert compare is not None
        return _numbers(left, right, lambda a, b: (compare(a, b), None))

    def _unary(self, node: Call, kind: ValueType) -> Evaluator:
        name = node.function
        if name == "size" and (kind is ValueType.STRING or kind in _MAPS):
            return _map_list(self.compile(node.arguments[0]), len, ValueType.INT)
        if name == "-_" and kind is ValueType.INT:
            return _map_numbers(self.compile(node.arguments[0]), kernels.negate)
        if name == "int" and kind is ValueType.TIMESTAMP:
            return _map_numbers(self.compile(node.arguments[0]), lambda ms: (ms // 1000, None))
        if name == "string" and kind is ValueType.INT:
            return _map_list(self.compile(node.arguments[0]), str, ValueType.STRING)
        if name == kind.value and name in ("int", "string", "bool"):
            return self.compile(node.arguments[0])
        calendar = kernels.CALENDAR.get(name)
        if calendar is not None and kind is ValueType.TIMESTAMP:
            return _map_numbers(self.compile(node.arguments[0]), lambda ms: (calendar(ms), None))
        unit = _DURATION_PARTS.get(name)
        if unit is not None and kind is ValueType.DURATION:
            return _map_numbers(
                self.compile(node.arguments[0]),
                lambda ms: (kernels.truncated_units(ms, unit), None),
            )
        raise NotCompilable(_describe(node))

    def _choice(self, node: Call) -> Evaluator:
        kind = kind_of(node.type)
        if kind is None:
            raise NotCompilable(_describe(node))
        condition, first, second = (self.compile(argument) for argument in node.arguments)
        return _choose(condition, first, second, kind)

    def _membership(self, node: Call) -> Evaluator:
        item, container = node.arguments
        kind = kind_of(item.type)
        if kind_of(container.type) in _MAPS and kind is ValueType.STRING:
            return _lists(self.compile(container), self.compile(item), contains, ValueType.BOOL)
        if not isinstance(container, syntax.ListLiteral) or kind is None or kind in _MAPS:
            raise NotCompilable(_describe(node))
        if any(kind_of(element.type) is not kind for element in container.elements):
            raise NotCompilable("a list of mixed types")
        wanted = self.compile(item)
        elements = [self.compile(element) for element in container.elements]
        constants = [e.value for e in container.elements if isinstance(e, syntax.Constant)]
        if len(constants) == len(elements):
            return _in_constants(wanted, constants, kind)
        return _in_elements(wanted, elements, kind)

    def _history(self, node: Call) -> Evaluator:
        function, window = history_call(node)
        owner = self.compile(node.arguments[0])

        def evaluate(frame: Frame) -> Vec:
            keys = owner(frame)
            figures = frame.columns.history.figures(function.name, window)
            if figures is None:
                return Vec(np.zeros(1, np.int64), np.ones(1, np.bool_))
            if not figures:
                found = np.full(len(keys.data), function.missing, np.int64)
                return Vec(found, keys.errors, keys.axis)
            get, missing = figures.get, function.missing
            return Vec(
                np.array([get(key, missing) for key in keys.data], np.int64),
                keys.errors,
                keys.axis,
            )

        return evaluate


# -- history ---------------------------------------------------------------------------------


def history_calls(node: SyntaxNode) -> Iterable[Call]:
    """The `history.*` calls of an expression."""
    return (
        part
        for part in syntax.walk(node)
        if isinstance(part, Call) and part.function.startswith("history.")
    )


def _uses_history(node: SyntaxNode) -> bool:
    return any(True for _ in history_calls(node))


def history_call(node: Call) -> tuple[HistoryFunction, int | None]:
    """Which function is called, over how many seconds; ValueError where that is not literal."""
    function = HISTORY_FUNCTIONS[node.function.removeprefix("history.")]
    if not function.windowed:
        return function, None
    milliseconds = literal_time(node.arguments[1])
    if milliseconds is None or milliseconds % 1000 or milliseconds <= 0:
        raise ValueError("not a literal, positive number of seconds")
    return function, milliseconds // 1000


# -- evaluators ------------------------------------------------------------------------------


def _kind(node: SyntaxNode) -> ValueType:
    kind = kind_of(node.type)
    if kind is None:
        raise NotCompilable(_describe(node))
    return kind


def _describe(node: SyntaxNode) -> str:
    if isinstance(node, Call):
        shown = node.function.strip("_@").replace("_", " ") or node.function
        types = ", ".join(str(argument.type) for argument in node.arguments)
        return f"`{shown}` on {types}"
    if isinstance(node, syntax.Comprehension):
        return "a loop over a list or map"
    if isinstance(node, syntax.ListLiteral | syntax.MapLiteral):
        return "a list or map made in the expression"
    return f"a value of type {node.type}"


def _load(name: str, kind: ValueType) -> Evaluator:
    if name not in VARIABLES:
        raise NotCompilable("a loop variable")
    return lambda frame: frame.variable(name, kind)


def _numbers(
    left: Evaluator, right: Evaluator, kernel: Callable[[Any, Any], tuple[Any, Errors]]
) -> Evaluator:
    """A strict operator on two numbers."""

    def evaluate(frame: Frame) -> Vec:
        (a, b), axis = frame.align(left(frame), right(frame))
        data, errors = kernel(a.data, b.data)
        return Vec(data, either(errors, either(a.errors, b.errors)), axis)

    return evaluate


def _map_numbers(operand: Evaluator, kernel: Callable[[Any], tuple[Any, Errors]]) -> Evaluator:
    def evaluate(frame: Frame) -> Vec:
        vec = operand(frame)
        data, errors = kernel(vec.data)
        return Vec(data, either(errors, vec.errors), vec.axis)

    return evaluate


def _map_list(operand: Evaluator, function: Callable[[Any], Any], kind: ValueType) -> Evaluator:
    def evaluate(frame: Frame) -> Vec:
        vec = operand(frame)
        values = vec.data if isinstance(vec.data, list) else vec.data.tolist()
        return Vec(from_values([function(v) for v in values], kind), vec.errors, vec.axis)

    return evaluate


def _lists(
    left: Evaluator, right: Evaluator, function: Callable[[Any, Any], Any], kind: ValueType
) -> Evaluator:
    """A strict operator on strings or maps."""

    def evaluate(frame: Frame) -> Vec:
        (a, b), axis = frame.align(left(frame), right(frame))
        if len(b.data) == 1:
            only = b.data[0]
            values = [function(value, only) for value in a.data]
        else:
            values = list(map(function, stretched(a.data, length(axis)), b.data))
        return Vec(from_values(values, kind), either(a.errors, b.errors), axis)

    return evaluate


def _read(operand: Evaluator, key: Evaluator, default: Any, kind: ValueType) -> Evaluator:
    """A map's value, or the default where it does not have the key."""

    def evaluate(frame: Frame) -> Vec:
        (maps, keys), axis = frame.align(operand(frame), key(frame))
        if len(keys.data) == 1:
            only = keys.data[0]
            values = [mapping.get(only, default) for mapping in maps.data]
        else:
            pairs = zip(stretched(maps.data, length(axis)), keys.data, strict=True)
            values = [mapping.get(wanted, default) for mapping, wanted in pairs]
        return Vec(from_values(values, kind), either(maps.errors, keys.errors), axis)

    return evaluate


def _logic(left: Evaluator, right: Evaluator, *, conjunction: bool) -> Evaluator:
    combine = kernels.logical_and if conjunction else kernels.logical_or

    def evaluate(frame: Frame) -> Vec:
        first = left(frame)
        absorbed = not first.data.any() if conjunction else first.data.all()
        if absorbed and first.errors is None:
            return first  # false && anything, true || anything: the other side is not looked at
        (a, b), axis = frame.align(first, right(frame))
        data, errors = combine(a.data, a.errors, b.data, b.errors)
        return Vec(data, errors, axis)

    return evaluate


def _choose(
    condition: Evaluator, first: Evaluator, second: Evaluator, kind: ValueType
) -> Evaluator:
    def evaluate(frame: Frame) -> Vec:
        test = condition(frame)
        if test.axis is None and test.errors is None:
            return first(frame) if test.data[0] else second(frame)
        (test, a, b), axis = frame.align(test, first(frame), second(frame))
        if kind in NUMERIC:
            data: Any = np.where(test.data, a.data, b.data)
        else:
            size = length(axis)
            triples = zip(
                stretched(test.data.tolist(), size),
                stretched(a.data, size),
                stretched(b.data, size),
                strict=True,
            )
            data = [yes if taken else no for taken, yes, no in triples]
        return Vec(data, kernels.choose_errors(test.data, test.errors, a.errors, b.errors), axis)

    return evaluate


def _in_constants(item: Evaluator, constants: list[Any], kind: ValueType) -> Evaluator:
    if kind is ValueType.STRING:
        wanted = frozenset(constants)
        return _map_list(item, wanted.__contains__, ValueType.BOOL)
    values = from_values(constants, kind)
    return _map_numbers(item, lambda data: (np.isin(data, values), None))


def _in_elements(item: Evaluator, elements: list[Evaluator], kind: ValueType) -> Evaluator:
    def evaluate(frame: Frame) -> Vec:
        parts = [item(frame), *(element(frame) for element in elements)]
        (wanted, *others), axis = frame.align(*parts)
        size = length(axis)
        found = np.zeros(size, np.bool_)
        errors = wanted.errors
        for other in others:
            errors = either(errors, other.errors)
            if kind in NUMERIC:
                found = found | (wanted.data == other.data)
            else:
                pairs = zip(stretched(wanted.data, size), stretched(other.data, size), strict=True)
                found = found | np.fromiter((a == b for a, b in pairs), np.bool_, size)
        return Vec(found, errors, axis)

    return evaluate


def _engine_evaluator(program: Program, varying: list[str]) -> Evaluator:
    kind = program.kind
    placeholder = _PLACEHOLDERS[kind]

    def evaluate(frame: Frame) -> Vec:
        columns = frame.columns
        only = columns.get(varying[0]) if len(varying) == 1 else None
        if isinstance(only, InternedColumn) and frame.worth_a_table(only):
            table, errors = split_failures(program.run_table(columns, varying[0]), placeholder)
            return Vec(from_values(table, kind), errors, frame.table_axis(only))
        found, codes = program.run_distinct(columns)
        values, errors = split_failures(found, placeholder)
        per_value = Vec(from_values(values, kind), errors)
        if len(codes) == 1 and columns.size != 1:
            return per_value
        if isinstance(per_value.data, list):
            data: Any = [per_value.data[code] for code in codes.tolist()]
        else:
            data = per_value.data[codes]
        return Vec(data, gathered(errors, codes), frame.rows)

    return evaluate
