"""What other processes write is taken over by a desk: when announced at once, else by looking."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from policy.manifests import from_dicts
from policy.server.extender.desk import Desk
from policy.server.extender.spool import Spool
from policy.store import Store
from policy.store.announcing import CHANNEL, news
from policy.store.connection import parse_url
from tests.support import serving
from tests.support.recording import recorder_of

_LIMIT_SECONDS = 120
_NEVER = 3600.0
_ANNOUNCED = 300


def wait_for(fact: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    while not fact():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@contextmanager
def desk(store: Store, folder: Path, *, poll_seconds: float) -> Iterator[Desk]:
    """A desk that has loaded its state."""
    with recorder_of(store) as recorder:
        made = Desk(
            store,
            "prod",
            clock=lambda: serving.NOW_MS,
            recorder=recorder,
            spool=Spool(folder / "spool"),
            poll_seconds=poll_seconds,
            ending=threading.Event(),
        )
        made.open()
        try:
            wait_for(lambda: made.state is not None, made.problem)
            yield made
        finally:
            assert made.close(seconds=60)


def written_by_another(url: str, name: str) -> int:
    """The revision that another process makes by importing a node."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }
    with Store.open(url) as other:
        other.record.import_objects(
            "default", from_dicts([node]), at_ms=serving.NOW_MS, source="other"
        )
        return other.state.head_revision("default")


def knows(found: Desk, revision: int) -> bool:
    state = found.state
    return state is not None and state.revision >= revision


def listeners(url: str, *, end: bool) -> int:
    """How many connections listen; they are ended by the server where that is wanted."""
    what = "count(pg_terminate_backend(pid))" if end else "count(*)"
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        found = connection.execute(
            text(
                f"SELECT {what} FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
            )
        ).scalar_one()
    engine.dispose()
    return int(found)


@pytest.fixture
def postgres_url(make_postgres: Callable[[str], str], postgres_template: str) -> str:
    return make_postgres(postgres_template)


def test_what_is_announced_is_taken_over_without_looking(postgres_url: str, tmp_path: Path) -> None:
    """A desk that would look by itself in an hour only."""
    serving.filled(postgres_url)
    with Store.open(postgres_url) as store, desk(store, tmp_path, poll_seconds=_NEVER) as found:
        wait_for(lambda: listeners(postgres_url, end=False) == 1, "no connection listens")
        revision = written_by_another(postgres_url, "from-elsewhere")
        wait_for(lambda: knows(found, revision), "the announcement was not heard")
        assert found.state is not None
        assert "from-elsewhere" in found.state.snapshot.nodes.index


def test_what_was_not_announced_is_found_by_looking(postgres_url: str, tmp_path: Path) -> None:
    """The connection that listens is ended by the server, and what is written meanwhile is lost."""
    serving.filled(postgres_url)
    with Store.open(postgres_url) as store, desk(store, tmp_path, poll_seconds=0.2) as found:
        wait_for(lambda: listeners(postgres_url, end=False) == 1, "no connection listens")
        for number in range(3):
            listeners(postgres_url, end=True)
            revision = written_by_another(postgres_url, f"lost-{number}")
            wait_for(partial(knows, found, revision), "the state stayed")
        wait_for(lambda: listeners(postgres_url, end=False) == 1, "nothing listens again")


def test_announcements_are_heard_of_several_servers(postgres_url: str) -> None:
    """The URL names them as docs/service.md has it; one that is away is passed over."""
    at = make_url(postgres_url)
    servers = ["127.0.0.1:9", f"{at.query['host']}:5432"]
    url = parse_url(at.set(query={"host": servers}).render_as_string(hide_password=False))
    stopping, items = threading.Event(), 0

    def listen() -> None:
        nonlocal items
        for _ in news(url, stopping, every=0.2):
            items += 1

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        wait_for(lambda: items > 3, "it does not look")
        found = listeners(postgres_url, end=False)
    finally:
        stopping.set()
        thread.join(60)
    assert found == 1


def test_announcements_that_come_together_are_few_items(postgres_url: str) -> None:
    """And there is one behind the last of them: whoever looks then misses nothing."""
    serving.filled(postgres_url)
    stop, heard, looked = threading.Event(), list[float](), list[int]()
    with Store.open(postgres_url) as store:

        def listen() -> None:
            for _ in store.news(stop, every=_LIMIT_SECONDS):
                heard.append(time.monotonic())
                if stop.is_set():
                    looked.append(store.state.head_revision("default"))

        listener = threading.Thread(target=listen)
        listener.start()
        wait_for(lambda: listeners(postgres_url, end=False) == 1, "no connection listens")
        engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for _ in range(_ANNOUNCED):
                connection.execute(text(f"NOTIFY {CHANNEL}"))
                time.sleep(0.002)
        engine.dispose()
        wait_for(lambda: bool(heard) and time.monotonic() - heard[-1] > 1, "no quiet")
        items = len(heard)
        stop.set()
        revision = written_by_another(postgres_url, "the-last-one")
        listener.join(_LIMIT_SECONDS)
    assert looked == [revision]
    assert items < _ANNOUNCED / 2
