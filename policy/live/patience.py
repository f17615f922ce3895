"""Calls of the store by a follower, made again while the database is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from policy.live.backoff import Backoff
from policy.live.figures import FollowerFigures, Occasion
from policy.store import OtherCluster, StoreError
from policy.store.errors import OtherPast

_T = TypeVar("_T")


class Patience:
    """Waits for the database for as long as the follower runs."""

    def __init__(
        self,
        figures: FollowerFigures,
        tell: Callable[[Occasion], None],
        *,
        stop: threading.Event,
        backoff: Callable[[], Backoff],
    ) -> None:
        self._figures = figures
        self._tell = tell
        self._stop = stop
        self._backoff = backoff

    def call(self, call: Callable[[], _T]) -> _T:
        """What a call of the store returns; while the database is away it is made again.

        Raises StoreError where the follower was stopped meanwhile, OtherCluster and OtherPast at
        once.
        """
        backoff = self._backoff()
        while True:
            try:
                found = call()
            except (OtherCluster, OtherPast):
                raise
            except StoreError as exc:
                if not self._waited_out(exc, backoff):
                    raise
                continue
            self._figures.writing = True
            return found

    def _waited_out(self, error: StoreError, backoff: Backoff) -> bool:
        """Wait for the database; False where it was stopped meanwhile."""
        self._figures.writing = False
        self._figures.troubles += 1
        self._figures.last_trouble = f"database: {error}"
        self._tell(Occasion(trouble=self._figures.last_trouble))
        return not self._stop.wait(backoff.next())
