"""`policy run --watch`: the loop around the watcher, and how it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from policy.cli import session
from policy.scheduling.watch import Watcher

if TYPE_CHECKING:
    from policy.scheduling.cycle import GroupStep, Scheduler, Step


def watching(scheduler: Scheduler, *, interval: float, name: str) -> Iterator[Step | GroupStep]:
    """The decisions, until a signal asks for the end; a decision that has begun is recorded."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        watcher = Watcher(
            scheduler,
            # Failed pods wait in real time, also where decisions are made for another one.
            clock=session.clock_ms,
            pause=lambda: not stop.wait(interval),
            name=name,
        )
        for step in watcher:
            yield step
            if stop.is_set():
                return
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
