"""What every command that touches a database needs: the store, the clock, who is asking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import IO, TYPE_CHECKING

from policy.cli import options
from policy.cluster import times

if TYPE_CHECKING:
    from policy.store import Store


def open_store(url: str, *, write: bool = False, create: bool = False) -> Store:
    """The database of `--db`. Raises StoreError."""
    from policy.store import Store

    return Store.open(url, read_only=not write, create=create)


def actor() -> str:
    """Who runs the command, as records name them."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def standard_input() -> IO[bytes] | None:
    """The bytes of standard input; None where the caller closed it."""
    import sys

    return getattr(sys.stdin, "buffer", None)


def clock_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return times.from_datetime(options.clock())


def deciding_at(now: datetime | None) -> Callable[[], int]:
    """The clock that decisions are made by: the given time, else the real one."""
    if now is None:
        return clock_ms
    fixed = times.from_datetime(now)
    return lambda: fixed


def instant(millis: int | None) -> str:
    """An instant as people and programs read it; empty where there is none."""
    if millis is None:
        return ""
    return times.to_text(millis) or ""
