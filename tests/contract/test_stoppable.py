"""Calls that are given up: the thread that makes them ends its work whenever it can be ended."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import suppress
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


def test_what_cannot_be_cancelled_is_known_until_it_ends() -> None:
    """And what it returns then can still be released."""
    ends = threading.Event()

    def endless() -> str:
        ends.wait(60)
        return "late"

    left: list[Stoppable] = []
    calls = Stoppable(seconds=0.01, cancel=lambda: None, left=left)
    with pytest.raises(OutOfTime):
        calls.call(endless)
    assert left == [calls]
    assert calls.running
    ends.set()
    assert calls.late() == "late"
    assert not calls.running
    calls.close()


ONE_STEP = "SELECT instr(zeroblob({0}), CAST(zeroblob({0} / 2) || x'01' AS BLOB))"
"""Takes a time that grows as the square of the length."""


def test_a_connection_is_released_when_its_call_has_ended(tmp_path: Path) -> None:
    """By the next query: one after the other they would take every file that may be open."""
    with Store.open(str(tmp_path / "policy.db")) as store:
        begun, left, size = len(list(Path("/proc/self/fd").iterdir())), [], 250_000
        while not left:  # one that takes longer than its second and the two of patience
            size *= 2
            with suppress(InvalidValue):
                store.sql(ONE_STEP.format(size), timeout=1, left=left).close()
        assert len(list(Path("/proc/self/fd").iterdir())) > begun
        end = time.monotonic() + 300
        while left[0].running:
            assert time.monotonic() < end
            time.sleep(0.1)
        store.sql("SELECT 1", timeout=60).close()
        assert len(list(Path("/proc/self/fd").iterdir())) == begun


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
