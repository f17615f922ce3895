"""The text of a part of an expression: the same for the same part, wherever it stands."""

from __future__ import annotations

import json
import struct
from typing import Final

from policy.rules.expressions import syntax
from policy.rules.expressions.syntax import Call, Constant, SyntaxNode
from policy.rules.expressions.wire import fields

_INFIX: Final = {
    **{f"_{sign}_": sign for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")},
    "_&&_": "&&",
    "_||_": "||",
    "@in": "in",
}
_METHODS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})


def wording(node: SyntaxNode) -> str:
    """The part as a rule file could write it; a loop as its parts."""
    match node:
        case Constant():
            return _constant(node)
        case syntax.Identifier(name=name):
            return name
        case syntax.Select(operand=operand, field=field, test_only=test_only):
            read = f"{wording(operand)}.{field}"
            return f"has({read})" if test_only else read
        case syntax.ListLiteral(elements=elements):
            return f"[{_listed(elements)}]"
        case syntax.MapLiteral(entries=entries):
            pairs = zip(entries[::2], entries[1::2], strict=True)
            return "{" + ", ".join(f"{wording(k)}: {wording(v)}" for k, v in pairs) + "}"
        case syntax.Comprehension(bound=bound, outer=outer, inner=inner):
            return f"loop({bound[0]}, {_listed((*outer, *inner))})"
        case Call():
            return _call(node)
    raise AssertionError(node)


def _listed(nodes: tuple[SyntaxNode, ...]) -> str:
    return ", ".join(map(wording, nodes))


def _call(node: Call) -> str:
    read = syntax.default_read(node)
    if read is not None:
        return f"{wording(read[0])}[{wording(read[1])}]"
    function, arguments = node.function, node.arguments
    if function in _INFIX:
        return f"({wording(arguments[0])} {_INFIX[function]} {wording(arguments[1])})"
    if function in ("!_", "-_"):
        return f"{function[0]}{wording(arguments[0])}"
    if function == "_?_:_":
        condition, first, second = map(wording, arguments)
        return f"({condition} ? {first} : {second})"
    if function == "_[_]":
        return f"{wording(arguments[0])}[{wording(arguments[1])}]"
    if function in _METHODS or function.startswith("get"):
        return f"{wording(arguments[0])}.{function}({_listed(arguments[1:])})"
    return f"{function}({_listed(arguments)})"


def _constant(node: Constant) -> str:
    if isinstance(node.value, str):
        return json.dumps(node.value, ensure_ascii=False)
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, float):
        return _number(node.raw)
    return "null" if node.value is None else str(node.value)


def _number(raw: bytes) -> str:
    """Numbers that only the CEL library computes with: unsigned ones and fractions."""
    for field, value in fields(next(v for f, v in fields(raw) if f == 3 and isinstance(v, bytes))):
        if isinstance(value, int):
            return f"{value}u" if field == 4 else str(value)
        return repr(struct.unpack("<d", value)[0])
    return "0.0"
