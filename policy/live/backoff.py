"""How long to wait before trying again: longer each time, and never all at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from policy.live.connection import Interrupted

FIRST_SECONDS: Final = 0.25
MOST_SECONDS: Final = 30.0
MOST_RETRY_AFTER_SECONDS: Final = 120.0
"""A server that names a longer time (`Retry-After`) is called again after this one."""


class Backoff:
    """Doubles from try to try; a random half of it keeps many watchers from coming together."""

    def __init__(
        self,
        *,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.most = most
        self._first = first
        self._chance = chance
        self._tries = 0

    def next(self, after: Interrupted | None = None) -> float:
        """Seconds to wait now; after: what went wrong, which may say how long at least."""
        whole = min(self.most, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        least = min(after.retry_after, MOST_RETRY_AFTER_SECONDS) if after is not None else 0.0
        return max(whole / 2, least) + whole / 2 * self._chance()

    def reset(self) -> None:
        """It worked: the next wait is a short one."""
        self._tries = 0
