"""Which condition follows from which, as far as their texts tell.

A condition is read as alternatives (`||`) of things that hold together (`&&`); of these,
comparisons of a whole number with a literal and of text with literals are understood, and all else
is compared as it stands. What is said is true; much that is true is not said.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Final, TypeAlias

from policy.rules.expressions.checking import check
from policy.rules.expressions.expression import CONDITION, Expression
from policy.rules.expressions.syntax import Call, Constant, ListLiteral, SyntaxNode

_Key: TypeAlias = Hashable
"""A part of an expression, the same for the same text wherever it stands."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_EQUALITY: Final = frozenset({"_==_", "_!=_"})
_NEGATED: Final = {
    "_<_": "_>=_",
    "_<=_": "_>_",
    "_>_": "_<=_",
    "_>=_": "_<_",
    "_==_": "_!=_",
    "_!=_": "_==_",
    "_&&_": "_||_",
    "_||_": "_&&_",
}
_FLIPPED: Final = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_"}


@dataclass(frozen=True, slots=True)
class _Range:
    """Whole numbers between two ends, both included."""

    low: int = _INT_MIN
    high: int = _INT_MAX

    def __and__(self, other: _Range) -> _Range:
        return _Range(max(self.low, other.low), min(self.high, other.high))

    def within(self, other: _Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    @property
    def empty(self) -> bool:
        return self.low > self.high


@dataclass(frozen=True, slots=True)
class _Together:
    """What has to hold at the same time for one alternative."""

    parts: frozenset[_Key]
    ranges: Mapping[_Key, _Range]
    words: Mapping[_Key, frozenset[str]]

    @property
    def impossible(self) -> bool:
        return (
            False in self.parts
            or any(found.empty for found in self.ranges.values())
            or not all(self.words.values())
        )

    def implies(self, other: _Together) -> bool:
        nothing: frozenset[str] = frozenset()
        return (
            other.parts <= self.parts
            and all(
                subject in self.ranges and self.ranges[subject].within(wanted)
                for subject, wanted in other.ranges.items()
            )
            and all(
                subject in self.words and self.words.get(subject, nothing) <= wanted
                for subject, wanted in other.words.items()
            )
        )


def follows(later: Expression | None, earlier: Expression | None) -> bool:
    """Does `earlier` hold wherever `later` does? None stands for a condition that always holds."""
    return all(
        any(one.implies(other) for other in _alternatives(earlier)) or one.impossible
        for one in _alternatives(later)
    )


def only_lower(condition: Expression | None) -> bool:
    """Does the condition hold only for victims of a lower priority than the preemptor's?"""
    return all(_lower(one) or one.impossible for one in _alternatives(condition))


def impossible(condition: Expression) -> bool:
    """Can the condition never hold, whatever the values are?"""
    return all(one.impossible for one in _alternatives(condition))


# Each rule of a section is held against all above it: with room for fewer than there are, none
# would be found again.
@lru_cache(maxsize=4096)
def _alternatives(condition: Expression | None) -> tuple[_Together, ...]:
    if condition is None:
        return (_together(()),)
    tree = check(condition.source, context=condition.context, expected=CONDITION).tree
    root = _without_negations(tree.root)
    return tuple(_together(_flat(node, "_&&_")) for node in _flat(root, "_||_"))


def _without_negations(node: SyntaxNode, *, negated: bool = False) -> SyntaxNode:
    """The same condition, its negations drawn into what they negate: `!(a || b)` is `!a && !b`.

    Of an order between floats nothing is drawn: `!(x < y)` and `x >= y` differ where one is NaN.
    """
    match node:
        case Call(function="!_", arguments=(inner,)):
            return _without_negations(inner, negated=not negated)
        case Call(function="_&&_" | "_||_" as function):
            parts = tuple(_without_negations(part, negated=negated) for part in node.arguments)
            function = _NEGATED[function] if negated else function
            return replace(node, function=function, arguments=parts)
        case Constant(value=bool(value)):
            return replace(node, value=value is not negated)
        case Call(function=function) if negated and function in _NEGATED:
            if all(part.type.name == "int" for part in node.arguments) or function in _EQUALITY:
                return replace(node, function=_NEGATED[function])
    return Call(node.offset, node.type, node.raw, "!_", (node,)) if negated else node


def _flat(node: SyntaxNode, operator: str) -> Iterator[SyntaxNode]:
    if isinstance(node, Call) and node.function == operator:
        for argument in node.arguments:
            yield from _flat(argument, operator)
    else:
        yield node


def _together(nodes: Iterator[SyntaxNode] | tuple[()]) -> _Together:
    parts: set[_Key] = set()
    ranges: dict[_Key, _Range] = {}
    words: dict[_Key, frozenset[str]] = {}
    for node in nodes:
        if isinstance(node, Constant) and node.value is True:
            continue
        if isinstance(node, Constant) and node.value is False:
            parts.add(False)
            continue
        subject, found = _compared(node)
        if isinstance(found, _Range):
            ranges[subject] = found & ranges.get(subject, _Range())
        elif found is not None:
            words[subject] = found & words.get(subject, found)
        else:
            parts.add(_key(_upright(node)))
    return _Together(frozenset(parts), ranges, words)


def _compared(node: SyntaxNode) -> tuple[_Key, _Range | frozenset[str] | None]:
    """The side of a comparison that is no literal, and the values that it may have."""
    if not isinstance(node, Call) or len(node.arguments) != 2:
        return None, None
    left, right = node.arguments
    function = node.function
    if isinstance(left, Constant) and function in _FLIPPED:
        left, right, function = right, left, _FLIPPED[function]
    if isinstance(right, Constant):
        value = right.value
        if isinstance(value, int) and not isinstance(value, bool):
            return _key(left), _range(function, value)
        if isinstance(value, str) and function == "_==_":
            return _key(left), frozenset({value})
    elif isinstance(right, ListLiteral) and function == "@in":
        values = [e.value for e in right.elements if isinstance(e, Constant)]
        texts = frozenset(value for value in values if isinstance(value, str))
        if len(values) == len(right.elements) and all(isinstance(v, str) for v in values):
            return _key(left), texts
    return None, None


def _range(function: str, value: int) -> _Range | None:
    match function:
        case "_<_":
            return _Range(high=value - 1)
        case "_<=_":
            return _Range(high=value)
        case "_>_":
            return _Range(low=value + 1)
        case "_>=_":
            return _Range(low=value)
        case "_==_":
            return _Range(value, value)
    return None


def _upright(node: SyntaxNode) -> SyntaxNode:
    """A comparison of two things that vary, with the smaller one on the left."""
    if isinstance(node, Call) and node.function in ("_>_", "_>=_"):
        return replace(
            node, function=_FLIPPED[node.function], arguments=(node.arguments[1], node.arguments[0])
        )
    return node


def _lower(one: _Together) -> bool:
    """Is the victim's priority below the preemptor's in this alternative?"""
    victim, preemptor = one.ranges.get(_VICTIM), one.ranges.get(_PREEMPTOR)
    ahead = one.ranges.get(_binary("_-_", _PREEMPTOR, _VICTIM))
    behind = one.ranges.get(_binary("_-_", _VICTIM, _PREEMPTOR))
    return (
        any(_less(part) for part in one.parts)
        or (victim is not None and preemptor is not None and victim.high < preemptor.low)
        or (ahead is not None and ahead.low > 0)
        or (behind is not None and behind.high < 0)
    )


def _less(part: _Key) -> bool:
    """Does it compare the two, each with or without a number added, and leave the victim behind?"""
    match part:
        case ("Call", ("str", "_<_" | "_<=_" as function), (left, right)):
            (victim, more), (preemptor, plus) = _shifted(left), _shifted(right)
            least = more - plus + (function == "_<_")
            return (victim, preemptor) == (_VICTIM, _PREEMPTOR) and least > 0
    return False


def _shifted(part: _Key) -> tuple[_Key, int]:
    """What a literal is added to, and the literal; 0 where there is none."""
    match part:
        case ("Call", ("str", "_+_"), (left, ("Constant", ("int", int(number))))):
            return left, number
        case ("Call", ("str", "_+_"), (("Constant", ("int", int(number))), right)):
            return right, number
        case ("Call", ("str", "_-_"), (left, ("Constant", ("int", int(number))))):
            return left, -number
    return part, 0


_PLACE: Final = frozenset({"offset", "raw", "type"})


def _key(node: SyntaxNode) -> _Key:
    """The node without its place in the text."""
    values = (getattr(node, field.name) for field in fields(node) if field.name not in _PLACE)
    return (type(node).__name__, *(_frozen(value) for value in values))


def _frozen(value: object) -> _Key:
    if isinstance(value, SyntaxNode):
        return _key(value)
    if isinstance(value, tuple):
        return tuple(_frozen(item) for item in value)
    # 1, 1.0 and true are equal in Python.
    return (type(value).__name__, value)


def _variable(name: str) -> _Key:
    return ("Identifier", _frozen(name))


def _binary(function: str, left: _Key, right: _Key) -> _Key:
    return ("Call", _frozen(function), (left, right))


_VICTIM: Final = _variable("victim.priority")
_PREEMPTOR: Final = _variable("preemptor.priority")
