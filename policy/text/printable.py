"""Text that did not come from us, as a terminal may be given it."""

from __future__ import annotations

import re
from typing import Final

_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Characters without a shape that Unicode nevertheless counts among letters and marks."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_printable(text: str) -> bool:
    """Whether `printable` would leave the text as it is."""
    return text.isprintable() and _INVISIBLE.search(text) is None


def printable(text: str) -> str:
    r"""The text on one line, with nothing in it that is obeyed or hidden instead of shown.

    Control characters, line ends, direction marks, characters of no width, spaces other than the
    plain one and halves of surrogates are written as `\n`, `\x1b`, `\u202e`. Doing it twice
    changes nothing more.
    """
    return text if is_printable(text) else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """Like `printable`, but line ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def json_escaped(text: str) -> str:
    r"""JSON with the same characters as `\uXXXX`; line ends, all of them between texts, stay."""
    if is_printable(text):
        return text
    return "".join(c if c == "\n" or is_printable(c) else _units(c) for c in text)


def yaml_escaped(text: str) -> str:
    r"""YAML likewise (`\UXXXXXXXX` beyond the first 65,536 characters).

    Texts that hold such characters must have been put into double quotes.
    """
    if is_printable(text):
        return text
    return "".join(c if c == "\n" or is_printable(c) else _code_point(c) for c in text)


def _shown(char: str) -> str:
    if is_printable(char):
        return char
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else _code_point(char)


def _code_point(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _units(char: str) -> str:
    """One escape or, beyond the first 65,536 characters, two (a pair of surrogates)."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
