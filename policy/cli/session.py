"""What every command that touches a database needs: the store, the clock, who is asking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import IO, TYPE_CHECKING, Protocol

from policy.audit.writers import WriterRecord
from policy.cli import options, output
from policy.cluster import times

if TYPE_CHECKING:
    from policy.cluster.snapshot import Snapshot
    from policy.rules import RuleSet
    from policy.store import Store


def open_store(url: str, *, write: bool = False, create: bool = False) -> Store:
    """The database of `--db`. Raises StoreError."""
    from policy.store import Store

    return Store.open(url, read_only=not write, create=create)


class Claimed(WriterRecord, Protocol):
    """One that also holds the name that was claimed."""

    @property
    def actor(self) -> str: ...


def writer(row: Claimed) -> str:
    """Who wrote a record, each name as what it is."""
    known = [f"claimed name {row.actor}"]
    if row.process_uid is not None:
        known.append(f"process user {row.process_user or 'without a name'} (uid {row.process_uid})")
    if row.database_user:
        known.append(f"database user {row.database_user}")
    return ", ".join(known)


def actor() -> str:
    """The name that whoever runs the command claims, as records keep it: from `LOGNAME` first."""
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


def tell_of_projections(rules: RuleSet, snapshot: Snapshot) -> None:
    """Say that extenders get less than kube-scheduler would send, where the state has no more."""
    asked = [extender for extender in rules.extenders if not extender.node_cache_capable]
    if asked and any(node.rest is None for node in snapshot.nodes.nodes):
        output.say(
            "extenders are sent only the fields of pods and nodes that decide something;"
            " `policy import --whole` keeps the others"
        )
