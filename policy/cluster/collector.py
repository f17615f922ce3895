"""Bulk work without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Final

_FROZEN: Final = Event()
"""Is anything frozen? The collector would count that one by one, at each call of a scheduler."""

_BULK: Final = 50_000
"""Objects from which on a walk over them is worth avoiding."""
_MOST_AGED: Final = 20_000_000
"""Objects that were made old after which all are walked once: of those, the collector itself would
hardly ever look for what refers to itself alone, and keep that for ever."""


class _Aged:
    """How many objects were made old since all were walked."""

    objects = 0


def freeze() -> None:
    """Have the collector walk none of the objects there are now for the rest of the process."""
    gc.collect()
    gc.freeze()
    _FROZEN.set()


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector, and start it again only where it ran before.

    Reading a dump makes millions of live objects and hardly any garbage: the collector would only
    walk them again and again (four fifths of the time of an untyped load). Where there are many of
    them, they count as old ones at once afterwards, unless somebody has frozen objects, which would
    be thawed by that: otherwise the next allocation would have all of them walked. Where there are
    few they do not: a process that does such work all the time would never look for garbage.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            made = gc.get_count()[0]
            if made >= _BULK and not _FROZEN.is_set():
                _make_old(made)
            gc.enable()


def _make_old(made: int) -> None:
    _Aged.objects += made
    if _Aged.objects >= _MOST_AGED:
        _Aged.objects = 0
        gc.collect()
    else:
        gc.freeze()
        gc.unfreeze()
