"""What many streams of events read, read once: the looks that all of them take together.

A stream that follows the record by itself asks the database once a second, and reads and puts into
words whatever is new: with some dozens of them, that would take more time than schedulers have. So
all of them look at the same instants, and those that have come equally far, and see the same, share
what is read behind that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar, cast

import anyio

from policy.store import LedgerHead

T = TypeVar("T")

_KEPT: Final = 32
"""Readings of a look that are kept. Streams read as soon as there is a look, and all those that
share a reading do so within that moment; whoever is far behind reads page after page by itself."""
_HEADS: Final = anyio.CapacityLimiter(1)
_READINGS: Final = anyio.CapacityLimiter(2)
"""Threads of all streams: what many read takes the turn of none, and holds up no page."""


class Look:
    """The heads of all clusters at one instant, and what was read since."""

    def __init__(self, heads: Sequence[LedgerHead]) -> None:
        self.heads = heads
        self._read: dict[Hashable, asyncio.Task[Any]] = {}

    async def reading(self, what: Hashable, read: Callable[[], T]) -> T:
        """What `read` gives, in a thread, or gave whoever asked for the same since this look."""
        task = self._read.get(what)
        if task is None:
            task = self._read[what] = asyncio.create_task(_in_thread(read, _READINGS))
            for oldest in list(self._read)[:-_KEPT]:
                del self._read[oldest]
        # Who leaves takes nothing away from the others.
        return cast("T", await asyncio.shield(task))


class Looks:
    """Taken while somebody waits for one; used on the event loop."""

    def __init__(self, heads: Callable[[], Sequence[LedgerHead]], *, every: float) -> None:
        """heads: reads those of all clusters, in a thread. every: seconds between two looks."""
        self._heads = heads
        self._every = every
        self._newest: Look | None = None
        self._looked = 0.0  #: when that was, by `time.monotonic`
        self._next: asyncio.Task[Look] | None = None

    async def after(self, look: Look | None) -> Look:
        """The newest one that is not the given one, which may have to be waited for.

        Raises what reading the heads does.
        """
        if self._newest is not None and self._newest is not look:
            return self._newest
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._taken())
        return await asyncio.shield(self._next)

    async def _taken(self) -> Look:
        await asyncio.sleep(max(0.0, self._looked + self._every - time.monotonic()))
        # INVARIANT: the heads are read before anything else is: what is recorded meanwhile moves
        # them again, and is seen with the next look.
        try:
            heads = await _in_thread(self._heads, _HEADS)
        finally:
            self._looked = time.monotonic()
        self._newest = Look(heads)
        return self._newest


async def _in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    return await anyio.to_thread.run_sync(work, limiter=limiter)
