"""What every command that touches a database needs: the store, the clock, who is asking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Final, Protocol

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


def cluster_of(store: Store, named: str | None) -> str:
    """The cluster that `--cluster` names, or the one that is meant without it. Raises Misused.

    1. `default`, where there is one; that it was chosen among several is said.
    2. The only cluster. Clusters of kept simulations have to be named.
    """
    if named is not None:
        return named
    known = store.read.real_clusters()
    if options.DEFAULT_CLUSTER in known:
        others = [name for name in known if name != options.DEFAULT_CLUSTER]
        if others:
            output.say(
                f"cluster `{options.DEFAULT_CLUSTER}` is meant; `--cluster` names another one:"
                f" {listed(others)}"
            )
        return options.DEFAULT_CLUSTER
    if len(known) > 1:
        raise options.Misused(
            f"the database holds several clusters, and none is named `{options.DEFAULT_CLUSTER}`",
            help=f"name one with `--cluster`: {listed(known)}",
        )
    return known[0] if known else options.DEFAULT_CLUSTER


_LISTED: Final = 5
"""Names that a message holds."""


def listed(names: Sequence[str]) -> str:
    """Names, of many the first ones."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_LISTED]) + more


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
