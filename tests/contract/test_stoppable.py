"""Calls that are given up: the thread that makes them ends its work whenever it can be ended."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from policy.store.read.stoppable import OutOfTime, Stoppable

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def test_a_query_that_had_not_begun_when_it_was_cancelled() -> None:
    """SQLite forgets an interrupt that comes before the statement: it is sent again."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    cancelled = threading.Event()

    def cancel() -> None:
        connection.interrupt()
        cancelled.set()

    def late() -> None:
        assert cancelled.wait(60)
        connection.execute(ENDLESS).fetchall()

    calls = Stoppable(seconds=0.01, cancel=cancel)
    with pytest.raises(OutOfTime):
        calls.call(late)
    assert not calls.running
    calls.close()
    connection.close()
