"""Bulk work without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Final

_FROZEN: Final = Event()
"""Is anything frozen? The collector would count that one by one, at each call of a scheduler."""


def freeze() -> None:
    """Have the collector walk none of the objects there are now for the rest of the process."""
    gc.collect()
    gc.freeze()
    _FROZEN.set()


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector, and start it again only where it ran before.

    Reading a dump makes millions of live objects and hardly any garbage: the collector would only
    walk them again and again (four fifths of the time of an untyped load). Afterwards they count as
    old ones at once, unless somebody has frozen objects, which would be thawed by that: otherwise
    the next allocation would have all of them walked.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _FROZEN.is_set():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
