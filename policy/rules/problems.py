"""What is wrong with a rule file: where, what, and what to do about it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from policy.text.printable import is_printable, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One complaint about one place. Lines and columns count from 1; 0 where there is none."""

    file: str
    line: int
    column: int
    path: str  #: where in the document: `spec.victims.eligible[1].when`
    message: str
    source_line: str | None = None
    help: str | None = None
    length: int = 1  #: characters that the caret underlines

    def __str__(self) -> str:
        file = printable(self.file)
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        lines = [f"{place}: {printable(self.message)}"]
        if self.source_line is not None and self.line:
            lines += _excerpt(self.source_line, self.column - 1, self.length)
        if self.help:
            lines.append(f"  help: {printable(self.help)}")
        return "\n".join(lines)


_WIDTH = 88


def _excerpt(source: str, column: int, length: int) -> list[str]:
    """The source line with the place underlined; a part of it where the line is long."""
    indent = len(source) - len(source.lstrip())
    start = min(indent, column)
    if column + length - start > _WIDTH:
        start = max(start, column - _WIDTH // 2)
    shown = source[start : start + _WIDTH]
    if source.rstrip() and len(source.rstrip()) > start + _WIDTH:
        shown += "..."
    before = source[start:column]
    if start > indent:
        shown, before = f"...{shown}", f"...{before}"
    marked = source[column : column + length]
    underline = "^" * max(1, min(_cells(marked) if marked else length, _WIDTH))
    return [f"      {_blanked(shown).rstrip()}", f"      {' ' * _cells(before)}{underline}"]


def _blanked(text: str) -> str:
    return "".join(c if is_printable(c) else " " for c in text)


def _cells(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


class RulesError(Exception):
    """A rule file that cannot be used; every problem found, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))
