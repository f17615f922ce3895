"""What one evaluation of an expression may cost, estimated before it is ever made.

As in Kubernetes' own CEL: a simple operation costs 1, work on text a tenth per character, a loop
its body as often as its range has entries. How large labels and texts are is assumed (`ASSUMED`):
larger ones are evaluated all the same, up to `MAX_STEPS` passes through loops, behind which an
expression has no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from policy.rules.expressions import syntax
from policy.rules.expressions.syntax import Call, Comprehension, Constant, Identifier, SyntaxNode
from policy.rules.expressions.variables import VARIABLES, ValueType

MAX_COST: Final = 100_000
"""Units that one evaluation may cost; estimated, with assumed sizes."""

MAX_STEPS: Final = 10_000
"""Passes through all loops of one evaluation; the CEL library ends an evaluation behind it."""


@dataclass(frozen=True, slots=True)
class Size:
    """Characters of a text or entries of a list or map, and how large these are."""

    count: int = 1
    entry: Size | None = None  #: of a list's entries and of a map's keys
    value: Size | None = None  #: of a map's values

    def __or__(self, other: Size) -> Size:
        """The larger in every part."""
        return Size(
            max(self.count, other.count),
            _larger(self.entry, other.entry),
            _larger(self.value, other.value),
        )


def _larger(one: Size | None, other: Size | None) -> Size | None:
    return one if other is None else other if one is None else one | other


_TEXT: Final = Size(64)
_STRING_MAP: Final = Size(64, _TEXT, _TEXT)

ASSUMED: Final[Mapping[str, Size]] = MappingProxyType(
    {
        "labels": _STRING_MAP,
        "annotations": Size(64, _TEXT, Size(1024)),
        "requests": Size(16, _TEXT, Size()),
        "other text": _TEXT,
    }
)
"""What is assumed of what a cluster holds: entries, characters of keys, characters of values."""

_SMALL: Final = Size()
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost and loop passes of an expression, and the size of its value."""

    cost: int
    steps: int = 0
    size: Size = _SMALL

    def __add__(self, other: Estimate) -> Estimate:
        """Both, one after the other; the size is the second one's."""
        return Estimate(self.cost + other.cost, self.steps + other.steps, other.size)


def estimate(node: SyntaxNode, bound: Mapping[str, Size] = MappingProxyType({})) -> Estimate:
    """What evaluating the node once may cost; `bound` are the loop variables around it."""
    match node:
        case Constant(value=value):
            return Estimate(0, 0, Size(len(value) if isinstance(value, str | bytes) else 1))
        case Identifier(name=name):
            return Estimate(1, 0, bound[name] if name in bound else _size_of(name))
        case syntax.Select(operand=operand):
            found = estimate(operand, bound)
            return found + Estimate(1, 0, found.size.value or _SMALL)
        case syntax.ListLiteral(elements=elements):
            return _literal([estimate(element, bound) for element in elements], ())
        case syntax.MapLiteral(entries=entries):
            found_entries = [estimate(entry, bound) for entry in entries]
            return _literal(found_entries[::2], found_entries[1::2])
        case Comprehension():
            return _loop(node, bound)
        case Call():
            return _call(node, bound)
    raise AssertionError(node)


def dearest_loop(node: SyntaxNode) -> SyntaxNode:
    """The loop that makes an expression dear, the expression itself where it has none."""
    loops = [part for part in syntax.walk(node) if isinstance(part, Comprehension)]
    return loops[0] if loops else node


def _size_of(name: str) -> Size:
    variable = VARIABLES.get(name)
    if variable is None:
        return _SMALL
    if variable.type is ValueType.STRING_MAP:
        return ASSUMED["annotations" if name.lower().endswith("annotations") else "labels"]
    if variable.type is ValueType.INT_MAP:
        return ASSUMED["requests"]
    return ASSUMED["other text"] if variable.type is ValueType.STRING else _SMALL


def _total(parts: list[Estimate]) -> Estimate:
    return Estimate(sum(part.cost for part in parts), sum(part.steps for part in parts))


def _literal(keys: list[Estimate], values: list[Estimate] | tuple[()]) -> Estimate:
    whole = _total([*keys, *values])
    entry = value = None
    for part in keys:
        entry = _larger(entry, part.size)
    for part in values:
        value = _larger(value, part.size)
    return Estimate(whole.cost + len(keys) + 1, whole.steps, Size(len(keys), entry, value))


def _loop(node: Comprehension, bound: Mapping[str, Size]) -> Estimate:
    """`all`, `exists`, `exists_one`, `map` and `filter`."""
    over, start = (estimate(part, bound) for part in node.outer)
    condition, step, result = node.inner
    variable, *others = node.bound
    passes = over.size.count
    scope = {**bound, **dict.fromkeys(others, start.size), variable: over.size.entry or _SMALL}
    once = estimate(step, scope)
    # What grows with each pass is the list that `map` and `filter` collect.
    grown = max(once.size.count - start.size.count, 0)
    collected = replace(once.size, count=start.size.count + passes * grown)
    scope |= dict.fromkeys(others, collected)
    each = estimate(condition, scope) + once
    whole = over + start + Estimate(passes * (each.cost + 1), passes * (each.steps + 1))
    return whole + estimate(result, scope)


def _tenth(characters: int) -> int:
    return -(-characters // 10)


def _call(node: Call, bound: Mapping[str, Size]) -> Estimate:
    parts = [estimate(argument, bound) for argument in node.arguments]
    whole = _total(parts)
    extra, size = _work(node.function, [part.size for part in parts])
    return whole + Estimate(1 + extra, 0, size)


def _work(function: str, sizes: list[Size]) -> tuple[int, Size]:
    """What a function adds to its operands' cost, and how large its value is."""
    first = sizes[0] if sizes else _SMALL
    second = sizes[1] if len(sizes) > 1 else _SMALL
    if function in _COMPARISONS:
        return _compared(first, second), _SMALL
    match function:
        case "_+_":
            joined = Size(first.count + second.count, _larger(first.entry, second.entry))
            return (0 if joined.entry else _tenth(joined.count)), joined
        case "_?_:_":
            return 0, second | sizes[2]
        case "_[_]" | "_[?_]":
            return 0, first.value or first.entry or _SMALL
        case "orValue":
            return 0, first | second
        case "@in":
            # A map is looked up, a list gone through.
            each = second.entry or _SMALL
            return (0 if second.value else second.count * (1 + _compared(first, each))), _SMALL
        case "matches":
            return _tenth(first.count + 1) * max(1, second.count // 4), _SMALL
        case "contains":
            return _tenth(first.count) * max(1, _tenth(second.count)), _SMALL
        case "startsWith" | "endsWith":
            return _tenth(second.count), _SMALL
        case "string" | "dyn" | "bytes":
            return _tenth(first.count), first | Size(20)
        case "int" | "uint" | "double" | "bool" | "duration" | "timestamp":
            return _tenth(first.count), _SMALL
    return 0, _SMALL


def _compared(one: Size, other: Size) -> int:
    """Comparing two values: a text by its characters, a list or map entry by entry."""
    count = min(one.count, other.count)
    if one.entry is None or other.entry is None:
        return _tenth(count)
    each = 1 + _compared(one.entry, other.entry)
    if one.value is not None and other.value is not None:
        each += 1 + _compared(one.value, other.value)
    return count * each
