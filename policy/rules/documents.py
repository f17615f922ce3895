"""A YAML document as a tree in which every value knows where it stands.

Plain scalars are read as YAML 1.2 does, where that is what the author meant; where YAML 1.1
tools would read something else (`on`, `010`, `1:30`), that is an error and not a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from policy.rules.problems import Problem, RulesError

MAX_BYTES = 1 << 20
MAX_DEPTH = 30
MAX_VALUES = 100_000

_LINE_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")
_QUOTE = "quote it, or use `>-` and put it on the next line"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A file's name and its lines."""

    file: str
    lines: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file, counted from 0."""

    source: Source = field(repr=False)
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.source.file}:{self.line + 1}"

    def problem(self, path: str, message: str, help: str | None = None) -> Problem:
        """A problem at this place."""
        lines = self.source.lines
        return Problem(
            file=self.source.file,
            line=self.line + 1,
            column=self.column + 1,
            path=path,
            message=message,
            source_line=lines[self.line] if self.line < len(lines) else None,
            help=help,
            length=self.length,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A scalar."""

    place: Place
    text: str
    tag: str  #: as YAML 1.1 resolves it
    style: str | None  #: None: plain; otherwise ' " | or >
    end: Place

    @property
    def plain(self) -> bool:
        """Written without quotes."""
        return self.style is None

    def value(self) -> Any:
        """The Python value."""
        if not self.plain:
            return self.text
        if self.text in ("true", "false"):
            return self.text == "true"
        if self.text in ("", "~", "null"):
            return None
        if _INT.match(self.text):
            return int(self.text)
        if self.tag == "tag:yaml.org,2002:float":
            return float(self.text.replace("_", "")) if _is_float(self.text) else self.text
        return self.text


def _is_float(text: str) -> bool:
    try:
        float(text.replace("_", ""))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A sequence."""

    place: Place
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A mapping; `keys` are the places of the keys."""

    place: Place
    entries: Mapping[str, Item]
    keys: Mapping[str, Place]

    def get(self, key: str) -> Item | None:
        """The value of a key, None where there is none."""
        return self.entries.get(key)


Item = Leaf | Series | Branch


def plain(item: Item) -> Any:
    """The tree as ordinary Python values."""
    if isinstance(item, Leaf):
        return item.value()
    if isinstance(item, Series):
        return [plain(part) for part in item.items]
    return {key: plain(value) for key, value in item.entries.items()}


def parse(text: str, file: str, problems: list[Problem]) -> Branch:
    """The one document of a file, which must be a mapping; problems as `parse_any` has them."""
    item = parse_any(text, file, problems)
    if not isinstance(item, Branch):
        raise RulesError([item.place.problem("", "a rule file is a mapping of keys to values")])
    return item


def parse_any(text: str, file: str, problems: list[Problem]) -> Item:
    """The one document of a file.

    What can be read past is added to `problems`; raises `RulesError` for the rest.
    """
    source = Source(file, tuple(_LINE_BREAK.split(text.removeprefix("\ufeff"))))
    start = Place(source, 0, 0)
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        size = len(text.encode(errors="replace"))
        message = f"file of {size} bytes, more than {MAX_BYTES}"
        problem = Problem(file=file, line=0, column=0, path="", message=message)
        raise RulesError([problem])
    _check_depth(text, source)
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as exc:
        raise RulesError([_syntax_problem(exc, source)]) from exc
    if len(nodes) > 1:
        place = _place(nodes[1].start_mark, source)
        raise RulesError([place.problem("", "more than one document", "a file holds one rule set")])
    if not nodes or nodes[0] is None:
        raise RulesError([start.problem("", "the file is empty")])
    return _Builder(source, problems).item(nodes[0], "", 0)


def from_mapping(value: Mapping[str, Any], name: str, problems: list[Problem]) -> Branch:
    """A tree for values that came from a program; positions are those of its JSON text."""
    try:
        text = json.dumps(dict(value), indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        message = f"the value is no JSON: {exc}"
        problem = Problem(file=name, line=0, column=0, path="", message=message)
        raise RulesError([problem]) from exc
    return parse(_UNPRINTABLE.sub(_escape, text), name, problems)


_UNPRINTABLE = re.compile(r"[^\x20-\x7e\n]")


def _escape(match: re.Match[str]) -> str:
    # YAML has no surrogate pairs, and folds U+2028 and its like.
    code = ord(match[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _check_depth(text: str, source: Source) -> None:
    # Composing is recursive in C: a deep document has to be refused before.
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    place = _place(event.start_mark, source)
                    message = f"values are nested more than {MAX_DEPTH} levels deep"
                    raise RulesError([place.problem("", message)])
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError as exc:
        raise RulesError([_syntax_problem(exc, source)]) from exc


def _place(mark: Any, source: Source, length: int = 1) -> Place:
    return Place(source, mark.line, mark.column, length)


_EXPRESSION_LINE = re.compile(
    r"\b(when|ascending|descending|minimize|maximize)\s*:\s*(?P<value>.*)$"
)


def _syntax_problem(exc: yaml.YAMLError, source: Source) -> Problem:
    mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
    message = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "not readable"
    message = " ".join(str(message).split())
    if mark is None:
        position = getattr(exc, "position", None)
        detail = f"{message} at character {position + 1}" if position is not None else message
        text = f"not YAML: {detail}"
        return Problem(file=source.file, line=0, column=0, path="", message=text)
    place = _place(mark, source)
    return place.problem("", f"not YAML: {message}", _syntax_help(source, mark.line, message))


def _syntax_help(source: Source, line: int, message: str) -> str | None:
    # The scanner often notices only on the following line.
    for number in (line, line - 1):
        shown = source.lines[number] if 0 <= number < len(source.lines) else ""
        match = _EXPRESSION_LINE.search(shown)
        if match and not match["value"].startswith(("'", '"', "|", ">")):
            return f"YAML reads parts of this expression as its own signs: {_QUOTE}"
    if "\\t" in message or "tab" in message or "cannot start any token" in message:
        return "indent with spaces, and quote values that start with a sign"
    return None


@dataclass(slots=True)
class _Builder:
    source: Source
    problems: list[Problem]
    count: int = 0

    def item(self, node: yaml.Node, path: str, depth: int) -> Item:
        self.count += 1
        place = _place(node.start_mark, self.source)
        if self.count > MAX_VALUES or depth > MAX_DEPTH:
            what = (
                f"more than {MAX_VALUES} values after aliases are expanded"
                if self.count > MAX_VALUES
                else f"values are nested more than {MAX_DEPTH} levels deep"
            )
            raise RulesError([place.problem(path, what)])
        if isinstance(node, yaml.ScalarNode):
            return self._leaf(node, place, path)
        if not node.tag.startswith("tag:yaml.org,2002:"):
            self.problems.append(place.problem(path, f"YAML reads `{node.tag}` as a tag", _QUOTE))
        if isinstance(node, yaml.SequenceNode):
            items = [
                self.item(part, f"{path}[{index}]", depth + 1)
                for index, part in enumerate(node.value)
            ]
            return Series(place, tuple(items))
        return self._branch(cast("yaml.MappingNode", node), place, path, depth)

    def _leaf(self, node: yaml.ScalarNode, place: Place, path: str) -> Leaf:
        end = _place(node.end_mark, self.source)
        width = end.column - place.column if end.line == place.line else 1
        place = Place(self.source, place.line, place.column, max(width, 1))
        leaf = Leaf(place, node.value, node.tag, node.style or None, end)
        if not node.tag.startswith("tag:yaml.org,2002:"):
            message = f"YAML reads `{node.tag}` as a tag"
            self.problems.append(place.problem(path, message, _QUOTE))
        elif leaf.plain:
            self._check_plain(leaf, path)
        return leaf

    def _check_plain(self, leaf: Leaf, path: str) -> None:
        """Refuse what YAML 1.1 and 1.2 read differently."""
        kind = leaf.tag.rpartition(":")[2]
        if kind == "bool" and leaf.text not in ("true", "false"):
            truth = "true" if leaf.text.lower() in ("yes", "on", "true") else "false"
            message = f"YAML reads `{leaf.text}` as {truth}"
            advice = f"write `{truth}`, or quote it where text is meant"
            self.problems.append(leaf.place.problem(path, message, advice))
        elif kind == "int" and not _INT.match(leaf.text):
            message = f"`{leaf.text}` is not a plain decimal number"
            advice = "write it with digits only, or quote it where text is meant"
            self.problems.append(leaf.place.problem(path, message, advice))

    def _branch(self, node: yaml.MappingNode, place: Place, path: str, depth: int) -> Branch:
        entries: dict[str, Item] = {}
        keys: dict[str, Place] = {}
        for key_node, value_node in node.value:
            where = _place(key_node.start_mark, self.source)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(where.problem(path, "a key must be text"))
                continue
            key = key_node.value
            where = _place(key_node.start_mark, self.source, max(len(key), 1))
            inner = f"{path}.{key}" if path else key
            if key_node.tag == "tag:yaml.org,2002:merge":
                message = "merge keys (`<<`) are not supported"
                self.problems.append(where.problem(inner, message, "use `extends` and overlays"))
            elif key in entries:
                message = f"duplicate key `{key}`"
                first = keys[key].line + 1
                self.problems.append(where.problem(inner, message, f"first given in line {first}"))
            else:
                entries[key] = self.item(value_node, inner, depth + 1)
                keys[key] = where
        return Branch(place, entries, keys)


# -- positions inside a scalar ---------------------------------------------------------------


def place_within(leaf: Leaf, offset: int, length: int) -> Place:
    """Where a character of a scalar's value stands in the file.

    Folding and indentation change only white space, so the n-th visible character of the
    value is the n-th visible character of the source.
    """
    if "\n" in leaf.text[offset : offset + length]:
        length = leaf.text.index("\n", offset) - offset
    if leaf.plain and leaf.place.line == leaf.end.line:
        return Place(leaf.place.source, leaf.place.line, leaf.place.column + offset, length)
    wanted = sum(1 for c in leaf.text[:offset] if not c.isspace())
    last = leaf.place
    for line, column in _visible(leaf):
        last = Place(leaf.place.source, line, column, length)
        if wanted == 0:
            return last
        wanted -= 1
    # Behind the last character: an expression that ends too early.
    return Place(last.source, last.line, last.column + 1, 1)


_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}
_WHITE_ESCAPES = frozenset("ntrvf eLPN_ \t")


def _visible(leaf: Leaf) -> Iterator[tuple[int, int]]:
    """(line, column) of each visible character of the value."""
    lines = leaf.place.source.lines
    line, column = leaf.place.line, leaf.place.column
    if leaf.style in ("|", ">"):
        line, column = line + 1, 0
    elif leaf.style is not None:
        column += 1
    while line < leaf.end.line or (line == leaf.end.line and column < leaf.end.column):
        if line >= len(lines):
            return
        text = lines[line]
        if column >= len(text):
            line, column = line + 1, 0
            continue
        step = 1
        if leaf.style == "'" and text.startswith("''", column):
            step = 2
        elif leaf.style == '"' and text[column] == "\\" and column + 1 < len(text):
            escape = text[column + 1]
            step = _ESCAPE_LENGTHS.get(escape, 2)
            if escape in _WHITE_ESCAPES:
                column += step
                continue
        if not text[column].isspace():
            yield line, column
        column += step
