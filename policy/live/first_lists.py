"""The first lists of a followed cluster, which are one revision together."""

from __future__ import annotations

from collections.abc import Iterable

from policy.live.watching import Listed


class FirstLists:
    """Waits until every kind was listed that must be."""

    def __init__(self, kinds: Iterable[str]) -> None:
        """kinds: those that are listed first."""
        self._waited_for = set(kinds)
        self._lists: dict[str, Listed] = {}

    @property
    def complete(self) -> bool:
        return not self._waited_for

    def take(self, news: Listed) -> None:
        """The list of a kind; of several the last one counts."""
        self._lists[news.kind] = news
        self._waited_for.discard(news.kind)

    def leave_out(self, kind: str) -> None:
        """A kind that cannot be listed is not waited for."""
        self._lists.pop(kind, None)
        self._waited_for.discard(kind)

    def taken(self) -> list[Listed]:
        """The lists, once they are complete; they are given out once."""
        if not self.complete:
            return []
        lists, self._lists = list(self._lists.values()), {}
        return lists
