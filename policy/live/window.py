"""News that wait for those of other kinds that are older by the server's counter."""

from __future__ import annotations

from typing import Final

from policy.live.watching import Changed

WINDOW_MS: Final = 300
"""So long news wait."""


class Window:
    """The changes that were heard of and are not written yet."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._waiting: list[Changed] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, news: Changed) -> None:
        self._waiting.append(news)

    def holds(self, kind: str) -> bool:
        return any(one.kind == kind for one in self._waiting)

    def listed(self, kind: str) -> None:
        """The whole kind was listed: what was known of its objects before is none any more."""
        # What events claim is in no list of objects, and stays true.
        self._waiting = [one for one in self._waiting if one.kind != kind or one.claim is not None]

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until the first of them has waited long enough."""
        return max(0, self._waiting[0].received_ms + self._milliseconds - now_ms)

    def take(self, now_ms: int, *, everything: bool = False) -> list[Changed]:
        """Those that have waited long enough, with all that is older by the counter."""
        cutoff = now_ms if everything else now_ms - self._milliseconds
        last = max((one.version for one in self._waiting if one.received_ms <= cutoff), default=0)
        ready: list[Changed] = []
        waiting: list[Changed] = []
        for one in self._waiting:
            is_ready = one.received_ms <= cutoff or 0 < one.version <= last
            (ready if is_ready else waiting).append(one)
        self._waiting = waiting
        return ready
