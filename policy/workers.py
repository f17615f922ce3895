"""How worker processes are started, so that a Ctrl-C is for their parent alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_interrupt() -> Iterator[None]:
    """Processes that are started in the block never get SIGINT; the parent ends them.

    A terminal sends it to all processes of a command, and each would print where it was, also
    while it still imports. What comes meanwhile reaches the parent after the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
