"""Whether others may have written since the state was last known to be the newest.

A service hears of its own decisions, too: under load nearly all that it hears is of them. One that
is recorded was made on the newest state, so whatever was heard before it began was none of others.
"""

from __future__ import annotations

import threading
import time


class News:
    """Heard by one thread, told to be none by another, and looked at by a third."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._lock = threading.Lock()

    def hear(self) -> bool:
        """Somebody has written; False where that may have been so already."""
        with self._lock:
            first = self._since is None
            if first:
                self._since = time.monotonic()
        return first

    def recorded(self, began: float) -> None:
        """A decision is recorded that began then (`time.monotonic`)."""
        with self._lock:
            if self._since is not None and self._since < began:
                self._since = None

    def take(self) -> None:
        """What was written is going to be looked at."""
        with self._lock:
            self._since = None

    @property
    def age(self) -> float | None:
        """Seconds since others may have written; None where they have not."""
        since = self._since
        return None if since is None else time.monotonic() - since
