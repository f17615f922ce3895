"""News that wait for those of other kinds that are older by the server's counter."""

from __future__ import annotations

from itertools import compress
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
        return max(0, self._milliseconds - max(self._waited_ms(now_ms)))

    def take(self, now_ms: int, *, everything: bool = False) -> list[Changed]:
        """Those that have waited long enough, with all that is older by the counter."""
        least = 0 if everything else self._milliseconds
        due = [waited >= least for waited in self._waited_ms(now_ms)]
        last = max((one.version for one in compress(self._waiting, due)), default=0)
        ready: list[Changed] = []
        waiting: list[Changed] = []
        for one, is_due in zip(self._waiting, due, strict=True):
            is_ready = is_due or 0 < one.version <= last
            (ready if is_ready else waiting).append(one)
        self._waiting = waiting
        return ready

    def _waited_ms(self, now_ms: int) -> list[int]:
        """How long each of them has waited."""
        waited = (now_ms - one.received_ms for one in self._waiting)
        # What seems to come from the future was heard before the clock was set back. How long ago
        # is not known; to wait until the clock is there again would hold up all that comes later.
        return [ms if ms >= 0 else self._milliseconds for ms in waited]
