"""`policy serve` on SQLite copies the database's log into its file while others write."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from policy.server.config import Config
from policy.server.service import PolicyService
from policy.store import Store
from tests.acceptance.test_serve_broken import until
from tests.support import serving

_MIB = 1 << 20
_BATCHES = 8  # together half of what a commit would copy by itself
_ENOUGH = 60  # seconds


def test_the_log_stays_short_while_others_write(tmp_path: Path) -> None:
    """A part of it is used again as soon as all of it is copied, so that its file does not grow."""
    db = Path(serving.filled(str(tmp_path / "policy.db")))
    log = Path(f"{db}-wal")
    started = serving.serve(str(db), tmp_path)
    started.ready()
    with closing(sqlite3.connect(db, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("CREATE TABLE others (content BLOB)")
        for _ in range(_BATCHES):
            before = db.stat().st_size
            for _ in range(16):
                writer.execute("INSERT INTO others VALUES (randomblob(65536))")
            end = time.monotonic() + _ENOUGH
            while db.stat().st_size < before + _MIB:
                assert time.monotonic() < end, "the log was not copied"
                time.sleep(0.05)
        assert log.stat().st_size < _BATCHES * _MIB / 2
    assert started.stop() == 0
    # SQLite removes it with the last connection: none was left open.
    assert not log.exists()


_LEFT = re.compile(r"^policy_sqlite_log_bytes (\S+)$", re.MULTILINE)
_READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
print(connection.execute("SELECT count(*) FROM others").fetchone(), flush=True)
sys.stdin.read()
"""


def test_a_log_that_a_reader_keeps_long_is_said(tmp_path: Path) -> None:
    """Once, with the figure beside; when the reader has ended, that it is copied again."""
    db = serving.filled(str(tmp_path / "policy.db"))
    service = serving.serve(db, tmp_path)
    service.ready()
    grows = "MiB of the database's log cannot be copied into its file"
    again = "the database's log is copied into its file again"

    def left() -> float:
        (found,) = _LEFT.findall(service.get("/metrics").text)
        return float(found)

    def said() -> tuple[int, int]:
        text = service.log.read_text()
        return text.count(grows), text.count(again)

    with closing(sqlite3.connect(db, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE others (content BLOB)")
        for times in (1, 2):
            assert until(lambda: left() == 0)
            command = [sys.executable, "-c", _READER, db]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe) as reader:
                assert reader.stdout is not None
                reader.stdout.readline()
                writer.execute(f"INSERT INTO others VALUES (zeroblob({200 * _MIB}))")
                assert until(lambda: left() > 200 * _MIB)
                assert said() == (times - 1, times - 1)
                for _ in range(2):
                    writer.execute(f"INSERT INTO others VALUES (zeroblob({80 * _MIB}))")
                assert until(lambda: left() > 350 * _MIB)
                assert said() == (times, times - 1)
            assert until(lambda times=times: said() == (times, times))
            assert left() == 0
    assert service.stop() == 0


def test_the_end_of_the_service_ends_the_copying(tmp_path: Path) -> None:
    db = str(tmp_path / "policy.db")
    with Store.open(db):
        pass
    service = PolicyService(Config(db=db, spool=tmp_path / "spool"))
    service.open()
    asyncio.run(service.begin())
    copying = [thread for thread in threading.enumerate() if thread.name == "log"]
    assert [thread.is_alive() for thread in copying] == [True]
    asyncio.run(service.close())
    assert [thread.is_alive() for thread in copying] == [False]
    assert not Path(f"{db}-wal").exists()
