"""How long to wait before trying again: longer each time, and never all at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.25
MOST_SECONDS: Final = 30.0


class Backoff:
    """Doubles from try to try; a random half of it keeps many watchers from coming together."""

    def __init__(
        self,
        *,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._most = most
        self._chance = chance
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now."""
        whole = min(self._most, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return whole / 2 + whole / 2 * self._chance()

    def reset(self) -> None:
        """It worked: the next wait is a short one."""
        self._tries = 0
