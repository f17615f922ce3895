"""Processes of this product: how workers are started, and how often they search for garbage."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def collect_seldom() -> None:
    """Search for unreachable cycles seldom; for processes that are wholly ours.

    A cluster is hundreds of thousands of objects that stay, and decisions make hardly a cycle:
    with Python's own thresholds a tenth of a replay goes into searching through them.
    """
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def without_interrupt() -> Iterator[None]:
    """Processes that are started in the block never get SIGINT; the parent ends them.

    A terminal sends it to all processes of a command, and each would print where it was, also
    while it still imports. What comes meanwhile reaches the parent after the block: a process
    that is half started would complain, too.
    """
    came: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        came.append(number)

    # The mask is what a new process inherits. It does not keep the signal from this one, where
    # another thread (numpy has some) may take it, and only the main thread may set a handler.
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, later) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)
