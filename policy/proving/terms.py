"""From a checked expression to the solver's terms: a value, and where it has none.

Each operator does what `policy.rules.expressions` defines; what conditions mean together is read
from the one definition in `semantics`, case by case. A part that is not understood becomes an
unknown of the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, Final, TypeAlias

import z3

from policy.proving.patterns import NotTranslatable, pattern, text_value
from policy.proving.wording import wording
from policy.proving.world import MAPS, NUMBER, Declarations, Value
from policy.rules.expressions import (
    VARIABLES,
    Context,
    Expression,
    OnError,
    ValueType,
    semantics,
    syntax,
)
from policy.rules.expressions.checking import check
from policy.rules.expressions.compiler import history_call, kind_of
from policy.rules.expressions.engine import literal_time
from policy.rules.expressions.kernels import (
    DURATION_LIMIT_MS,
    INT_MAX,
    INT_MIN,
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
)
from policy.rules.expressions.syntax import (
    Call,
    Comprehension,
    Constant,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    SyntaxNode,
)

NEVER: Final = z3.BoolVal(False)
ALWAYS: Final = z3.BoolVal(True)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value, and when there is none; the value means nothing there."""

    value: Value
    error: Value = NEVER


@dataclass(frozen=True, slots=True, eq=False)
class ListTerm:
    """A list that is written in the expression."""

    elements: tuple[Term, ...]

    @property
    def error(self) -> Value:
        return either(*(element.error for element in self.elements))


@dataclass(frozen=True, slots=True, eq=False)
class MapTerm:
    """A map that is written in the expression, with literal keys."""

    entries: tuple[tuple[Constant, Term], ...]

    @property
    def error(self) -> Value:
        return either(*(value.error for _, value in self.entries))


Part: TypeAlias = Term | ListTerm | MapTerm


def either(*errors: Value) -> Value:
    """Errors of an operator that needs all its operands."""
    found = [error for error in errors if not z3.is_false(error)]
    return NEVER if not found else found[0] if len(found) == 1 else z3.Or(*found)


def lifted(function: Callable[..., semantics.Truth], *terms: Term) -> Term:
    """A function of truth values, as `semantics` defines it for each case, on terms."""
    cases: list[list[tuple[semantics.Truth, Value]]] = []
    for term in terms:
        true, false = term.value, z3.Not(term.value)
        if z3.is_false(term.error):
            cases.append([(True, true), (False, false)])
            continue
        known = z3.Not(term.error)
        cases.append(
            [(True, z3.And(known, true)), (False, z3.And(known, false)), (None, term.error)]
        )
    holds: list[Value] = []
    none: list[Value] = []
    for combination in product(*cases):
        result = function(*(truth for truth, _ in combination))
        if result is not False:
            (holds if result else none).append(z3.And(*(case for _, case in combination)))
    errors = z3.simplify(z3.Or(*none)) if none else NEVER
    return Term(z3.simplify(z3.Or(*holds)), errors)


def takes_effect(term: Term, on_error: OnError) -> Value:
    """Does a rule with this condition take effect, where it has no value as `on_error` says?"""
    return lifted(lambda truth: semantics.holds(truth, on_error), term).value


@lru_cache(maxsize=4096)
def _root(source: str, context: Context, kind: ValueType) -> SyntaxNode:
    """The tree of an expression: each question translates the same ones anew."""
    return check(source, context=context, expected=frozenset({kind})).tree.root


@dataclass(slots=True)
class Translator:
    """Translates expressions of one rule set (`side`) into one world."""

    world: Declarations
    side: str = ""
    bound: dict[str, Part] = field(default_factory=dict)  #: loop variables

    def condition(self, expression: Expression) -> Term:
        """The value of a whole expression."""
        return self.scalar(_root(expression.source, expression.context, expression.type))

    def scalar(self, node: SyntaxNode) -> Term:
        """The value of a part; an unknown one where it is not understood."""
        try:
            found = self.term(node)
        except NotTranslatable:
            return self._opaque(node)
        if not isinstance(found, Term):
            raise NotTranslatable(wording(node))
        return found

    def _opaque(self, node: SyntaxNode) -> Term:
        kind = kind_of(node.type)
        # Instants and durations may be finer than a millisecond: what compares them is unknown.
        if kind not in (ValueType.BOOL, ValueType.INT, ValueType.STRING) or self.bound:
            raise NotTranslatable(wording(node))
        names = {identifier.name for identifier in syntax.free_identifiers(node)}
        side = self.side if names & self.world.apart else ""
        unknown = self.world.unknown(wording(node), kind, side=side)
        for name in sorted(names):
            if VARIABLES[name].type not in MAPS:
                self.world.variable(name, self.side)
        return Term(unknown.value, unknown.error)

    def term(self, node: SyntaxNode) -> Part:
        """The value of a part; raises `NotTranslatable`."""
        match node:
            case Constant():
                return self._constant(node)
            case Identifier(name=name):
                return self._identifier(name)
            case Select():
                return self._select(node)
            case ListLiteral(elements=elements):
                return ListTerm(tuple(self.scalar(element) for element in elements))
            case MapLiteral(entries=entries):
                return self._map(entries)
            case Comprehension():
                return self._loop(node)
            case Call():
                return self._call(node)
        raise NotTranslatable(wording(node))

    # -- leaves ----------------------------------------------------------------------------------

    def _constant(self, node: Constant) -> Term:
        value, kind = node.value, kind_of(node.type)
        if kind is ValueType.BOOL:
            return Term(z3.BoolVal(value))
        if kind is ValueType.INT and isinstance(value, int):
            self.world.numbers.add(value)
            return Term(z3.IntVal(value))
        if kind is ValueType.STRING and isinstance(value, str):
            self.world.texts.add(value)
            return Term(text_value(value))
        raise NotTranslatable(wording(node))

    def _identifier(self, name: str) -> Part:
        found: Part | None = self.bound.get(name)
        if found is not None:
            return found
        if name not in VARIABLES:
            raise NotTranslatable(name)
        return Term(self.world.variable(name, self.side))

    def _map(self, entries: tuple[SyntaxNode, ...]) -> MapTerm:
        found = []
        for key, value in zip(entries[::2], entries[1::2], strict=True):
            if not isinstance(key, Constant):
                raise NotTranslatable("a map with computed keys")
            found.append((key, self.scalar(value)))
        return MapTerm(tuple(found))

    # -- maps ------------------------------------------------------------------------------------

    def _read(self, operand: SyntaxNode, key: Term) -> tuple[Value, Value]:
        """Is the key in a map of the cluster, and its value."""
        if not isinstance(operand, Identifier) or operand.name not in VARIABLES:
            raise NotTranslatable(wording(operand))
        kind = ValueType.INT if _is_amounts(operand.name) else ValueType.STRING
        found = self.world.read(operand.name, key.value, kind)
        return found.present, found.value

    def _key(self, node: SyntaxNode) -> Term:
        """A key of a map; a literal one is no text that values are compared with."""
        if isinstance(node, Constant) and isinstance(node.value, str):
            return Term(text_value(node.value))
        return self.scalar(node)

    def _select(self, node: Select) -> Term:
        if isinstance(node.operand, MapLiteral):
            return self._entry(self._map(node.operand.entries), node.field, node.test_only)
        if not node.test_only or kind_of(node.operand.type) not in MAPS:
            raise NotTranslatable(wording(node))
        return Term(self._read(node.operand, Term(text_value(node.field)))[0])

    def _entry(self, found: MapTerm, wanted: object, test_only: bool) -> Term:
        for key, value in found.entries:
            if type(key.value) is type(wanted) and key.value == wanted:
                return Term(ALWAYS, found.error) if test_only else Term(value.value, found.error)
        if test_only:
            return Term(NEVER, found.error)
        raise NotTranslatable("a key that is not there")

    def _index(self, node: Call) -> Term:
        container, wanted = self.term(node.arguments[0]), self.scalar(node.arguments[1])
        pairs: list[tuple[Value, Term]]
        if isinstance(container, ListTerm):
            pairs = [(z3.IntVal(i), element) for i, element in enumerate(container.elements)]
        elif isinstance(container, MapTerm):
            kind = node.arguments[1].type
            if any(key.type != kind for key, _ in container.entries):
                raise NotTranslatable(wording(node))
            pairs = [(self._constant(key).value, value) for key, value in container.entries]
        else:
            raise NotTranslatable(wording(node))
        if not pairs:
            raise NotTranslatable(wording(node))
        value = pairs[-1][1].value
        for key, entry in reversed(pairs[:-1]):
            value = z3.If(wanted.value == key, entry.value, value)
        missing = z3.Not(z3.Or(*(wanted.value == key for key, _ in pairs)))
        return Term(value, either(container.error, wanted.error, missing))

    # -- loops -----------------------------------------------------------------------------------

    def _loop(self, node: Comprehension) -> Part:
        """A loop over a list in the expression, pass by pass.

        The condition of the loop only ends it where the result is certain, so it is left out.
        """
        over = self.term(node.outer[0])
        if not isinstance(over, ListTerm) or len(node.bound) != 2:
            raise NotTranslatable(wording(node))
        variable, collected = node.bound
        outside = self.bound
        result = self.term(node.outer[1])
        for element in over.elements:
            inside = {**outside, variable: Term(element.value), collected: result}
            result = self._within(inside, node.inner[1])
        found = self._within({**outside, collected: result}, node.inner[2])
        if isinstance(found, Term):
            return Term(found.value, either(found.error, over.error))
        if isinstance(found, ListTerm):
            failed = over.error
            return ListTerm(
                tuple(Term(e.value, either(e.error, failed)) for e in found.elements)
                if not z3.is_false(failed)
                else found.elements
            )
        raise NotTranslatable(wording(node))

    def _within(self, bound: dict[str, Part], node: SyntaxNode) -> Part:
        before, self.bound = self.bound, bound
        try:
            return self.term(node)
        finally:
            self.bound = before

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, node: Call) -> Part:
        name, arguments = node.function, node.arguments
        read = syntax.default_read(node)
        if read is not None:
            key = self._key(read[1])
            present, value = self._read(read[0], key)
            default = self._constant(read[2]).value
            return Term(z3.If(present, value, default), key.error)
        if name.startswith("history."):
            return self._history(node)
        if name in _LOGIC:
            return lifted(_LOGIC[name], *(self.scalar(argument) for argument in arguments))
        if name == "_?_:_":
            return self._choice(node)
        if name == "@in":
            return self._membership(node)
        if name == "_[_]":
            return self._index(node)
        if name == "matches":
            return self._matches(node)
        if name in ("timestamp", "duration"):
            return self._instant(node)
        if len(arguments) == 2:
            return self._binary(node)
        if len(arguments) == 1:
            return self._unary(node)
        raise NotTranslatable(wording(node))

    def _history(self, node: Call) -> Term:
        function, window = history_call(node)
        key = self.scalar(node.arguments[0])
        name = f"history.{function.name}" + ("" if window is None else f"/{window}")
        return Term(self.world.read(name, key.value, ValueType.INT).value, key.error)

    def _instant(self, node: Call) -> Term:
        value = literal_time(node)
        if value is None or (node.function == "duration" and abs(value) > DURATION_LIMIT_MS):
            raise NotTranslatable(wording(node))
        return Term(z3.IntVal(value))

    def _choice(self, node: Call) -> Term:
        condition, first, second = (self.scalar(argument) for argument in node.arguments)
        if kind_of(node.type) is ValueType.BOOL:
            return lifted(semantics.choice, condition, first, second)
        if kind_of(node.type) is None:
            raise NotTranslatable(wording(node))
        taken = z3.simplify(z3.If(condition.value, first.error, second.error))
        value = z3.If(condition.value, first.value, second.value)
        return Term(value, either(condition.error, taken))

    def _membership(self, node: Call) -> Term:
        if kind_of(node.arguments[1].type) in MAPS and isinstance(node.arguments[1], Identifier):
            key = self._key(node.arguments[0])
            return Term(self._read(node.arguments[1], key)[0], key.error)
        item = self.scalar(node.arguments[0])
        container = self.term(node.arguments[1])
        kind = node.arguments[0].type
        if isinstance(container, ListTerm):
            parameters = node.arguments[1].type.parameters
            if container.elements and parameters != (kind,):
                raise NotTranslatable(wording(node))
            found = [item.value == element.value for element in container.elements]
        elif isinstance(container, MapTerm):
            if any(key.type != kind for key, _ in container.entries):
                raise NotTranslatable(wording(node))
            found = [item.value == self._constant(key).value for key, _ in container.entries]
        else:
            raise NotTranslatable(wording(node))
        return Term(z3.Or(*found) if found else NEVER, either(item.error, container.error))

    def _matches(self, node: Call) -> Term:
        text, source = node.arguments
        if not isinstance(source, Constant) or not isinstance(source.value, str):
            raise NotTranslatable(wording(node))
        found = self.scalar(text)
        return Term(z3.InRe(found.value, pattern(source.value)), found.error)

    def _binary(self, node: Call) -> Part:
        left, right = (self.term(argument) for argument in node.arguments)
        kinds = tuple(kind_of(argument.type) for argument in node.arguments)
        if isinstance(left, ListTerm) and isinstance(right, ListTerm):
            return self._lists(node, left, right)
        if not isinstance(left, Term) or not isinstance(right, Term) or None in kinds:
            raise NotTranslatable(wording(node))
        errors = either(left.error, right.error)
        if kinds[0] is kinds[1] and node.function in _COMPARISONS:
            a, b = (_ordered(t.value, k) for t, k in zip((left, right), kinds, strict=True))
            return Term(_COMPARISONS[node.function](a, b), errors)
        arithmetic = _ARITHMETIC.get((node.function, *kinds))
        if arithmetic is None:
            raise NotTranslatable(wording(node))
        value, error = arithmetic(left.value, right.value)
        return Term(value, either(errors, error))

    def _lists(self, node: Call, left: ListTerm, right: ListTerm) -> Part:
        if node.function == "_+_":
            return ListTerm((*left.elements, *right.elements))
        types = {argument.type for argument in node.arguments}
        parameters = next(iter(types)).parameters
        if node.function not in ("_==_", "_!=_") or len(types) > 1:
            raise NotTranslatable(wording(node))
        if any(kind_of(parameter) is None for parameter in parameters):
            raise NotTranslatable(wording(node))
        same: Value = NEVER
        if len(left.elements) == len(right.elements):
            pairs = zip(left.elements, right.elements, strict=True)
            same = z3.And(*(a.value == b.value for a, b in pairs))
        errors = either(left.error, right.error)
        return Term(same if node.function == "_==_" else z3.Not(same), errors)

    def _unary(self, node: Call) -> Term:
        operand = self.term(node.arguments[0])
        kind, name = kind_of(node.arguments[0].type), node.function
        if isinstance(operand, ListTerm | MapTerm):
            if name != "size":
                raise NotTranslatable(wording(node))
            parts = operand.elements if isinstance(operand, ListTerm) else operand.entries
            return Term(z3.IntVal(len(parts)), operand.error)
        if kind is not None and name == kind.value and name in ("int", "string", "bool"):
            return operand
        function = _UNARY.get((name, kind))
        if function is not None:
            value, error = function(operand.value)
            return Term(value, either(operand.error, error))
        if (name, kind) == ("int", ValueType.STRING):
            number = self.world.read(NUMBER, operand.value, ValueType.INT)
            return Term(number.value, either(operand.error, z3.Not(number.present)))
        raise NotTranslatable(wording(node))


def _is_amounts(name: str) -> bool:
    return VARIABLES[name].type is ValueType.INT_MAP


_LOGIC: Final[Mapping[str, Callable[..., semantics.Truth]]] = {
    "_&&_": semantics.conjunction,
    "_||_": semantics.disjunction,
    "!_": semantics.negation,
}


def _ordered(value: Value, kind: ValueType | None) -> Value:
    """false comes before true."""
    return z3.If(value, z3.IntVal(1), z3.IntVal(0)) if kind is ValueType.BOOL else value


_COMPARISONS: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "_==_": lambda a, b: a == b,
    "_!=_": lambda a, b: a != b,
    "_<_": lambda a, b: a < b,
    "_<=_": lambda a, b: a <= b,
    "_>_": lambda a, b: b < a,
    "_>=_": lambda a, b: b <= a,
    "startsWith": lambda a, b: z3.PrefixOf(b, a),
    "endsWith": lambda a, b: z3.SuffixOf(b, a),
    "contains": z3.Contains,
}


def _outside(value: Value, low: int, high: int) -> Value:
    return z3.Or(value < low, value > high)


def _exact(value: Value) -> tuple[Value, Value]:
    return value, _outside(value, INT_MIN, INT_MAX)


def truncated(a: Value, b: Value) -> Value:
    """a / b towards zero; the solver's own division leaves a remainder that is never negative."""
    return z3.If(a >= 0, a / b, -(-a / b))


def remainder(a: Value, b: Value) -> Value:
    """What `truncated` leaves, with the sign of a."""
    return z3.If(a >= 0, a % b, -(-a % b))


def _bad_division(a: Value, b: Value) -> Value:
    return z3.Or(b == 0, z3.And(a == INT_MIN, b == -1))


def _moment(value: Value) -> tuple[Value, Value]:
    return value, _outside(value, TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS)


def _span(value: Value) -> tuple[Value, Value]:
    return value, _outside(value, -DURATION_LIMIT_MS, DURATION_LIMIT_MS)


def _between(a: Value, b: Value) -> tuple[Value, Value]:
    """timestamp - timestamp: the whole seconds are subtracted first, and may leave the range."""
    limit = DURATION_LIMIT_MS // 1000
    value, error = _span(a - b)
    return value, z3.Or(error, _outside(a / 1000 - b / 1000, -limit, limit))


_I, _S, _T, _D = ValueType.INT, ValueType.STRING, ValueType.TIMESTAMP, ValueType.DURATION

_ARITHMETIC: Final[Mapping[tuple[Any, ...], Callable[[Value, Value], tuple[Value, Value]]]] = {
    ("_+_", _I, _I): lambda a, b: _exact(a + b),
    ("_-_", _I, _I): lambda a, b: _exact(a - b),
    ("_*_", _I, _I): lambda a, b: _exact(a * b),
    ("_/_", _I, _I): lambda a, b: (truncated(a, b), _bad_division(a, b)),
    ("_%_", _I, _I): lambda a, b: (remainder(a, b), _bad_division(a, b)),
    ("_+_", _T, _D): lambda a, b: _moment(a + b),
    ("_+_", _D, _T): lambda a, b: _moment(a + b),
    ("_-_", _T, _D): lambda a, b: _moment(a - b),
    ("_-_", _T, _T): _between,
    ("_+_", _D, _D): lambda a, b: _span(a + b),
    ("_-_", _D, _D): lambda a, b: _span(a - b),
    ("_+_", _S, _S): lambda a, b: (z3.Concat(a, b), NEVER),
}


def _written(value: Value) -> Value:
    """A number as text; the solver writes none that is negative."""
    negative = z3.Concat(z3.StringVal("-"), z3.IntToStr(-value))
    return z3.If(value >= 0, z3.IntToStr(value), negative)


def _units(milliseconds: int) -> Callable[[Value], tuple[Value, Value]]:
    return lambda span: (truncated(span, z3.IntVal(milliseconds)), NEVER)


def _clock(unit: int, count: int) -> Callable[[Value], tuple[Value, Value]]:
    return lambda moment: ((moment / unit) % count, NEVER)


_UNARY: Final[Mapping[tuple[str, Any], Callable[[Value], tuple[Value, Value]]]] = {
    ("-_", _I): lambda a: (-a, a == INT_MIN),
    ("size", _S): lambda a: (z3.Length(a), NEVER),
    ("int", _T): lambda a: (a / 1000, NEVER),
    ("string", _I): lambda a: (_written(a), NEVER),
    ("string", ValueType.BOOL): lambda a: (
        z3.If(a, z3.StringVal("true"), z3.StringVal("false")),
        NEVER,
    ),
    ("getHours", _D): _units(3_600_000),
    ("getMinutes", _D): _units(60_000),
    ("getSeconds", _D): _units(1_000),
    ("getHours", _T): _clock(3_600_000, 24),
    ("getMinutes", _T): _clock(60_000, 60),
    ("getSeconds", _T): _clock(1_000, 60),
    ("getMilliseconds", _T): _clock(1, 1_000),
    ("getDayOfWeek", _T): lambda a: ((a / 86_400_000 + 4) % 7, NEVER),
}
