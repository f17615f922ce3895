"""Rule files that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable

from policy.text.problems import Problem


class RulesError(Exception):
    """A rule file that cannot be used; every problem found, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))
