"""Signals that come while the service starts: nothing that was begun stays when they end it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class EarlySignals:
    """Remembers that the service is to end, until the server sees to that itself."""

    def __init__(self) -> None:
        self.came: signal.Signals | None = None  #: the last one

    def remember(self, number: int, _: FrameType | None) -> None:
        self.came = signal.Signals(number)


@contextmanager
def early_signals() -> Iterator[EarlySignals]:
    """For as long as the service is there: from before anything is loaded that takes long.

    SIGHUP ends no service, also where there are no files yet to be read again.
    """
    early = EarlySignals()
    before = {signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    before |= {number: signal.signal(number, early.remember) for number in ENDING}
    try:
        yield early
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
