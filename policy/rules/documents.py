"""A YAML document as a tree in which every value knows where it stands.

Where YAML 1.1 tools would read something else in a plain scalar than version 1.2 (`on`, `010`,
`1:30`), that is an error and not a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.rules.problems import RulesError
from policy.text.problems import Problem
from policy.text.yaml12 import Composer, YamlError, error_at, is_merge, scalar

MAX_BYTES = 1 << 20
MAX_DEPTH = 30
MAX_VALUES = 100_000

_LINE_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")
_OTHER_NUMBER = re.compile(
    r"""(?: [-+]? (?: 0b[01_]+ | 0x[0-9a-fA-F_]+ | [0-9][0-9_]* | 0o[0-7]+ )
      | [-+]? [1-9][0-9_]* (?: :[0-5]?[0-9] )+ (?: \.[0-9_]* )?
      | [-+]? [0-9]* _ [0-9_]* \. [0-9_]*
      | [-+]? \. (?: inf | Inf | INF | nan | NaN | NAN ) )\Z""",
    re.VERBOSE,
)
"""Numbers of some version of YAML that are no plain decimals; whole numbers as well."""

_OTHER_BOOLEAN = re.compile(r"(?:[Yy]es|YES|[Nn]o|NO|True|TRUE|False|FALSE|[Oo]n|ON|[Oo]ff|OFF)\Z")
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
            source=self.source.file,
            line=self.line + 1,
            column=self.column + 1,
            field=path,
            message=message,
            source_line=lines[self.line] if self.line < len(lines) else None,
            help=help or "",
            length=self.length,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A scalar."""

    place: Place
    text: str
    style: str | None  #: None: plain; otherwise ' " | or >
    end: Place
    value: str | int | float | bool | None

    @property
    def plain(self) -> bool:
        """Written without quotes."""
        return self.style is None


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
        return item.value
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
        problem = Problem(source=file, message=message)
        raise RulesError([problem])
    try:
        documents = list(_Tree(source, problems).documents(text))
    except YamlError as exc:
        raise RulesError([_yaml_problem(exc, source)]) from exc
    if len(documents) > 1:
        place = _place(documents[1][0].start_mark, source)
        raise RulesError([place.problem("", "more than one document", "a file holds one rule set")])
    if not documents:
        raise RulesError([start.problem("", "the file is empty")])
    return documents[0][1]


def from_mapping(value: Mapping[str, Any], name: str, problems: list[Problem]) -> Branch:
    """A tree for values that came from a program; positions are those of its JSON text."""
    try:
        text = json.dumps(dict(value), indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        message = f"the value is no JSON: {exc}"
        problem = Problem(source=name, message=message)
        raise RulesError([problem]) from exc
    return parse(_UNPRINTABLE.sub(_escape, text), name, problems)


_UNPRINTABLE = re.compile(r"[^\x20-\x7e\n]")


def _escape(match: re.Match[str]) -> str:
    # YAML has no surrogate pairs, and folds U+2028 and its like.
    code = ord(match[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _place(mark: Any, source: Source, length: int = 1) -> Place:
    return Place(source, mark.line, mark.column, length)


_EXPRESSION_LINE = re.compile(
    r"\b(when|ascending|descending|minimize|maximize)\s*:\s*(?P<value>.*)$"
)


def _yaml_problem(exc: YamlError, source: Source) -> Problem:
    if not exc.line:
        return Problem(source=source.file, message=exc.message, help=exc.help)
    advice = exc.help
    # The scanner often notices only on the following line.
    for number in (exc.line - 1, exc.line - 2):
        shown = source.lines[number] if 0 <= number < len(source.lines) else ""
        match = _EXPRESSION_LINE.search(shown)
        if match and not match["value"].startswith(("'", '"', "|", ">")):
            advice = f"YAML reads parts of this expression as its own signs: {_QUOTE}"
            break
    return Place(source, exc.line - 1, exc.column - 1).problem("", exc.message, advice)


class _Tree(Composer[Item]):
    """Sizes are numbers of values."""

    def __init__(self, source: Source, problems: list[Problem]) -> None:
        super().__init__(deepest=MAX_DEPTH)
        self._source = source
        self._problems = problems

    @property
    def _path(self) -> str:
        path = ""
        for part in self.open:
            if not part.is_mapping:
                path += f"[{len(part.values)}]"
            elif part.key is not None:
                path = _below(path, part.key.value)
        return path

    def _problem(self, place: Place, message: str, advice: str) -> None:
        self._problems.append(place.problem(self._path, message, advice))

    def weight(self, event: Any, *, is_key: bool) -> int:
        return 0 if is_key else 1

    def check(self, event: Any) -> None:
        if self.size > MAX_VALUES:
            raise error_at(event, f"more than {MAX_VALUES} values after aliases are expanded")

    def scalar(self, event: Any) -> Leaf:
        place, end = (_place(mark, self._source) for mark in (event.start_mark, event.end_mark))
        width = end.column - place.column if end.line == place.line else 1
        place = Place(self._source, place.line, place.column, max(width, 1))
        self._check_tag(event, place)
        if event.implicit[0]:
            self._check_plain(event.value, place)
        return Leaf(place, event.value, event.style or None, end, scalar(event))

    def _check_tag(self, event: Any, place: Place) -> None:
        if (event.tag or "!") != "!" and not event.tag.startswith("tag:yaml.org,2002:"):
            self._problem(place, f"YAML reads `{event.tag}` as a tag", _QUOTE)

    def _check_plain(self, text: str, place: Place) -> None:
        """Refuse what YAML 1.1 and 1.2 read differently."""
        if _OTHER_BOOLEAN.match(text):
            truth = "true" if text.lower() in ("yes", "on", "true") else "false"
            advice = f"write `{truth}`, or quote it where text is meant"
            self._problem(place, f"YAML reads `{text}` as {truth}", advice)
        elif _OTHER_NUMBER.match(text) and not _INT.match(text):
            advice = "write it with digits only, or quote it where text is meant"
            self._problem(place, f"`{text}` is not a plain decimal number", advice)

    def sequence(self, start: Any, items: list[Item]) -> Series:
        place = _place(start.start_mark, self._source)
        self._check_tag(start, place)
        return Series(place, tuple(items))

    def mapping(self, start: Any, pairs: list[tuple[Any, Item]]) -> Branch:
        place = _place(start.start_mark, self._source)
        self._check_tag(start, place)
        entries: dict[str, Item] = {}
        keys: dict[str, Place] = {}
        for event, value in pairs:
            key = event.value
            where = _place(event.start_mark, self._source, max(len(key), 1))
            inner = _below(self._path, key)
            if is_merge(event):
                message = "merge keys (`<<`) are not supported"
                self._problems.append(where.problem(inner, message, "use `extends` and overlays"))
            elif key in entries:
                message = f"duplicate key `{key}`"
                first = keys[key].line + 1
                self._problems.append(where.problem(inner, message, f"first given in line {first}"))
            else:
                entries[key] = value
                keys[key] = where
        return Branch(place, entries, keys)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


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
