"""From a database URL to connections with the settings that the store relies on.

SQLite runs in WAL mode with `synchronous=FULL`: every commit is on the disk before it is
reported, so it outlives the process (SIGKILL) and the power supply alike. `NORMAL` would survive
SIGKILL too but may lose the last commits at a power failure; it saves one fsync per decision.
Postgres gives the same with its default `synchronous_commit=on`.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from policy.store import arrays, bulk, identity
from policy.store.errors import StoreError, Unavailable, translated
from policy.store.sqlite_file import FileIdentity, SqliteFile
from policy.text.system import explained

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

R = TypeVar("R")

BUSY_SECONDS: Final = 60
_POSTGRES: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "application_name": "policy",
    "tcp_user_timeout": 5000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""A server that is gone without a word is noticed within seconds. The system by itself sends again
for a quarter of an hour what was not received, and waits two hours before it asks whether somebody
is there.

Source: PostgreSQL documentation, "Parameter Key Words" of libpq.
"""
_OF_SERVER: Final = {
    "tcp_user_timeout": "tcp_user_timeout",
    "keepalives_idle": "tcp_keepalives_idle",
    "keepalives_interval": "tcp_keepalives_interval",
    "keepalives_count": "tcp_keepalives_count",
}
"""The same for the server, by what they are named here: a client that is gone without a word may
have begun a transaction, and others wait for its locks. Over a socket in the file system they mean
nothing, and a system that does not know them says so in the server's log.

Source: PostgreSQL documentation, "TCP Settings" of "Connections and Authentication".
"""
_LONGEST_PAUSE_MS: Final = 10_000
"""Between two statements of a transaction of `planned_once`, which takes milliseconds: a client
that stands still for longer holds up all others, and its transaction is ended."""
_SIGNAL_STEPS: Final = 100_000
"""Steps of SQLite's machine, about a millisecond's work, between two looks for signals."""
_LONG_LOG: Final = 4000
"""Pages of SQLite's log, of 4 kB each, from which on a commit copies it: `checkpoint`."""
_FILE: Final = "policy.file"
"""Key of a connection's info: the `SqliteFile` that it has open."""
_IDLE_SINCE: Final = "policy.idle"
"""Key of the same: when it was last given back, by `time.monotonic`."""
_PAUSE_SECONDS: Final = 0.1
_CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"
_FORMS: Final = "give a file (`policy.db`), `sqlite:///policy.db` or `postgresql://user@host/name`"


def parse_url(text: str) -> URL:
    """The URL with its driver. Raises StoreError for what is no supported database."""
    if "://" not in text:
        if not text.strip():
            raise StoreError("the database has no name", help=_FORMS)
        return URL.create("sqlite+pysqlite", database=text)
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise StoreError("that is not a database URL", help=_FORMS) from None
    if backend == "sqlite":
        if url.database in {None, "", ":memory:"}:
            raise StoreError("a database in memory keeps nothing", help=_FORMS)
        return url.set(drivername="sqlite+pysqlite")
    if backend in {"postgresql", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    raise StoreError(f"`{backend[:40]}` is not a supported database", help=_FORMS)


def absolute_url(text: str) -> str:
    """The same database, named so that a process in another folder finds it. Raises StoreError."""
    url = parse_url(text)
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").absolute())
    return text


def _reading_mode(path: Path) -> str:
    # Where nobody can write, no journal can be made, and none is needed.
    frozen = not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
    return "ro&immutable=1" if frozen else "ro"


def _check_file(url: URL, *, read_only: bool, create: bool) -> None:
    path = Path(url.database or "")
    try:
        status = path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        said = explained(exc)
        raise StoreError(f"{path}: {said.message}", help=said.help) from exc
    else:
        if stat.S_ISDIR(status.st_mode):
            raise StoreError(f"`{path}` is a folder, not a database file", help=_FORMS)
        return
    if read_only or not create:
        raise StoreError(
            f"there is no database at `{path}`",
            help="name it with --db or POLICY_DB; `policy import` creates one",
        )
    if not path.absolute().parent.is_dir():
        raise StoreError(f"there is no folder `{path.absolute().parent}` for the database file")


def make_engine(
    url: URL,
    *,
    read_only: bool = False,
    create: bool = True,
    checked: bool = False,
    migrating: bool = False,
    repeating: bool = False,
    planned_once: bool = False,
    file: SqliteFile | None = None,
) -> Engine:
    """An engine whose connections carry the settings above; nothing is connected yet.

    checked: the file was there for another process; whether it is now, a connection will tell.
    migrating: for schema work, where SQLAlchemy reads the catalogue and wants JSON parsed.
    repeating: the same statements come again and again. planned_once: with few values each, for
    which one plan is as good as another.
    file: that of `url`, where others are to know which one is opened.
    """
    if url.get_backend_name() == "sqlite":
        if not checked:
            _check_file(url, read_only=read_only, create=create)
        file = file or SqliteFile(url.database or "", create=create)
        return _sqlite_engine(url, file, read_only=read_only)
    return _postgres_engine(
        url,
        read_only=read_only,
        json_as_text=not migrating,
        repeating=repeating,
        planned_once=planned_once,
    )


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Switch to WAL; several processes may try at once, and SQLite then does not wait by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise sqlite3.OperationalError("database is locked")
        time.sleep(0.01)


def _let_signals_in() -> int:
    return 0


def _sqlite_engine(url: URL, file: SqliteFile, *, read_only: bool) -> Engine:
    path = Path(url.database or "").absolute()
    reading = _reading_mode(path) if read_only else None

    def connect() -> sqlite3.Connection:
        mode = reading or file.mode()
        if mode != "rwc":
            file.check()  # which says more than SQLite
        uri = f"{path.as_uri()}?mode={mode}"
        # Transactions are opened by the `begin` event below, never by the driver.
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            file.opened()
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine(url, creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "connect")
    def settings(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        record.info[_FILE] = file
        # SQLite holds signals back until a statement ends; in between, Python handles them here.
        # A Ctrl-C then ends the statement as `interrupted`, see `errors.translated`.
        connection.set_progress_handler(_let_signals_in, _SIGNAL_STEPS)
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        cursor.execute("PRAGMA foreign_keys = ON")
        if read_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            _use_wal(cursor)
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {_LONG_LOG}")
        cursor.execute("PRAGMA cache_size = -65536")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Also before one that reads: what is not in its place is not what people mean.
        file.check()
        # A writer takes the lock at once: upgrading a read transaction fails where it waited.
        immediate = connection.get_execution_options().get("writes", False)
        statement = "BEGIN IMMEDIATE" if immediate else "BEGIN"
        with bulk.Driver(connection, statement) as cursor:
            cursor.execute(statement)

    return engine


def postgres_options(url: URL) -> dict[str, Any]:
    """Of a connection to Postgres, beside those that the URL has."""
    return {name: value for name, value in _POSTGRES.items() if name not in url.query}


def _postgres_engine(
    url: URL, *, read_only: bool, json_as_text: bool, repeating: bool, planned_once: bool
) -> Engine:
    from psycopg.types.string import TextLoader

    from policy.store.numeric import NumericLoader

    engine = create_engine(
        url,
        connect_args=postgres_options(url),
        poolclass=QueuePool,
        # Where the server was restarted meanwhile, who comes next need not know.
        pool_pre_ping=not repeating,
    )
    if repeating:
        _ping_after_a_pause(engine)

    @event.listens_for(engine, "connect")
    def settings(connection: Any, record: ConnectionPoolEntry) -> None:
        given = {
            theirs: str(url.query.get(ours, _POSTGRES[ours])) for ours, theirs in _OF_SERVER.items()
        }
        if planned_once:
            given["idle_in_transaction_session_timeout"] = str(_LONGEST_PAUSE_MS)
        also = ", set_config(%s, %s, false)" * len(given)
        values = [one for pair in given.items() for one in pair]
        user = connection.execute(f"SELECT session_user{also}", values).fetchone()[0]
        record.info[identity.DATABASE_USER] = user
        arrays.send_by(connection)
        connection.adapters.register_loader("numeric", NumericLoader)
        if json_as_text:
            # JSON stays the text that was stored: its bytes are hashed.
            connection.adapters.register_loader("json", TextLoader)
        if repeating:
            connection.prepare_threshold = 0
        if planned_once:
            # And not anew for the values of each time as long as that looks cheaper: to plan these
            # takes as long as to carry them out.
            connection.execute("SET plan_cache_mode = force_generic_plan")
        if read_only:
            connection.execute("SET default_transaction_read_only = on")
        connection.commit()
        if read_only:
            connection.read_only = True

    return engine


def _ping_after_a_pause(engine: Engine) -> None:
    """Look whether a connection is still there only where it was idle for a while.

    Whoever writes without a pause would pay for it with each transaction.
    """

    @event.listens_for(engine, "reset")  # when it is given back
    def note(_: Any, record: ConnectionPoolEntry, __: object) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def look(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        idle_since = record.info.get(_IDLE_SINCE)
        if idle_since is None or time.monotonic() - idle_since < _PAUSE_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as exc:
            raise InvalidatePoolError from exc  # the pool makes another one


@contextmanager
def any_text(connection: Connection) -> Iterator[None]:
    """Have SQLite give texts that are no UTF-8 as well, as a text that nobody wrote.

    By default one such cell, which only tampering leaves, ends the reading of all others.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection.dbapi_connection
    raw.text_factory = _text
    try:
        yield
    finally:
        raw.text_factory = str


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"\0{data.hex()}"


class Database:
    """Connections to one database: short transactions that read, and those that write."""

    def __init__(
        self,
        url: URL,
        *,
        read_only: bool = False,
        create: bool = True,
        checked: bool = False,
        repeating: bool = False,
        planned_once: bool = False,
        identity: FileIdentity | None = None,
    ) -> None:
        """As of `make_engine`. identity: of the file, as of `SqliteFile`."""
        self.url = url
        self.read_only = read_only
        self._file = SqliteFile(url.database or "", create=create, identity=identity)
        self.engine = make_engine(
            url,
            read_only=read_only,
            create=create,
            checked=checked,
            repeating=repeating,
            planned_once=planned_once,
            file=self._file,
        )
        self._repeating = repeating
        self._writers = self.engine.execution_options(writes=True)
        self._idle: list[Connection] = []  # a connection that wrote, kept for who writes next

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def identity(self) -> FileIdentity | None:
        """Of the file that was opened; None for a server, and before."""
        return self._file.identity

    def connect(self) -> Connection:
        """A connection with one consistent view of the database; closing it rolls back."""
        with translated(self.url):
            connection = self.engine.connect()
            try:
                if not self.is_sqlite:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                connection.begin()
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of the database for the length of the block."""
        with translated(self.url), self.connect() as connection:
            yield connection
            if self._repeating:
                # At a rollback Postgres' driver lets go of all statements that it has prepared.
                connection.commit()

    @contextmanager
    def writing(self, *, together: bool = False) -> Iterator[Connection]:
        """One transaction: all of the block or nothing of it.

        together: on Postgres, statements whose answers are not read are not waited for, up to the
        commit.
        """
        if self.read_only:
            raise Unavailable("the database is open for reading only")
        with translated(self.url):
            connection = self._writer()
            try:
                with bulk.together(connection) if together else nullcontext(), connection.begin():
                    yield connection
            except BaseException:
                connection.close()  # the pool finds out whether it is still good
                raise
            self._keep(connection)

    def writing_ahead(self, write: Callable[[Connection], R]) -> Future[R]:
        """What `write` does, as one transaction whose commit another thread waits for.

        The future has what `write` gave when it is committed. On Postgres what `write` sent last is
        carried out meanwhile, too. Nothing else is done there: it is one call that waits; whatever
        makes many small ones would wait for the interpreter before each.
        """
        if self.read_only:
            raise Unavailable("the database is open for reading only")
        begun = threading.Event()
        with translated(self.url):
            connection = self._writer()
            try:
                with ExitStack() as stack:
                    transaction = connection.begin()
                    stack.enter_context(bulk.together(connection))
                    written = write(connection)
                    sent = stack.pop_all()
            except BaseException:
                connection.close()  # which rolls back
                raise
        future = self._committers.submit(self._commit, transaction, sent, written, begun)
        # The other thread has the interpreter until its call waits; it would get it much later if
        # the caller went on at once.
        begun.wait()
        return future

    def _commit(
        self, transaction: RootTransaction, sent: ExitStack, written: R, begun: threading.Event
    ) -> R:
        connection = transaction.connection
        with translated(self.url):
            try:
                with sent, transaction:  # which is rolled back where it cannot be committed
                    begun.set()
            except BaseException:
                connection.close()
                raise
        self._keep(connection)
        return written

    @cached_property
    def _committers(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(thread_name_prefix="commit")

    def checkpoint(self) -> int | None:
        """Copy what is in SQLite's log into its file, while others read and write.

        What was written since somebody began to read stays in the log until they end: gives how
        many bytes that are; None where another process is about to copy it.

        A commit that finds the log long does so too, and whoever waits for the commit waits for
        all of it.

        Source: SQLite documentation, "Write-Ahead Logging", "Checkpointing".
        """
        with (
            translated(self.url),
            self.engine.connect() as connection,
            bulk.Driver(connection, _CHECKPOINT) as cursor,
        ):
            # The log in its place may have become that of another file.
            connection.info[_FILE].check()
            # Once more for what was written meanwhile, which is little: only a log of which all is
            # copied begins anew.
            for _ in range(2):
                busy, pages, copied = cursor.execute(_CHECKPOINT).fetchone()
            (size,) = cursor.execute("PRAGMA page_size").fetchone()
            return None if busy else int((pages - copied) * size)

    def _writer(self) -> Connection:
        # One step each: other threads write too.
        try:
            return self._idle.pop()
        except IndexError:
            return self._writers.connect()

    def _keep(self, connection: Connection) -> None:
        """Keep it for the next transaction: getting one anew takes as long as several statements.

        Only that of a file, which is looked at when a transaction begins: what became of a
        server's while it was idle, the pool finds out.
        """
        if self.is_sqlite and not self._idle:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        if "_committers" in vars(self):
            self._committers.shutdown()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self.engine.dispose()
