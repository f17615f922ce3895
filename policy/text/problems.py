"""What is wrong with an input, and where: fields for programs, one form of text for people."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from policy.text.printable import is_printable, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One complaint about one place of an input. Lines and columns count from 1."""

    source: str  #: file as the user named it, `<stdin>` for standard input
    message: str
    help: str = ""
    line: int = 0  #: 0 where only the file or the document is known
    column: int = 0  #: 0 where only the line is known
    document: int = 0  #: 0 where the file is a single document
    object: str = ""  #: `Pod default/web-1`
    field: str = ""  #: where in the object or document: `spec.victims.eligible[1].when`
    source_line: str | None = None
    length: int = 1  #: characters that the caret underlines

    @property
    def of_object(self) -> str:
        """What is wrong with which field, for whoever knows the source."""
        return printable(": ".join(filter(None, (self.object, self.field, self.message))))

    def __str__(self) -> str:
        parts = [":".join([self.source, *(str(n) for n in (self.line, self.column) if n)])]
        if self.document:
            parts.append(f"document {self.document}")
        excerpt = self.source_line if self.line else None
        if excerpt is None:  # an underlined line shows the field better than its path
            parts.extend(part for part in (self.object, self.field) if part)
        lines = [printable(": ".join([*parts, self.message]))]
        if excerpt is not None:
            lines += _excerpt(excerpt, self.column - 1, self.length)
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
