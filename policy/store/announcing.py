"""Telling other processes that a cluster's ledger grew, and waiting for such news.

Postgres announces it (LISTEN, NOTIFY); SQLite is looked at. Whoever waits looks again from time
to time all the same: an announcement may be lost with its connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from policy.store import bulk
from policy.store.connection import postgres_options

CHANNEL: Final = "policy_ledger"
_ANNOUNCE: Final = "SELECT pg_notify(?, ?)"
_TOGETHER_SECONDS: Final = 0.05
"""After an item: what is announced meanwhile is one more. A service that decides under load
announces dozens a second, its own ones, and each would take the interpreter from it."""


def announce(connection: Connection, cluster_id: int) -> None:
    """Tell who listens, when the transaction is committed; on Postgres only."""
    if connection.dialect.name == "postgresql":
        bulk.execute(connection, _ANNOUNCE, (CHANNEL, str(cluster_id)))


def news(url: URL, stop: threading.Event, *, every: float) -> Iterator[None]:
    """One item whenever something may have been written, and at least every so many seconds.

    Ends when `stop` is set (after at most `every` seconds).
    """
    listen = _listening(url, every=every) if url.get_backend_name() == "postgresql" else None
    while not stop.is_set():
        if listen is None:
            stop.wait(every)
            yield
        else:
            next(listen)
            yield
            stop.wait(min(_TOGETHER_SECONDS, every))


def _listening(url: URL, *, every: float) -> Iterator[None]:
    """An item after each announcement, or after `every` seconds without one."""
    import time

    import psycopg

    # As it is read elsewhere: of several servers libpq by itself would take the last one, with its
    # port as a part of its name.
    _, named = url.get_dialect()().create_connect_args(url)
    options = {**postgres_options(url), **named}
    connection: psycopg.Connection[Any] | None = None
    try:
        while True:
            try:
                if connection is None:
                    connection = psycopg.connect(**options, autocommit=True)
                    connection.execute(f"LISTEN {CHANNEL}")
                for _ in connection.notifies(timeout=every, stop_after=1):
                    pass
            except psycopg.Error:
                # A server that is away: the readers see for themselves, here it is tried again.
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                connection = None
                time.sleep(every)
            yield
    finally:
        if connection is not None:
            connection.close()
