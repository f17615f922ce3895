"""What is wrong with a manifest, and where: fields for programs, one form of text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policy.text.printable import printable

SHOWN: Final = 20
"""Problems that the text of a `ManifestError` spells out; the rest is counted."""


_SHOWN_CHARACTERS: Final = 80


def shown(text: str) -> str:
    """A text of the input in a message: the beginning, and nothing that a terminal would obey."""
    cut = text[:_SHOWN_CHARACTERS]
    if not cut.isprintable():
        cut = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut
        )
    return cut if len(text) <= _SHOWN_CHARACTERS else f"{cut}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that must be put right before the manifests can be read."""

    source: str  #: file as the user named it, `<stdin>` for standard input
    message: str
    help: str = ""
    line: int = 0  #: 1-based, 0 where only the document is known
    column: int = 0
    document: int = 0  #: 1-based; 0 where the file is a single document
    object: str = ""  #: `Pod default/web-1`
    field: str = ""  #: `spec.containers[0].resources.requests.cpu`

    def __str__(self) -> str:
        place = self.source
        if self.line:
            place += f":{self.line}:{self.column}"
        parts = [place]
        if self.document:
            parts.append(f"document {self.document}")
        parts.extend(part for part in (self.object, self.field) if part)
        text = printable(": ".join([*parts, self.message]))
        return f"{text}\n  help: {printable(self.help)}" if self.help else text


class ManifestError(Exception):
    """Manifests that cannot be used; nothing of them may be imported."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        more = len(self.problems) - SHOWN
        if more > 0:
            lines.append(f"and {more} more")
        return "\n".join(lines)
