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

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEEPEST: Final = 100
_MOST_ALIASED: Final = 1_000_000
"""Values that aliases may repeat in one document; a `billion laughs` text asks for far more."""

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


def documents(stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """Yield (line of its start, value) of each document. Raises YamlError."""
    try:
        yield from _documents(yaml.parse(stream, Loader=_Loader))
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


def _documents(events: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    for event in events:
        if type(event) is yaml.DocumentStartEvent:
            value = _Builder(events).build()
            if value is not None:  # `---` with nothing under it
                yield cast("Any", event).start_mark.line + 1, value


_NO_KEY: Final = object()
_MERGE: Final = object()


class _Open:
    """A collection whose end has not been read yet."""

    __slots__ = ("anchor", "before", "items", "key", "mapping")

    def __init__(self, event: Any, before: int) -> None:
        self.mapping: dict[str, Any] | None = None
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
                for name, inherited in part.items():
                    self.mapping.setdefault(name, inherited)
        else:
            self.mapping[self.key] = value
            self.key = _NO_KEY


class _Builder:
    """Builds one document's value from the events up to its end."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self._aliased = 0

    def build(self) -> Any:
        stack: list[_Open] = []
        result: Any = None
        for event in self._events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._count += 1
                value = _scalar(event)
                if event.anchor:
                    self._anchors[event.anchor] = value, 1
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if len(stack) >= _DEEPEST:
                    raise _at(event, f"nested more than {_DEEPEST} levels deep")
                stack.append(_Open(event, self._count))
                self._count += 1
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                ended = stack.pop()
                value = ended.items if ended.mapping is None else ended.mapping
                if ended.anchor:
                    self._anchors[ended.anchor] = value, self._count - ended.before
            elif kind is yaml.AliasEvent:
                value = self._alias(event)
            else:  # the document's end
                break
            if stack:
                stack[-1].add(value, event)
            else:
                result = value
        return result

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _at(event, f"unknown alias `*{event.anchor}`")
        value, size = self._anchors[event.anchor]
        self._count += size
        self._aliased += size
        if self._aliased > _MOST_ALIASED:
            raise _at(event, "aliases repeat more than a million values")
        return value


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
