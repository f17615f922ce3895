"""From a regular expression of RE2 to one of the solver's.

Understood are literals, `.`, classes, groups, alternatives, repetitions, and anchors at the ends
of the whole pattern. What goes beyond that is `NotTranslatable`, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import z3

Pattern: TypeAlias = Any
"""A regular expression of the solver."""

LAST_CHARACTER: Final = 0x2FFFF
"""The solver knows characters up to here."""

_REPEAT: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_HEX: Final = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_RANGES: Final = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_START, _END = "^", "$"


class NotTranslatable(Exception):  # a signal between functions, not an error
    """The solver has no form of this; the text says of what."""


def quoted(text: str) -> str:
    """The text as the solver's own literals are written: `\\u{..}` for all that is not plain."""
    written = []
    for character in text:
        code = ord(character)
        if code > LAST_CHARACTER or 0xD800 <= code <= 0xDFFF:
            raise NotTranslatable(f"the character U+{code:04X}")
        plain = 32 <= code < 127 and character != "\\"
        written.append(character if plain else f"\\u{{{code:x}}}")
    return "".join(written)


def text_value(text: str) -> Any:
    """A literal text; raises `NotTranslatable`."""
    return z3.StringVal(quoted(text))


def pattern(source: str) -> Pattern:
    """The texts in which RE2 finds the pattern somewhere; raises `NotTranslatable`."""
    parser = _Parser(source)
    found = parser.alternatives(outermost=True)
    if parser.at < len(source):
        raise NotTranslatable(f"the pattern `{source}`")
    return found


def _anything() -> Pattern:
    return z3.Full(z3.ReSort(z3.StringSort()))


def _character() -> Pattern:
    return z3.AllChar(z3.ReSort(z3.StringSort()))


def _nothing() -> Pattern:
    return z3.Re(z3.StringVal(""))


def _union(parts: list[Pattern]) -> Pattern:
    return parts[0] if len(parts) == 1 else z3.Union(*parts)


def _is(parts: list[Any], anchor: str) -> bool:
    return bool(parts) and isinstance(parts[0], str) and parts[0] == anchor


def _range(low: str, high: str) -> Pattern:
    return z3.Range(text_value(low), text_value(high))


@dataclass(slots=True)
class _Parser:
    source: str
    at: int = 0

    def _fail(self) -> NotTranslatable:
        return NotTranslatable(f"the pattern `{self.source}`")

    def _next(self) -> str:
        return self.source[self.at : self.at + 1]

    def _take(self) -> str:
        found = self._next()
        if not found:
            raise self._fail()
        self.at += 1
        return found

    def alternatives(self, *, outermost: bool) -> Pattern:
        """Branches between `|`; only those of the whole pattern may have anchors."""
        branches = [self._branch(outermost)]
        while self._next() == "|":
            self.at += 1
            branches.append(self._branch(outermost))
        return _union(branches)

    def _branch(self, outermost: bool) -> Pattern:
        parts: list[Any] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated())
        if not outermost:
            if any(isinstance(part, str) for part in parts):
                raise self._fail()
            return self._joined(parts)
        from_start, to_end = _is(parts[:1], _START), _is(parts[-1:], _END)
        while _is(parts[:1], _START):
            parts.pop(0)
        while _is(parts[-1:], _END):
            parts.pop()
        if any(isinstance(part, str) for part in parts):
            raise self._fail()
        before = [] if from_start else [_anything()]
        after = [] if to_end else [_anything()]
        return self._joined([*before, *parts, *after])

    @staticmethod
    def _joined(parts: list[Pattern]) -> Pattern:
        if not parts:
            return _nothing()
        return parts[0] if len(parts) == 1 else z3.Concat(*parts)

    def _repeated(self) -> Any:
        """An atom with what repeats it; an anchor is its own text."""
        atom = self._atom()
        while True:
            sign = self._next()
            counted = _REPEAT.match(self.source, self.at) if sign == "{" else None
            if sign not in ("*", "+", "?") and counted is None:
                return atom
            if isinstance(atom, str):
                raise self._fail()
            if counted is not None:
                self.at = counted.end()
                atom = self._counted(atom, counted)
            else:
                self.at += 1
                atom = {"*": z3.Star, "+": z3.Plus, "?": z3.Option}[sign](atom)
            if self._next() == "?":  # which of several matches is found does not matter
                self.at += 1

    def _counted(self, atom: Pattern, counted: re.Match[str]) -> Pattern:
        low = int(counted[1])
        if counted[2] is None:
            return z3.Loop(atom, low, low) if low else _nothing()
        if not counted[3]:
            return z3.Concat(z3.Loop(atom, low, low), z3.Star(atom)) if low else z3.Star(atom)
        high = int(counted[3])
        return z3.Loop(atom, low, high) if high else _nothing()

    def _atom(self) -> Any:
        character = self._take()
        match character:
            case "^" | "$":
                return character
            case ".":
                return z3.Intersect(_character(), z3.Complement(_range("\n", "\n")))
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escaped()
            case "*" | "+" | "?" | ")":
                raise self._fail()
        return z3.Re(text_value(character))

    def _group(self) -> Pattern:
        if self.source.startswith("?:", self.at):
            self.at += 2
        elif self._next() == "?":
            raise self._fail()
        inner = self.alternatives(outermost=False)
        if self._take() != ")":
            raise self._fail()
        return inner

    def _escaped(self) -> Any:
        ranges, negated = self._escape(outside=True)
        if isinstance(ranges, str):
            return ranges
        return self._one_of(list(ranges), negated)

    def _escape(self, *, outside: bool) -> tuple[Any, bool]:
        """Ranges behind a backslash, and whether all but these are meant; an anchor's text."""
        hexadecimal = _HEX.match(self.source, self.at)
        if hexadecimal:
            self.at = hexadecimal.end()
            code = chr(int(hexadecimal[1] or hexadecimal[2], 16))
            return ((code, code),), False
        character = self._take()
        if character.lower() in _RANGES:
            return _RANGES[character.lower()], character.isupper()
        if character in _CONTROL:
            code = _CONTROL[character]
            return ((code, code),), False
        if character in _PUNCTUATION:
            return ((character, character),), False
        if outside and character in "Az":
            return (_START if character == "A" else _END), False
        raise self._fail()

    @staticmethod
    def _one_of(ranges: list[tuple[str, str]], negated: bool) -> Pattern:
        found = _union([_range(low, high) for low, high in ranges])
        return z3.Intersect(_character(), z3.Complement(found)) if negated else found

    def _class(self) -> Pattern:
        negated = self._next() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._next() != "]":
            first = False
            if self._next() == "[" and self.source[self.at + 1 : self.at + 2] == ":":
                raise self._fail()
            found, all_but = self._class_item()
            if all_but:
                raise self._fail()
            if len(found) == 1 and self._next() == "-" and self._after() not in ("]", ""):
                self.at += 1
                last, all_but = self._class_item()
                if all_but or len(last) != 1:
                    raise self._fail()
                found = ((found[0][0], last[0][1]),)
            ranges += found
        self.at += 1
        return self._one_of(ranges, negated)

    def _after(self) -> str:
        return self.source[self.at + 1 : self.at + 2]

    def _class_item(self) -> tuple[Any, bool]:
        character = self._take()
        if character == "\\":
            return self._escape(outside=False)
        return ((character, character),), False
