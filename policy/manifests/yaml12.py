"""YAML as Kubernetes means it: streamed by document, scalars by the core schema of YAML 1.2.

`on`, `yes`, `12:30` and timestamps stay text (PyYAML's own loaders make booleans, numbers and
dates of them). Values are built from libyaml's event stream, without recursion, so a hostile
nesting is an error and not the end of the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any, Final, cast

import yaml

from policy.manifests import limits
from policy.manifests.limits import sized
from policy.manifests.odd import Repeating

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEEPEST: Final = 100
_ITEM_DEPTH: Final = 2
"""Most open collections around an item of a list: the document's mapping and its `items`."""

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


class YamlError(Exception):
    """A text that is no YAML; carries the place."""

    def __init__(self, message: str, *, line: int, column: int, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.help = help


class TooLarge(Exception):
    """An object that exceeds the limit."""


def documents(
    stream: IO[bytes], *, most: int = limits.DEFAULT.object_bytes
) -> Iterator[tuple[int, Any]]:
    """Yield (line of its start, value) of each document.

    most: bytes that an object may take, what aliases repeat included. A mapping with a key that
    stands twice comes as `odd.Repeating`. Raises YamlError, TooLarge.
    """
    counted = _Counted(stream, most)
    try:
        yield from _documents(yaml.parse(counted, Loader=_Loader), counted)
    except yaml.MarkedYAMLError as exc:
        mark = cast("Any", exc.problem_mark or exc.context_mark)
        raise YamlError(
            _lower(exc.problem or exc.context or "not valid YAML"),
            line=mark.line + 1 if mark else 1,
            column=mark.column + 1 if mark else 1,
            help=_help(exc.problem or ""),
        ) from exc
    except yaml.YAMLError as exc:
        raise YamlError(_lower(str(exc).splitlines()[0]), line=1, column=1) from exc


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def _help(problem: str) -> str:
    if "cannot start any token" in problem:
        return "indent with blanks, not with tabs; quote a text that starts with `@`, `%` or a tab"
    if "mapping values are not allowed" in problem:
        return "check the indentation, and quote a text that holds `: `"
    return ""


class _Counted:
    """Stops a text that goes on and on without saying anything."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self.most = most
        self.silent = 0  #: bytes since the last event

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self.silent += len(data)
        if self.silent > self.most + _READ_AHEAD:
            raise TooLarge
        return data


_READ_AHEAD: Final = 2**21
"""Bytes that the parser may hold before their first event."""


def _documents(events: Iterator[Any], stream: _Counted) -> Iterator[tuple[int, Any]]:
    for event in events:
        stream.silent = 0
        if type(event) is yaml.DocumentStartEvent:
            value = _Builder(events, stream).build()
            if value is not None:  # `---` with nothing under it
                yield cast("Any", event).start_mark.line + 1, value


_NO_KEY: Final = object()
_MERGE: Final = object()


class _Open:
    """A collection whose end has not been read yet."""

    __slots__ = ("anchor", "before", "items", "key", "mapping", "merged", "repeated")

    def __init__(self, event: Any, before: int) -> None:
        self.mapping: dict[str, Any] | None = None
        self.merged: set[str] | None = None  # keys that `<<` brought and that may be overridden
        self.repeated: list[str] | None = None
        self.items: list[Any] = []
        if type(event) is yaml.MappingStartEvent:
            self.mapping = {}
        self.key: Any = _NO_KEY
        self.anchor: str | None = event.anchor
        self.before = before

    def add(self, value: Any, event: Any) -> None:
        if self.mapping is None:
            self.items.append(value)
        elif self.key is _NO_KEY:
            self.key = _key(value, event)
        elif self.key is _MERGE:
            self.key = _NO_KEY
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict):
                    raise _at(event, "`<<` wants a mapping")
                self._merge(part)
        else:
            if self.key in self.mapping and not (self.merged and self.key in self.merged):
                self.repeated = [*(self.repeated or ()), self.key]
            elif self.merged:
                self.merged.discard(self.key)
            self.mapping[self.key] = value
            self.key = _NO_KEY

    def _merge(self, part: dict[str, Any]) -> None:
        assert self.mapping is not None
        new = part.keys() - self.mapping.keys()
        self.merged = (self.merged or set()) | new
        for name in part:  # in its order
            if name in new:
                self.mapping[name] = part[name]

    def value(self) -> Any:
        if self.mapping is None:
            return self.items
        return Repeating(self.mapping, self.repeated) if self.repeated else self.mapping


class _Builder:
    """Builds one document's value from the events up to its end."""

    def __init__(self, events: Iterator[Any], stream: _Counted) -> None:
        self._events = events
        self._stream = stream
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._size = 0  # about the bytes that the values take as JSON

    def build(self) -> Any:
        stack: list[_Open] = []
        result: Any = None
        most = self._stream.most
        full = most  # the size at which the present object, or item of a list, is too large
        for event in self._events:
            self._stream.silent = 0
            kind = type(event)
            if kind is yaml.ScalarEvent:
                size = len(event.value) + _OVERHEAD
                self._size += size
                value = _scalar(event)
                if event.anchor:
                    self._anchors[event.anchor] = value, size
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if len(stack) >= _DEEPEST:
                    raise _at(event, f"nested more than {_DEEPEST} levels deep")
                if 0 < len(stack) <= _ITEM_DEPTH and stack[-1].mapping is None:
                    full = self._size + most
                stack.append(_Open(event, self._size))
                self._size += _OVERHEAD
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                ended = stack.pop()
                value = ended.value()
                if ended.anchor:
                    self._anchors[ended.anchor] = value, self._size - ended.before
            elif kind is yaml.AliasEvent:
                value = self._alias(event)
                if self._size > full:
                    raise _at(event, f"aliases make the object larger than {sized(most)}")
            else:  # the document's end
                break
            if self._size > full:
                raise TooLarge
            if stack:
                stack[-1].add(value, event)
            else:
                result = value
        return result

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _at(event, f"unknown alias `*{event.anchor}`")
        value, size = self._anchors[event.anchor]
        self._size += size
        return value


_OVERHEAD: Final = 2
"""Bytes of JSON around a value: quotes, a comma, brackets."""


def _key(value: Any, event: Any) -> Any:
    """Keys are text, as in JSON: `8080: web` and `"8080": web` are the same."""
    if type(event) is yaml.ScalarEvent:
        return _MERGE if event.value == "<<" and event.implicit[0] else event.value
    if isinstance(value, str):  # an alias
        return value
    raise _at(event, "a key must be a text, not a collection")


def _scalar(event: Any) -> Any:
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


def _at(event: Any, message: str) -> YamlError:
    mark = event.start_mark
    return YamlError(message, line=mark.line + 1, column=mark.column + 1)
