"""YAML as documents of values: the one place that reads it, by the core schema of YAML 1.2.

`on`, `yes`, `12:30` and timestamps are text (PyYAML's own loaders make booleans, numbers and
dates of them). Values are built from libyaml's event stream, without recursion, so a hostile
nesting is an error and not the end of the process. What a value is (an ordinary Python value,
or a part of a tree that knows where it stands) is up to the subclass of `Composer`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import IO, Any, Final, Generic, TypeVar, cast

import yaml

T = TypeVar("T")

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """A text that is no YAML, or no YAML that is taken; lines and columns count from 1."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line  #: 0 where the place is not known
        self.column = column
        self.help = help


def error_at(event: Any, message: str) -> YamlError:
    """An error at the place where an event begins."""
    mark = event.start_mark
    return YamlError(message, line=mark.line + 1, column=mark.column + 1)


def _syntax_error(exc: yaml.YAMLError, *, too_deep: str) -> YamlError:
    mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
    problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "not readable"
    message = f"not YAML: {' '.join(str(problem).split())}"
    if problem == "exceeded maximum nesting depth":
        # The parser of PyYAML 6.0.4 reads ahead of its events and has a limit of its own, of 1,000.
        message = too_deep
    if mark is None:
        position = getattr(exc, "position", None)
        return YamlError(message if position is None else f"{message} at character {position + 1}")
    line, column = mark.line + 1, mark.column + 1
    return YamlError(message, line=line, column=column, help=_help(message))


def _help(message: str) -> str:
    if "\\t" in message or "tab" in message or "cannot start any token" in message:
        return "indent with spaces, and quote values that start with a sign"
    if "mapping values are not allowed" in message:
        return "check the indentation, and quote a text that holds `: `"
    return ""


# --- scalars ---------------------------------------------------------------------------------

_INT: Final = re.compile(r"[-+]?[0-9]+")
_OTHER_INT: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_LONGEST_NUMBER: Final = 400
_NUMBER_STARTS: Final = frozenset("+-.0123456789")


def scalar(event: Any) -> Any:
    """None, a boolean, a number or text."""
    text = event.value
    if not event.implicit[0]:  # quoted, a block text, or tagged
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBER_STARTS and len(text) < _LONGEST_NUMBER:
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _OTHER_INT.fullmatch(text):
            return int(text, 0)
    return text


def is_merge(key: Any) -> bool:
    """Whether a key is `<<`, which merges another mapping."""
    return bool(key.value == "<<" and key.implicit[0])


# --- collections -----------------------------------------------------------------------------


class _Open:
    """A collection whose end has not been read yet."""

    __slots__ = ("before", "height", "is_mapping", "key", "start", "values")

    def __init__(self, start: Any, before: int) -> None:
        self.start = start
        self.is_mapping = type(start) is yaml.MappingStartEvent
        self.before = before  #: size of the document up to here
        self.height = 1  #: levels of collections, this one included
        self.key: Any = None  #: of the value that comes next
        self.values: list[Any] = []  #: items, or pairs of a key and a value

    @property
    def awaits_key(self) -> bool:
        return self.is_mapping and self.key is None

    def add(self, value: Any, height: int) -> None:
        self.height = max(self.height, height + 1)
        self.values.append((self.key, value) if self.is_mapping else value)
        self.key = None


class Composer(ABC, Generic[T]):
    """Builds the values of a text's documents; a subclass says what values are."""

    def __init__(self, *, deepest: int) -> None:
        self._deepest = deepest
        self._anchors: dict[str, tuple[Any, T | None, int, int]] = {}
        self.open: list[_Open] = []  #: collections around the present value
        self.size = 0  #: of the document so far, what aliases repeat included

    @abstractmethod
    def scalar(self, event: Any) -> T:
        """The value of a scalar."""

    @abstractmethod
    def sequence(self, start: Any, items: list[T]) -> T:
        """The value of a sequence."""

    @abstractmethod
    def mapping(self, start: Any, pairs: list[tuple[Any, T]]) -> T:
        """The value of a mapping; keys are scalar events, and one may stand twice."""

    @abstractmethod
    def weight(self, event: Any, *, is_key: bool) -> int:
        """What a scalar or the start of a collection adds to `size`."""

    @abstractmethod
    def check(self, event: Any) -> None:
        """Called after `size` grew; raises an error of its own where it is too large."""

    def documents(self, text: str | IO[bytes]) -> Iterator[tuple[Any, T]]:
        """(event that begins it, value) of each document. Raises YamlError."""
        try:
            yield from self._documents(yaml.parse(text, Loader=_Loader))
        except yaml.YAMLError as exc:
            raise _syntax_error(exc, too_deep=self._too_deep) from exc

    def _documents(self, events: Iterator[Any]) -> Iterator[tuple[Any, T]]:
        stack = self.open
        for event in events:
            kind, before = type(event), self.size
            value: T | None = None
            height = 0
            if kind is yaml.ScalarEvent:
                origin = event
                is_key = bool(stack) and stack[-1].awaits_key
                self.size += self.weight(event, is_key=is_key)
                self.check(event)
                if not is_key or event.anchor:
                    value = self.scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._check_depth(event, 1)
                self.size += self.weight(event, is_key=False)
                self.check(event)
                stack.append(_Open(event, before))
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                ended = stack.pop()
                origin, before, height = ended.start, ended.before, ended.height
                build: Any = self.mapping if ended.is_mapping else self.sequence
                value = build(origin, ended.values)
            elif kind is yaml.AliasEvent:
                origin, value, height = self._anchored(event)
            else:
                if kind is yaml.DocumentStartEvent:
                    self._anchors.clear()
                    self.size = 0
                continue
            if kind is not yaml.AliasEvent and origin.anchor:
                self._anchors[origin.anchor] = origin, value, height, self.size - before
            if not stack:
                yield origin, cast("T", value)
            elif not stack[-1].awaits_key:
                stack[-1].add(value, height)
            elif type(origin) is yaml.ScalarEvent:
                stack[-1].key = origin
            else:
                raise error_at(origin, "a key must be text, not a collection")

    def _check_depth(self, event: Any, height: int) -> None:
        if len(self.open) + height > self._deepest:
            raise error_at(event, self._too_deep)

    @property
    def _too_deep(self) -> str:
        return f"values are nested more than {self._deepest} levels deep"

    def _anchored(self, event: Any) -> tuple[Any, T | None, int]:
        if event.anchor not in self._anchors:
            raise error_at(event, f"not YAML: unknown alias `*{event.anchor}`")
        origin, value, height, size = self._anchors[event.anchor]
        self._check_depth(event, height)
        self.size += size
        self.check(event)
        return origin, value, height
