"""What goes wrong while a cluster is followed: counted, said, and kept by kind until it is over."""

from __future__ import annotations

from collections.abc import Callable

from policy.live.figures import FollowerFigures, Occasion


class Troubles:
    """Puts troubles into a follower's figures, and tells of those that are new."""

    def __init__(self, figures: FollowerFigures, tell: Callable[[Occasion], None]) -> None:
        self._figures = figures
        self._tell = tell

    def said(self, about: str, message: str) -> None:
        """Something that is over as it is said."""
        self._count(about, message)
        self._tell(Occasion(trouble=self._figures.last_trouble))

    def failing(self, kind: str, message: str) -> None:
        """A kind cannot be read at the moment; the same failure again is only counted."""
        self._count(kind, message)
        known = self._figures.failing
        # Replaced, never changed: other threads show it.
        self._figures.failing = {**known, kind: message}
        if known.get(kind) != message:
            self._tell(Occasion(trouble=self._figures.last_trouble))

    def recovered(self, kind: str) -> None:
        """A kind can be read again."""
        known = self._figures.failing
        if kind in known:
            self._figures.failing = {one: said for one, said in known.items() if one != kind}
            self._tell(Occasion(recovered=kind))

    def _count(self, about: str, message: str) -> None:
        self._figures.troubles += 1
        self._figures.last_trouble = f"{about}: {message}"
