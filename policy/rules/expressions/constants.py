"""What is wrong with an expression whatever the values are: its constants are evaluated at load.

A part without variables either has a value or is a mistake; and some arguments (a pattern, a time
zone, a divisor, an index) can be judged alone where the rest of the call varies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from policy.rules.expressions import syntax
from policy.rules.expressions.engine import RowFailure, constant_value, failure_of, literal_text
from policy.rules.expressions.semantics import NoValue
from policy.rules.expressions.syntax import (
    Call,
    CheckedTree,
    Constant,
    ListLiteral,
    MapLiteral,
    SyntaxNode,
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A part of an expression that can have no value."""

    node: SyntaxNode  #: what to point at
    message: str
    help: str | None = None


def mistakes(tree: CheckedTree) -> Iterator[Mistake]:
    """The smallest parts that fail whatever the values are."""
    yield from _Judge(tree).below(tree.root)[1]


@dataclass(frozen=True, slots=True)
class _Judge:
    tree: CheckedTree

    def below(self, node: SyntaxNode) -> tuple[bool, list[Mistake]]:
        """Does a node vary with variables, and the mistakes at and below it."""
        varies, found = False, []
        for child in syntax.children(node):
            child_varies, below = self.below(child)
            varies |= child_varies
            found += below
        if isinstance(node, syntax.Identifier) or (
            isinstance(node, Call) and node.function.startswith("history.")
        ):
            return True, found
        if isinstance(node, syntax.Comprehension):
            # Loop variables vary inside a loop only.
            varies = not _closed(node)
        if found or isinstance(node, Constant):
            return varies, found
        mistake = self._part(node) if varies else self._whole(node)
        return varies, [] if mistake is None else [mistake]

    def _value(self, node: SyntaxNode) -> object:
        """The value of a constant number or text, None of all else."""
        if isinstance(node, Constant):
            return node.value
        if node.type.name != "int" or not _closed(node):
            return None
        value: object = constant_value(syntax.encode_subtree(self.tree, node))
        return value

    # -- parts without variables -------------------------------------------------------------

    def _whole(self, node: SyntaxNode) -> Mistake | None:
        value = constant_value(syntax.encode_subtree(self.tree, node))
        if not isinstance(value, RowFailure):
            return None
        why = value.why
        known = self._part(node)
        if known is not None:
            return known
        if isinstance(node, Call) and literal_text(node) is not None:
            return _literal(node)
        if isinstance(node, Call) and isinstance(node.arguments[0], Constant):
            text = node.arguments[0].value
            if isinstance(text, str) and why in (NoValue.NUMBER, NoValue.TRUTH):
                kind = {"int": "a whole number", "uint": "a whole number of 0 or more"}
                what = kind.get(node.function, "a number")
                if why is NoValue.TRUTH:
                    what = "`true` or `false`"
                return Mistake(node.arguments[0], f"`{text}` is not {what}")
        return Mistake(node, f"this part has no value: {why.value}")

    # -- arguments that can be judged alone --------------------------------------------------

    def _part(self, node: SyntaxNode) -> Mistake | None:
        if isinstance(node, MapLiteral):
            return _twice(node)
        if isinstance(node, syntax.Select) and isinstance(node.operand, MapLiteral):
            return None if node.test_only else _missing_key(node.operand, node.field, node)
        if not isinstance(node, Call) or len(node.arguments) != 2:
            return None
        first, second = node.arguments
        match node.function:
            case "_/_" | "_%_" if node.type.name in ("int", "uint") and self._value(second) == 0:
                return Mistake(second, "division by zero")
            case "matches" if isinstance(second, Constant):
                return _pattern(second)
            case "_[_]":
                return self._index(first, second)
        if node.function.startswith("get") and isinstance(second, Constant):
            return _zone(second)
        return None

    def _index(self, container: SyntaxNode, key: SyntaxNode) -> Mistake | None:
        wanted = self._value(key)
        if isinstance(container, MapLiteral) and isinstance(wanted, str | int):
            return _missing_key(container, wanted, key)
        if isinstance(container, ListLiteral) and isinstance(wanted, int):
            size = len(container.elements)
            if not 0 <= wanted < size:
                entries = "1 entry" if size == 1 else f"{size} entries"
                message = f"index {wanted} is outside the list of {entries}"
                return Mistake(key, message, "the first entry has index 0")
        return None


def _closed(node: SyntaxNode) -> bool:
    """Does a node read neither variables nor history?"""
    return not any(True for _ in syntax.free_identifiers(node)) and not any(
        isinstance(part, Call) and part.function.startswith("history.")
        for part in syntax.walk(node)
    )


def _literal(node: Call) -> Mistake:
    """`duration('...')` or `timestamp('...')`."""
    text = literal_text(node)
    return Mistake(
        node.arguments[0],
        f"`{text}` is not a {node.function}",
        "durations are written like `90s`, `10m` or `1h30m`"
        if node.function == "duration"
        else "timestamps are written like `2026-01-31T12:00:00Z`",
    )


def _pattern(node: Constant) -> Mistake | None:
    report = failure_of(f"''.matches({json.dumps(node.value)})")
    if report is None:
        return None
    detail = report.rpartition("expression: ")[2]
    advice = "the syntax is that of RE2: no look-around, no back references"
    return Mistake(node, f"`{node.value!s}` is not a regular expression: {detail}", advice)


def _zone(node: Constant) -> Mistake | None:
    call = f"timestamp('2026-01-01T00:00:00Z').getHours({json.dumps(node.value)})"
    if failure_of(call) is None:
        return None
    advice = "write a name like `Europe/Berlin`, or an offset like `+01:00`"
    return Mistake(node, f"`{node.value!s}` is not a time zone", advice)


def _constant_keys(node: MapLiteral) -> list[Constant]:
    return [key for key in node.entries[::2] if isinstance(key, Constant)]


def _twice(node: MapLiteral) -> Mistake | None:
    seen = set()
    for key in _constant_keys(node):
        # 1 and true are equal in Python.
        if (type(key.value), key.value) in seen:
            return Mistake(key, f"the map has the key `{key.value!s}` twice")
        seen.add((type(key.value), key.value))
    return None


def _missing_key(container: MapLiteral, wanted: object, place: SyntaxNode) -> Mistake | None:
    keys = _constant_keys(container)
    if len(keys) * 2 < len(container.entries) or wanted in [key.value for key in keys]:
        return None
    known = ", ".join(f"`{key.value!s}`" for key in keys) or "none"
    return Mistake(place, f"the map does not have the key `{wanted}`", f"its keys: {known}")
