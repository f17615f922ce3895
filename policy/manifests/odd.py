"""Texts that are JSON by their form and still no values: found, and named by their path.

`json.Decoder` of msgspec refuses some of them without saying where (a lone surrogate, a number
that no float holds) and takes others silently (a key that stands twice). What looks odd is read
again here, slowly; what cannot be a value becomes a mark, and `problems` tells where the marks are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policy.manifests.fields import Mismatch, child
from policy.manifests.problems import shown

TWICE: Final = "the key stands more than once"
_LONGEST_NUMBER: Final = 400


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands in the place of something that cannot be read."""

    message: str


class Repeating(dict[str, Any]):
    """A mapping in whose text a key stands more than once."""

    def __init__(self, values: dict[str, Any], repeated: list[str]) -> None:
        super().__init__(values)
        self.repeated = repeated


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    seen: set[str] = set()
    repeated = []
    for key, _ in pairs:
        if key in seen:
            repeated.append(key)
        seen.add(key)
    return Repeating(values, repeated)


def _int(text: str) -> int | Unreadable:
    if len(text) <= _LONGEST_NUMBER:
        return int(text)
    return Unreadable(f"a number of {len(text.lstrip('-'))} digits")


def _float(text: str) -> float | Unreadable:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return Unreadable(f"`{shown(text)}` is out of range")
    return value


def _constant(text: str) -> Unreadable:
    return Unreadable(f"`{text}` is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_int, parse_float=_float, parse_constant=_constant
)


def decode(text: str, start: int = 0) -> tuple[Any, int]:
    """The value that begins at a place of a text (no space), and where it ends.

    Raises json.JSONDecodeError, RecursionError.
    """
    return _DECODER.raw_decode(text, start)


_ENCODE: Final = msgspec.json.Encoder().encode
_ESCAPED_COLON: Final = re.compile(rb"\\u003[aA]")
_NUL: Final = b"\\u0000"


def maybe(text: bytes, value: Any) -> bool:
    """Whether a text may hold what `problems` finds; value: what `msgspec` made of it.

    What stood twice is dropped in the value, and its colon with it. A text without white space, as
    API servers send it, is found again as it was.
    """
    encoded = _ENCODE(value)
    escapes = b"\\" in text  # one byte is found sooner than several
    if encoded == text:
        return escapes and _NUL in encoded
    return encoded.count(b":") != text.count(b":") or (
        escapes and (_NUL in encoded or _ESCAPED_COLON.search(text) is not None)
    )


def repeats(value: Any) -> bool:
    """Whether some mapping inside a value has a key that stands more than once."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Repeating):
            return True
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return False


def repeated(text: bytes, value: Any) -> list[Mismatch]:
    """Every key that stands more than once in a JSON text; value: what `msgspec` made of it.

    Raises RecursionError.
    """
    if not maybe(text, value):
        return []
    whole, _ = decode(text.decode().lstrip(" \t\r\n"))
    return list(dict.fromkeys(found for found in problems(whole) if found.message == TWICE))


def problems(value: Any) -> Iterator[Mismatch]:
    """Everything inside a value that cannot be read or stored, with its path."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, Unreadable):
            yield Mismatch(path, part.message)
        elif isinstance(part, str):
            flaw = _flaw(part)
            if flaw:
                yield Mismatch(path, flaw)
        elif isinstance(part, dict):
            if isinstance(part, Repeating):
                for key in part.repeated:
                    yield Mismatch(child(path, shown(key)), TWICE)
            for key in part:
                flaw = _flaw(key) if isinstance(key, str) else "a key that is no text"
                if flaw:
                    yield Mismatch(path, f"key `{shown(str(key))}`: {flaw}")
            waiting.extend((child(path, shown(str(key))), part[key]) for key in reversed(part))
        elif isinstance(part, list | tuple):
            waiting.extend((f"{path}[{i}]", part[i]) for i in range(len(part) - 1, -1, -1))


def _flaw(text: str) -> str:
    if "\0" in text:
        return f"`{shown(text)}` holds a NUL character"
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"`{shown(text)}` holds half of a surrogate pair"
    return ""
