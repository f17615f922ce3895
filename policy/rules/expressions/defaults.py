"""Reading a label that is not there: the checked expression is rewritten before anything runs it.

Both ways to evaluate an expression start from the rewritten form, so that they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.rules.expressions.syntax import (
    DYN,
    OPTIONAL_READ,
    OR_VALUE,
    CelType,
    Message,
    serialized_message,
)
from policy.rules.expressions.wire import encode, encode_number, fields, message

_STRING_CONSTANT, _INT_CONSTANT = 6, 3
_STRING_TYPE, _INT_TYPE = encode_number(3, 5), encode_number(3, 2)
_OPTIONAL_TYPE = encode(14, encode(1, b"optional_type"))


def with_defaults(serialized: bytes, defaults: Mapping[CelType, str | int]) -> bytes:
    """The same expression, in which a key that a map does not have reads as the map's default.

    `m['k']` and `m.k` become `m[?'k'].orValue(default)`, the form that `default_read` takes apart.
    A map that is written out in the expression is left alone: a missing key in it is a mistake.
    """
    found = Message.read(serialized)
    last = max((*found.types, *found.offsets), default=0)
    rewriter = _Rewriter(found.types, found.offsets, defaults, last)
    tree = rewriter.node(found.tree)
    if not rewriter.added:
        return serialized
    return serialized_message(found.envelope, *rewriter.added, encode(4, tree))


@dataclass(slots=True)
class _Rewriter:
    """Goes through the serialised nodes and replaces reads of maps."""

    types: Mapping[int, CelType]
    offsets: Mapping[int, int]
    defaults: Mapping[CelType, str | int]
    last: int  #: the largest id of a node
    added: list[bytes] = field(default_factory=list)  #: types and places of the new nodes

    def node(self, data: bytes) -> bytes:
        kind, body, ident = 0, b"", 0
        for number, value in fields(data):
            if number == 2 and isinstance(value, int):
                ident = value
            elif isinstance(value, bytes):
                kind, body = number, value
        head = encode_number(2, ident)
        if kind == 5:
            return self._select(ident, body)
        if kind == 6:
            return self._call(ident, body)
        if kind == 7:
            return head + encode(7, self._each(body, frozenset({1})))
        if kind == 8:
            return head + encode(8, self._entries(body))
        if kind == 9:
            return head + encode(9, self._each(body, frozenset({2, 4, 5, 6, 7})))
        return data

    def _each(self, body: bytes, nodes: frozenset[int]) -> bytes:
        """A message of which these fields hold nodes."""
        parts = []
        for number, value in fields(body):
            if isinstance(value, int):
                parts.append(encode_number(number, value))
            else:
                parts.append(encode(number, self.node(value) if number in nodes else value))
        return b"".join(parts)

    def _entries(self, body: bytes) -> bytes:
        parts = []
        for number, value in fields(body):
            entry = message(value)
            parts.append(
                encode(number, self._each(entry, frozenset({3, 4})) if number == 2 else entry)
            )
        return b"".join(parts)

    def _select(self, ident: int, body: bytes) -> bytes:
        parts = dict(fields(body))
        operand = message(parts[1])
        default = None if parts.get(3, 0) else self._default(operand)
        if default is None:
            return encode_number(2, ident) + encode(5, self._each(body, frozenset({1})))
        key = self._constant(ident, encode(_STRING_CONSTANT, message(parts[2])), _STRING_TYPE)
        return self._read(ident, self.node(operand), key, default)

    def _call(self, ident: int, body: bytes) -> bytes:
        parts = list(fields(body))
        arguments = [message(value) for number, value in parts if number == 3]
        if (2, b"_[_]") in parts:
            default = self._default(arguments[0])
            if default is not None:
                operand, key = map(self.node, arguments)
                return self._read(ident, operand, key, default)
        return encode_number(2, ident) + encode(6, self._each(body, frozenset({1, 3})))

    def _default(self, operand: bytes) -> str | int | None:
        """What a missing key of this map reads as."""
        parts = dict(fields(operand))
        ident = parts.get(2, 0)
        assert isinstance(ident, int)
        return None if 8 in parts else self.defaults.get(self.types.get(ident, DYN))

    def _read(self, ident: int, operand: bytes, key: bytes, default: str | int) -> bytes:
        arguments = encode(3, operand) + encode(3, key)
        read = encode(2, OPTIONAL_READ.encode()) + arguments
        optional = encode_number(2, self._new(ident, _OPTIONAL_TYPE)) + encode(6, read)
        if isinstance(default, str):
            missing = self._constant(
                ident, encode(_STRING_CONSTANT, default.encode()), _STRING_TYPE
            )
        else:
            missing = self._constant(ident, encode_number(_INT_CONSTANT, default), _INT_TYPE)
        whole = encode(1, optional) + encode(2, OR_VALUE.encode()) + encode(3, missing)
        return encode_number(2, ident) + encode(6, whole)

    def _constant(self, ident: int, value: bytes, type_: bytes) -> bytes:
        return encode_number(2, self._new(ident, type_)) + encode(3, value)

    def _new(self, ident: int, type_: bytes) -> int:
        """The id of one more node, at the place of another."""
        self.last += 1
        entry = encode_number(1, self.last)
        self.added.append(encode(3, entry + encode(2, type_)))
        place = entry + encode_number(2, self.offsets.get(ident, 0))
        self.added.append(encode(5, encode(4, place)))
        return self.last
