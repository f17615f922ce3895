"""The checked syntax tree of an expression, read from the CEL library's serialised form.

The library hands out no tree, but `serialize()` is the documented protobuf message
cel.expr.CheckedExpr (in a google.protobuf.Any). Reading the few fields needed takes less than
a dependency on protobuf would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CelType:
    """A CEL type: `int`, `map` with its two parameters, `list` with one, ..."""

    name: str
    parameters: tuple[CelType, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}<{inner}>" if inner else self.name


@dataclass(frozen=True, slots=True)
class Node:
    """One node: where it starts in the source, its type, and its own serialised bytes."""

    offset: int  #: characters from the start of the source; an operator for binary calls
    type: CelType
    raw: bytes


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal."""

    value: None | bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A variable, with its dotted name, or a loop variable of a macro."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`, or `has(operand.field)` where `test_only`."""

    operand: Node
    field: str
    test_only: bool


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function, method or operator (`_+_`, `_?_:_`, `@in`, ...); a target comes first."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """`[a, b]`."""

    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """`{a: b}`: keys and values in turn."""

    entries: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Node):
    """What `all`, `exists`, `exists_one`, `map` and `filter` expand to."""

    bound: tuple[str, ...]  #: loop variable and accumulator
    outer: tuple[Node, ...]  #: evaluated outside the loop: range and initial value
    inner: tuple[Node, ...]  #: sees the bound names: condition, step, result


@dataclass(frozen=True, slots=True)
class CheckedTree:
    """A type-checked expression; `envelope` is the message without its tree."""

    root: Node
    envelope: bytes


_PRIMITIVES = ("dyn", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("dyn", "dyn", "timestamp", "duration")
_DYN = CelType("dyn")
_TYPE = CelType("type")
_TYPE_NAMES = frozenset(
    {
        *("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"),
        *("google.protobuf.Duration", "google.protobuf.Timestamp"),
    }
)
_TYPE_URL = b"type.googleapis.com/cel.expr.CheckedExpr"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, number or bytes) of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        else:
            value, at = data[at : at + 4], at + 4
        yield tag >> 3, value


def _text(value: int | bytes) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def _signed(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _encode(field: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    head = bytearray([field << 3 | 2])
    length = len(payload)
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + payload


def _type(data: bytes) -> CelType:
    for field, value in _fields(data):
        if field == 2:
            return CelType("null_type")
        if field == 3 and isinstance(value, int):
            return CelType(_PRIMITIVES[value])
        if field == 5 and isinstance(value, int):
            return CelType(_WELL_KNOWN[value])
        if field in (6, 7) and isinstance(value, bytes):
            inner = tuple(_type(_message(part)) for _, part in _fields(value))
            return CelType("list" if field == 6 else "map", inner)
        if field == 11:
            return _TYPE
        if field in (4, 9, 14):
            return CelType("other")
    return _DYN


def _constant(data: bytes) -> None | bool | int | float | str | bytes:
    for field, value in _fields(data):
        if field == 2:
            return bool(value)
        if field == 3:
            return _signed(value)
        if field == 6:
            return _text(value)
        if field == 7:
            return _message(value)
        if field in (4, 5):
            # Numbers that only the CEL engine computes with: the exact value is in `raw`.
            return float(0)
    return None


@dataclass(frozen=True, slots=True)
class _Reader:
    types: Mapping[int, CelType]
    offsets: Mapping[int, int]

    def node(self, data: bytes) -> Node:
        ident, kind, body = 0, 0, b""
        for field, value in _fields(data):
            if field == 2 and isinstance(value, int):
                ident = value
            elif isinstance(value, bytes):
                kind, body = field, value
        type_ = self.types.get(ident, _DYN)
        offset = self.offsets.get(ident, 0)
        if kind == 3:
            return Constant(offset, type_, data, _constant(body))
        if kind == 4:
            name = next((_text(v) for f, v in _fields(body) if f == 1), "")
            return Identifier(offset, type_, data, name)
        if kind == 5:
            return self._select(body, offset, type_, data)
        if kind == 6:
            return self._call(body, offset, type_, data)
        if kind == 7:
            elements = tuple(self.node(_message(v)) for f, v in _fields(body) if f == 1)
            return ListLiteral(offset, type_, data, elements)
        if kind == 8:
            return MapLiteral(offset, type_, data, tuple(self._entries(body)))
        return self._comprehension(body, offset, type_, data)

    def _select(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Select:
        parts = dict(_fields(body))
        operand = self.node(_message(parts[1]))
        return Select(offset, type_, raw, operand, _text(parts[2]), bool(parts.get(3, 0)))

    def _call(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Call:
        target: list[Node] = []
        function = ""
        arguments: list[Node] = []
        for field, value in _fields(body):
            if field == 1:
                target.append(self.node(_message(value)))
            elif field == 2:
                function = _text(value)
            elif field == 3:
                arguments.append(self.node(_message(value)))
        return Call(offset, type_, raw, function, (*target, *arguments))

    def _entries(self, body: bytes) -> Iterator[Node]:
        for field, entry in _fields(body):
            if field == 2:
                for part, value in _fields(_message(entry)):
                    if part in (3, 4):
                        yield self.node(_message(value))

    def _comprehension(self, body: bytes, offset: int, type_: CelType, raw: bytes) -> Comprehension:
        bound: list[str] = []
        outer: list[Node] = []
        inner: list[Node] = []
        for field, value in _fields(body):
            if field in (1, 3, 8):
                bound.append(_text(value))
            elif field in (2, 4):
                outer.append(self.node(_message(value)))
            elif field in (5, 6, 7):
                inner.append(self.node(_message(value)))
        return Comprehension(offset, type_, raw, tuple(bound), tuple(outer), tuple(inner))


def _map_entry(data: bytes) -> tuple[int, int | bytes]:
    parts = dict(_fields(data))
    key = parts.get(1, 0)
    assert isinstance(key, int)
    return key, parts.get(2, 0)


def decode(serialized: bytes) -> CheckedTree:
    """The tree of a serialised, type-checked expression."""
    checked = next(_message(v) for f, v in _fields(serialized) if f == 2)
    types: dict[int, CelType] = {}
    offsets: dict[int, int] = {}
    tree = b""
    envelope: list[bytes] = []
    for field, value in _fields(checked):
        body = _message(value)
        if field == 4:
            tree = body
            continue
        envelope.append(_encode(field, body))
        if field == 3:
            ident, encoded = _map_entry(body)
            types[ident] = _type(_message(encoded))
        elif field == 5:
            for part, entry in _fields(body):
                if part == 4:
                    ident, position = _map_entry(_message(entry))
                    assert isinstance(position, int)
                    offsets[ident] = position
    return CheckedTree(_Reader(types, offsets).node(tree), b"".join(envelope))


def encode_subtree(tree: CheckedTree, node: Node) -> bytes:
    """A part of an expression as a serialised expression of its own."""
    checked = tree.envelope + _encode(4, node.raw)
    return _encode(1, _TYPE_URL) + _encode(2, checked)


def children(node: Node) -> tuple[Node, ...]:
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


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def free_identifiers(node: Node, bound: frozenset[str] = frozenset()) -> Iterator[Identifier]:
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
