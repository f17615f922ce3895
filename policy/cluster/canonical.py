"""The one canonical JSON: the text of a value, and with it the digest, that everybody gets alike.

RFC 8785 for objects, lists, strings, integers, booleans and null: keys in the order of their
UTF-16 code units, no white space, only what must be escaped is, UTF-8. Integers are written in
full also beyond 2^53. There are no other numbers: shares and amounts go in as text.
docs/formats.md tells a stranger how to recompute everything that is hashed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import msgspec


def _as_list(value: object) -> list[Any]:
    """What the encoder does not know by itself: sequences that are filled when they are read."""
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"no canonical text of {type(value).__name__}")


_SORTED: Final = msgspec.json.Encoder(order="sorted", enc_hook=_as_list)
_AS_GIVEN: Final = msgspec.json.Encoder()
_BEYOND_BMP: Final = re.compile(rb"[\xf0-\xf4]")


def encode(value: Any) -> bytes:
    """The canonical text in UTF-8.

    value: JSON values, or msgspec structs, dataclasses and sequences of them, without floats.
    Raises UnicodeEncodeError for a lone surrogate, TypeError for other values.
    """
    data = _SORTED.encode(value)
    # Code points sort as UTF-16 does unless one of them lies beyond the basic plane.
    if data.isascii() or _BEYOND_BMP.search(data) is None:
        return data
    return _AS_GIVEN.encode(_ordered(json.loads(data)))


def encode_each(values: Iterable[Any]) -> list[bytes]:
    """The canonical texts of many values, sooner than one by one. Raises like `encode`."""
    values = list(values)
    data = _SORTED.encode_lines(values)
    if data.isascii() or _BEYOND_BMP.search(data) is None:
        return data.split(b"\n")[:-1]  # within a text, the end of a line is escaped
    return [encode(value) for value in values]


def text_each(values: Iterable[Any]) -> list[str]:
    """The canonical texts of many values."""
    return [data.decode() for data in encode_each(values)]


Fragment: TypeAlias = msgspec.Raw
"""Canonical text of a part, which is written as it is where it stands in a larger value."""


def fragment(value: Any) -> Fragment:
    """The canonical text of a part that is written again and again."""
    return Fragment(encode(value))


def text(value: Any) -> str:
    """The canonical text."""
    return encode(value).decode()


def parse(canonical: str) -> Any:
    """The value of a canonical text. Raises ValueError for any other text."""
    try:
        value = json.loads(canonical, parse_float=_no_integer, parse_constant=_no_integer)
        if text(value) == canonical:
            return value
    except RecursionError:
        pass
    raise ValueError("not canonical JSON")


def sha256(data: bytes) -> str:
    """`sha256:` and the hexadecimal digest."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """`sha256` of the canonical text."""
    return sha256(encode(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=_utf16)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _no_integer(number: str) -> NoReturn:
    raise ValueError(f"`{number}` is no integer")
