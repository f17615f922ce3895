"""The checked syntax tree of an expression, read from the CEL library's serialised form.

The library hands out no tree, but `serialize()` is the documented protobuf message
cel.expr.CheckedExpr (in a google.protobuf.Any). Reading the few fields needed takes less than
a dependency on protobuf would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.rules.expressions.wire import (
    encode,
    fields,
    map_entry,
    message,
    signed,
    text,
)


@dataclass(frozen=True, slots=True)
class CelType:
    """A CEL type: `int`, `map` with its two parameters, `list` with one, ..."""

    name: str
    parameters: tuple[CelType, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}<{inner}>" if inner else self.name


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """One node: where it starts in the source, its type, and its own serialised bytes."""

    offset: int  #: characters from the start of the source; an operator for binary calls
    type: CelType
    raw: bytes


@dataclass(frozen=True, slots=True)
class Constant(SyntaxNode):
    """A literal."""

    value: None | bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class Identifier(SyntaxNode):
    """A variable, with its dotted name, or a loop variable of a macro."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(SyntaxNode):
    """`operand.field`, or `has(operand.field)` where `test_only`."""

    operand: SyntaxNode
    field: str
    test_only: bool


@dataclass(frozen=True, slots=True)
class Call(SyntaxNode):
    """A function, method or operator (`_+_`, `_?_:_`, `@in`, ...); a target comes first."""

    function: str
    arguments: tuple[SyntaxNode, ...]


@dataclass(frozen=True, slots=True)
class ListLiteral(SyntaxNode):
    """`[a, b]`."""

    elements: tuple[SyntaxNode, ...]


@dataclass(frozen=True, slots=True)
class MapLiteral(SyntaxNode):
    """`{a: b}`: keys and values in turn."""

    entries: tuple[SyntaxNode, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(SyntaxNode):
    """What `all`, `exists`, `exists_one`, `map` and `filter` expand to."""

    bound: tuple[str, ...]  #: loop variable and accumulator
    outer: tuple[SyntaxNode, ...]  #: evaluated outside the loop: range and initial value
    inner: tuple[SyntaxNode, ...]  #: sees the bound names: condition, step, result


@dataclass(frozen=True, slots=True)
class CheckedTree:
    """A type-checked expression; `envelope` is the message without its tree."""

    root: SyntaxNode
    envelope: bytes


_PRIMITIVES = ("dyn", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("dyn", "dyn", "timestamp", "duration")
DYN = CelType("dyn")
_TYPE = CelType("type")
_TYPE_NAMES = frozenset(
    {
        *("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"),
        *("google.protobuf.Duration", "google.protobuf.Timestamp"),
    }
)
OPTIONAL_READ = "_[?_]"
OR_VALUE = "orValue"
"""A map read with a default is `m[?key].orValue(default)`, made by `defaults.with_defaults`."""

_TYPE_URL = b"type.googleapis.com/cel.expr.CheckedExpr"


def type_of_message(data: bytes) -> CelType:
    for field, value in fields(data):
        if field == 2:
            return CelType("null_type")
        if field == 3 and isinstance(value, int):
            return CelType(_PRIMITIVES[value])
        if field == 5 and isinstance(value, int):
            return CelType(_WELL_KNOWN[value])
        if field in (6, 7) and isinstance(value, bytes):
            inner = tuple(type_of_message(message(part)) for _, part in fields(value))
            return CelType("list" if field == 6 else "map", inner)
        if field == 11:
            return _TYPE
        if field in (4, 9, 14):
            return CelType("other")
    return DYN


def _constant(data: bytes) -> None | bool | int | float | str | bytes:
    for field, value in fields(data):
        if field == 2:
            return bool(value)
        if field == 3:
            return signed(value)
        if field == 6:
            return text(value)
        if field == 7:
            return message(value)
        if field in (4, 5):
            # Numbers that only the CEL engine computes with: the exact value is in `raw`.
            return float(0)
    return None


@dataclass(frozen=True, slots=True)
class _Reader:
    types: Mapping[int, CelType]
    offsets: Mapping[int, int]

    def node(self, data: bytes) -> SyntaxNode:
        ident, kind, body = 0, 0, b""
        for field, value in fields(data):
            if field == 2 and isinstance(value, int):
                ident = value
            elif isinstance(value, bytes):
                kind, body = field, value
        type_ = self.types.get(ident, DYN)
        offset = self.offsets.get(ident, 0)
        if kind == 3:
            return Constant(offset, type_, data, _constant(body))
        if kind == 4:
            name = next((text(v) for f, v in fields(body) if f == 1), "")
            return Identifier(offset, type_, data, name)
        if kind == 5:
            return self._select(body, offset, type_, data)
        if kind == 6:
            return self._call(body, offset, type_, data)
        if kind == 7:
            elements = tuple(self.node(message(v)) for f, v in fields(body) if f == 1)
            return ListLiteral(offset, type_, data, elements)
        if kind == 8:
            return MapLiteral(offset, type_, data, tuple(self._entries(body)))
        return self._comprehension(body, offset, type_, data)

    def _select(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Select:
        parts = dict(fields(body))
        operand = self.node(message(parts[1]))
        return Select(offset, type_, raw, operand, text(parts[2]), bool(parts.get(3, 0)))

    def _call(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Call:
        target: list[SyntaxNode] = []
        function = ""
        arguments: list[SyntaxNode] = []
        for field, value in fields(body):
            if field == 1:
                target.append(self.node(message(value)))
            elif field == 2:
                function = text(value)
            elif field == 3:
                arguments.append(self.node(message(value)))
        return Call(offset, type_, raw, function, (*target, *arguments))

    def _entries(self, body: bytes) -> Iterator[SyntaxNode]:
        for field, entry in fields(body):
            if field == 2:
                for part, value in fields(message(entry)):
                    if part in (3, 4):
                        yield self.node(message(value))

    def _comprehension(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Comprehension:
        bound: list[str] = []
        outer: list[SyntaxNode] = []
        inner: list[SyntaxNode] = []
        for field, value in fields(body):
            if field in (1, 3, 8):
                bound.append(text(value))
            elif field in (2, 4):
                outer.append(self.node(message(value)))
            elif field in (5, 6, 7):
                inner.append(self.node(message(value)))
        return Comprehension(offset, type_, raw, tuple(bound), tuple(outer), tuple(inner))


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a serialised, type-checked expression."""

    tree: bytes
    envelope: bytes  #: everything else
    types: dict[int, CelType]  #: by the id of the node
    offsets: dict[int, int]

    @classmethod
    def read(cls, serialized: bytes) -> Message:
        types: dict[int, CelType] = {}
        offsets: dict[int, int] = {}
        tree = b""
        envelope: list[bytes] = []
        for number, value in fields(next(message(v) for f, v in fields(serialized) if f == 2)):
            body = message(value)
            if number == 4:
                tree = body
                continue
            envelope.append(encode(number, body))
            if number == 3:
                ident, encoded = map_entry(body)
                types[ident] = type_of_message(message(encoded))
            elif number == 5:
                for part, entry in fields(body):
                    if part == 4:
                        ident, position = map_entry(message(entry))
                        assert isinstance(position, int)
                        offsets[ident] = position
        return cls(tree, b"".join(envelope), types, offsets)


def serialized_message(*checked: bytes) -> bytes:
    return encode(1, _TYPE_URL) + encode(2, b"".join(checked))


def decode(serialized: bytes) -> CheckedTree:
    """The tree of a serialised, type-checked expression."""
    found = Message.read(serialized)
    return CheckedTree(_Reader(found.types, found.offsets).node(found.tree), found.envelope)


def default_read(node: SyntaxNode) -> tuple[SyntaxNode, SyntaxNode, Constant] | None:
    """Map, key and default of a read that cannot fail; None for any other node."""
    if not (isinstance(node, Call) and node.function == OR_VALUE):
        return None
    read, default = node.arguments
    assert isinstance(read, Call) and isinstance(default, Constant)
    operand, key = read.arguments
    return operand, key, default


def encode_subtree(tree: CheckedTree, node: SyntaxNode) -> bytes:
    """A part of an expression as a serialised expression of its own."""
    return serialized_message(tree.envelope, encode(4, node.raw))


def children(node: SyntaxNode) -> tuple[SyntaxNode, ...]:
    """The nodes directly below."""
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, ListLiteral):
        return node.elements
    if isinstance(node, MapLiteral):
        return node.entries
    if isinstance(node, Comprehension):
        return node.outer + node.inner
    return ()


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def free_identifiers(node: SyntaxNode, bound: frozenset[str] = frozenset()) -> Iterator[Identifier]:
    """Identifiers that no macro binds and that name no type: the variables."""
    if isinstance(node, Identifier):
        names_type = node.type == _TYPE and node.name in _TYPE_NAMES
        if node.name not in bound and not names_type:
            yield node
    elif isinstance(node, Comprehension):
        for child in node.outer:
            yield from free_identifiers(child, bound)
        for child in node.inner:
            yield from free_identifiers(child, bound | set(node.bound))
    else:
        for child in children(node):
            yield from free_identifiers(child, bound)
