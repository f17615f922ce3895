"""Calls that are given up: the thread that makes them ends its work whenever it can be ended."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from policy.store import Store
from policy.store.errors import InvalidValue
from policy.store.read import bounds, copied
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


SORTED = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000000)
SELECT * FROM (SELECT i, hex(randomblob(100)) AS text FROM n) ORDER BY text
"""
"""It would need some 200 GB."""


def test_a_query_whose_temporary_files_fill_the_disk_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those who ask a service: on the record, and on a copy of what they may see."""
    monkeypatch.setattr(bounds, "TEMPORARY_MIB", 16)
    with Store.open(str(tmp_path / "policy.db")) as store:
        for asked in (
            lambda: store.sql(SORTED, most_mib=32, timeout=60),
            lambda: copied.run({}, SORTED, {}, limit=10, timeout=60),
        ):
            with pytest.raises(InvalidValue, match="need more than 16 MiB of temporary files"):
                asked()
            began = time.monotonic()
            while True:  # its files are gone with it
                try:
                    bounds.require_little_temporary()
                except InvalidValue:
                    assert time.monotonic() < began + 60
                    time.sleep(0.05)
                else:
                    break
