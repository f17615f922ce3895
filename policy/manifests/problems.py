"""Manifests that cannot be used, and texts of theirs in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from policy.text.problems import Problem

SHOWN: Final = 20
"""Problems that the text of a `ManifestError` spells out; the rest is counted."""


_SHOWN_CHARACTERS: Final = 80
_NAMED: Final = 3


def shown(text: str) -> str:
    """A text of the input in a message: the beginning, and nothing that a terminal would obey."""
    cut = text[:_SHOWN_CHARACTERS]
    if not cut.isprintable():
        cut = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut
        )
    return cut if len(text) <= _SHOWN_CHARACTERS else f"{cut}..."


def first_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _NAMED
    text = ", ".join(f"`{shown(name)}`" for name in names[:_NAMED])
    return f"{text} and {more} more" if more > 0 else text


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
