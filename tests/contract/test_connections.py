"""What the store relies on in every connection, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from policy.store import Store, StoreError, announcing
from policy.store.connection import Database, parse_url
from policy.store.errors import Unavailable
from tests.contract.builders import NOW, a_cluster
from tests.support.broken_wire import BrokenWire


def test_what_is_committed_on_a_file_is_on_the_disk(tmp_path: Path) -> None:
    """Connections that write wait for the disk, keep a write-ahead log, and check references."""
    url = parse_url(str(tmp_path / "policy.db"))
    found = {}
    database = Database(url)
    with database.writing() as connection:
        for pragma in ("synchronous", "journal_mode", "foreign_keys", "busy_timeout"):
            found[pragma] = connection.execute(text(f"PRAGMA {pragma}")).scalar_one()
    database.close()
    full = 2
    assert found == {
        "synchronous": full,
        "journal_mode": "wal",
        "foreign_keys": 1,
        "busy_timeout": 60_000,
    }


def test_what_is_committed_on_a_server_is_on_the_disk(make_postgres, postgres_template) -> None:
    """The settings of the server that say so are left as they are."""
    database = Database(parse_url(make_postgres(postgres_template)))
    with database.writing() as connection:
        found = connection.execute(text("SHOW synchronous_commit")).scalar_one()
    database.close()
    assert found == "on"


@pytest.mark.parametrize("given", ["", "&tcp_user_timeout=700&keepalives_idle=60"])
def test_a_server_that_is_gone_is_noticed_soon(
    make_postgres, postgres_template, given: str
) -> None:
    """By whoever waits for its answer or for its news, unless the URL says otherwise."""
    wire = BrokenWire(make_postgres(postgres_template))
    url = parse_url(f"{wire.url}{'&' if '?' in wire.url else '?'}{given[1:]}")
    database = Database(url)
    news = announcing._listening(url, every=0.01)
    next(news)
    with database.reading() as connection:
        reading = connection.connection.dbapi_connection
        waiting = news.gi_frame.f_locals["connection"]
        found = [options_of(one.pgconn.socket) for one in (reading, waiting)]
    news.close()
    database.close()
    wire.close()
    expected = (700, 60, 2, 3) if given else (5000, 5, 2, 3)
    assert found == [expected, expected]


def options_of(number: int) -> tuple[int, ...]:
    """After how many ms without an answer, and how many s without a word, it is asked; how often,
    and how many times.
    """
    with socket.socket(fileno=os.dup(number)) as same:
        return tuple(
            same.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_USER_TIMEOUT,
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
            )
        )


def test_a_client_that_is_gone_is_noticed_soon(make_postgres, postgres_template) -> None:
    """By the server, for whose locks others wait: each connection says after which time."""
    database = Database(parse_url(make_postgres(postgres_template)))
    query = "SELECT name FROM pg_settings WHERE name LIKE 'tcp%' AND source = 'session'"
    with database.reading() as connection:
        found = set(connection.execute(text(query)).scalars())
    database.close()
    # Over the socket of this server their values mean nothing, and are shown as 0.
    times = {"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"}
    assert found == {"tcp_user_timeout", *times}


def test_a_transaction_of_who_records_calls_does_not_stand_still_for_long(
    make_postgres, postgres_template, monkeypatch
) -> None:
    """The server ends it, so that other services can go on; the next one is as any other."""
    monkeypatch.setattr("policy.store.connection._LONGEST_PAUSE_MS", 200)
    url = parse_url(make_postgres(postgres_template))
    stands_still, other = Database(url, repeating=True, planned_once=True), Database(url)
    lock = text("LOCK TABLE clusters IN EXCLUSIVE MODE")
    seconds = 30
    began = time.monotonic()

    def is_overtaken() -> None:
        with stands_still.writing() as connection:
            connection.execute(lock)
            with other.writing() as waiting:
                waiting.execute(lock)
            connection.execute(lock)

    with pytest.raises(Unavailable):
        is_overtaken()
    assert time.monotonic() - began < seconds
    with stands_still.writing() as connection:
        connection.execute(lock)
    stands_still.close()
    other.close()


def test_reading_sees_one_instant(database_url: str) -> None:
    """What others commit while a block reads is not seen in it, and is seen in the next one."""
    database = Database(parse_url(database_url), read_only=True)
    query = text("SELECT count(*) FROM clusters")
    seen = []
    with Store.open(database_url) as store:
        with database.reading() as connection:
            seen.append(connection.execute(query).scalar_one())
            store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
            seen.append(connection.execute(query).scalar_one())
        with database.reading() as connection:
            seen.append(connection.execute(query).scalar_one())
    database.close()
    assert seen == [0, 0, 1]


def test_the_rooms_of_one_reading_see_one_instant_and_write_nothing(database_url: str) -> None:
    """Several reads agree whatever others commit meanwhile; writing among them is refused."""
    with Store.open(database_url) as store, store.reading() as rooms:
        before = rooms.state.clusters()
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
        with pytest.raises(StoreError, match="cannot write"):
            rooms.record.import_objects("other", a_cluster(), at_ms=NOW, source="x")
        found = (before, rooms.state.clusters(), [c.name for c in store.state.clusters()])
    assert found == ([], [], ["default"])


def test_the_log_of_a_file_is_copied_into_it(database_url: str, tmp_path: Path) -> None:
    """Afterwards the file alone holds what was committed; a server does so by itself."""
    found: list[object] = []
    with Store.open(database_url) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
        left = store.checkpoint()
        if left is not None:
            copied = str(tmp_path / "alone.db")
            shutil.copy(str(parse_url(database_url).database), copied)
            with Store.open(copied, read_only=True) as alone:
                found = [row.name for row in alone.state.clusters()]
    on_sqlite = parse_url(database_url).get_backend_name() == "sqlite"
    assert (left, found) == ((0, ["default"]) if on_sqlite else (None, []))


def used(store: Store) -> list[tuple[str, str]]:
    """What is said of each use of a store that has connections."""
    found = []
    for use in (
        lambda: store.record.import_objects("more", a_cluster(), at_ms=NOW, source="x"),
        store.state.clusters,
        store.checkpoint,
    ):
        try:
            use()
        except Unavailable as exc:
            found.append((exc.message, exc.help))
    return found


def test_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Nothing is written where it went, and none is made; with the same file back it goes on."""
    path, away = tmp_path / "policy.db", tmp_path / "away.db"
    with Store.open(str(path)) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
        path.rename(away)
        gone = (
            f"the file `{path}` is gone",
            "put it back, and the work goes on; to put another one there, end every process that"
            " uses the database first",
        )
        assert (used(store), path.exists()) == ([gone] * 3, False)
        away.rename(path)
        assert used(store) == []
        assert [c.name for c in store.state.clusters()] == ["default", "more"]


def test_no_connection_makes_the_file_anew(tmp_path: Path) -> None:
    """Also the first one of a store for a database that has to be there, and one of a thread."""
    path = tmp_path / "policy.db"
    Store.open(str(path)).close()
    late = Store.opened_elsewhere(str(path))
    with Store.open(str(path)) as store, ThreadPoolExecutor(4) as threads, store.reading():
        path.unlink()
        waiting = [threads.submit(used, one) for one in (store, late, store)]
        said = {message for one in waiting for message, _ in one.result(60)}
    late.close()
    assert (said, path.exists()) == ({f"the file `{path}` is gone"}, False)


def test_a_store_that_was_opened_elsewhere_begins_without_the_file(tmp_path: Path) -> None:
    """A process of the service may start while it is away."""
    path, away = tmp_path / "policy.db", tmp_path / "away.db"
    Store.open(str(path)).close()
    path.rename(away)
    late = Store.opened_elsewhere(str(path))
    said = {message for message, _ in used(late)}
    away.rename(path)
    found = used(late)
    late.close()
    assert (said, found) == ({f"the file `{path}` is gone"}, [])


def test_another_file_is_not_taken_for_the_one_that_was_there(tmp_path: Path) -> None:
    """Its log would be that of the old one; whoever opens it later finds it as it was."""
    path, other = tmp_path / "policy.db", tmp_path / "other.db"
    Store.open(str(other)).close()
    before = other.read_bytes()
    with Store.open(str(path)) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
        other.replace(path)
        replaced = (
            f"another file is in the place of `{path}`",
            f"end every process that uses the database, and move `{path}-wal` and `{path}-shm` away"
            " before one opens the new file: they belong to the old one",
        )
        assert used(store) == [replaced] * 3
    assert path.read_bytes() == before
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink()
    with Store.open(str(path)) as store:
        assert store.state.clusters() == []


# --- no connection -------------------------------------------------------------------------------


def said(url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    return caught.value


@pytest.fixture
def listener() -> Iterator[Callable[[bytes], int]]:
    """Something on a port that gives one answer to whoever says something, as a server would."""
    listening = socket.create_server(("127.0.0.1", 0))
    answers: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(answers[0])

    def answer(reply: bytes) -> int:
        answers.append(reply)
        threading.Thread(target=serve, daemon=True).start()
        return int(listening.getsockname()[1])

    yield answer
    listening.close()


def an_error(code: str, message: str) -> bytes:
    """What a Postgres server sends before it closes the connection."""
    fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


@pytest.mark.parametrize(
    ("code", "message", "help_text"),
    [
        ("28P01", 'password authentication failed for user "ann"', "check the user and the pass"),
        (
            "28000",
            'no pg_hba.conf entry for host "10.0.0.1", user "ann", database "p", no encryption',
            "the server may want TLS",
        ),
        ("28000", 'pg_hba.conf rejects connection for host "[local]"', "the server's pg_hba.conf"),
        ("28000", 'role "ann" does not exist', "name a role that may log in"),
        ("3D000", 'database "p" does not exist', "make it with `createdb`"),
        ("53300", "sorry, too many clients already", "try again when other connections"),
        ("57P03", "the database system is starting up", "try again when the server has started"),
        ("XX000", "etwas anderes", "check user, host, port and database"),
    ],
)
def test_what_the_server_refuses_has_help(listener, code, message, help_text) -> None:
    """Each reason that a server gives comes with what to do, and without the password."""
    port = listener(an_error(code, message))
    error = said(f"postgresql://ann:s3cr3t@127.0.0.1:{port}/p?sslmode=disable")
    assert error.message.startswith(f"database `postgresql://ann:***@127.0.0.1:{port}/p")
    assert error.message.endswith(f"FATAL:  {message}")
    assert error.help.startswith(help_text)


@pytest.mark.parametrize(
    ("url", "message", "help_text"),
    [
        ("postgresql://ann@127.0.0.1:1/p", "Connection refused", "check host and port"),
        ("postgresql://ann@nohost.invalid/p", "failed to resolve host", "check the host name"),
        ("postgresql://ann@/p?host=/nowhere", "No such file or directory", "check host and port"),
        ("postgresql://ann@127.0.0.1:1/p?shoe=1", "invalid connection option", "check what stands"),
        ("postgresql://ann@127.0.0.1:1/p?sslmode=x", "invalid sslmode value", "check `sslmode`"),
    ],
)
def test_what_is_not_reached_has_help(url: str, message: str, help_text: str) -> None:
    """Refused, unknown, not there, misspelt: each says what to look at."""
    error = said(url)
    assert message in error.message
    assert error.help.startswith(help_text)


def test_a_server_without_tls_has_help(listener) -> None:
    """A URL that insists on TLS, and a server that has none."""
    port = listener(b"N")
    error = said(f"postgresql://ann:s3cr3t@127.0.0.1:{port}/p?sslmode=require")
    assert "server does not support SSL" in error.message
    assert error.help.startswith("the server has no TLS")


def test_a_missing_database_has_help(postgres_server: str) -> None:
    """A real server says that it is not there."""
    url = make_url(postgres_server).set(database="nowhere")
    error = said(url.render_as_string(hide_password=False))
    assert 'database "nowhere" does not exist' in error.message
    assert error.help.startswith("make it with `createdb`")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cr3t@127.0.0.1:{port}/p?sslmode=disable",
        "postgresql://ann@127.0.0.1:{port}/p?sslmode=disable&password=s3cr3t",
        "postgresql://ann@127.0.0.1:{port}/p?sslmode=disable&sslpassword=s3cr3t",
    ],
)
def test_no_message_has_the_password(listener, url: str) -> None:
    """Also where the server repeats it: it is taken out of every message of driver and server."""
    port = listener(an_error("28P01", "login ann/s3cr3t failed"))
    error = said(url.format(port=port))
    assert error.message.endswith("FATAL:  login ann/*** failed")
    assert "s3cr3t" not in f"{error.message} {error.help}"


def test_the_driver_itself_may_repeat_the_password() -> None:
    """A password that landed in another place of the URL as well is taken out there, too."""
    error = said("postgresql://ann:s3cr3t@127.0.0.1:1/p?target_session_attrs=s3cr3t")
    assert error.message.endswith('invalid target_session_attrs value: "***"')


def test_a_connection_that_is_ended_has_help(make_postgres, postgres_template) -> None:
    """The server ended it while it was used: what to do, and what stays."""
    url = make_postgres(postgres_template)
    database = Database(parse_url(url))

    def work() -> None:
        with database.writing() as connection, psycopg.connect(url, autocommit=True) as other:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
            connection.execute(text("SELECT 1"))

    with pytest.raises(StoreError) as caught:
        work()
    database.close()
    assert caught.value.help == (
        "the server ended the connection: run it again; what was committed stays"
    )
