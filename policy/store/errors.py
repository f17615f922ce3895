"""What can go wrong between the product and its database, told without driver or secrets."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from policy.text.system import explained, whose

if TYPE_CHECKING:
    from policy.store.observed import ClusterIdentity


class StoreError(Exception):
    """`message` says what is wrong, `help` what to do about it.

    As it is, it is about the installation: a file, a database or a role that an operator named.
    What may come of a request has a class of its own below, which says whose fault it is.
    """

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class NotFound(StoreError):
    """The database holds nothing under that name."""


class InvalidValue(StoreError):
    """A value that was given cannot be used; another one may."""


class NoReader(StoreError):
    """Queries of users' own need a connection that can do nothing but read; this one can do more.

    The message says what.
    """


class Conflict(StoreError):
    """What was asked for does not go with what the database holds now."""


class DamagedRows(StoreError):
    """Rows of the record are not those that were written."""


class Unavailable(StoreError):
    """The database cannot do it now. The message names the database, and where it is."""


class ConnectionLost(Unavailable):
    """The connection broke. What was being committed is in the database, or it is not."""


class StaleRevision(Conflict):
    """The cluster moved on since the snapshot was taken: decide again on the new state."""

    def __init__(self, *, cluster: str, expected: int, actual: int) -> None:
        what = f"the decision was made on {expected}" if actual != expected else "made by others"
        super().__init__(
            f"cluster `{cluster}` is at revision {actual}, {what}",
            help="load the changes since then and decide again",
        )
        self.cluster = cluster
        self.expected = expected
        self.actual = actual


class PodsGone(Conflict):
    """Pods that were taken for new ones were in the cluster, and have left it."""

    def __init__(self, pods: Collection[tuple[str, str]]) -> None:
        """pods: key (namespace/name) and uid of each."""
        super().__init__(f"gone are {', '.join(sorted(f'`{key}`' for key, _ in pods))}")
        self.pods = frozenset(pods)


class AlreadyWritten(Conflict):
    """What was to be written once was written before, under the same key; nothing is written."""


class ImportConflict(InvalidValue):
    """One import holds two different objects of the same kind and key."""

    def __init__(self, *, kind: str, key: str, first: int, second: int) -> None:
        super().__init__(
            f"{kind} `{key}` occurs twice with different content "
            f"(objects {first + 1} and {second + 1})",
            help="keep one of them; where two dumps overlap, import the older one first",
        )
        self.kind = kind
        self.key = key
        self.first = first
        self.second = second


class OtherCluster(Conflict):
    """What is to be written comes from another cluster than what is there under the name."""

    def __init__(self, *, name: str, known: ClusterIdentity, found: ClusterIdentity) -> None:
        super().__init__(
            f"cluster `{name}` of the database is the one at {known.server}, and {found.server} is"
            f" another one: the uids of their namespaces kube-system are {known.uid} and"
            f" {found.uid}",
            help="keep the other one apart, under a name of its own: `--cluster NAME`",
        )


class OtherPast(Conflict):
    """The record is no longer the one that was written, as after a backup was restored."""

    def __init__(self, *, cluster: str, revision: int) -> None:
        super().__init__(
            f"revision {revision} of cluster `{cluster}` is not in the database any more, or is"
            " another one there, as after a backup was restored",
            help="start it again: it goes on from what is there",
        )


class NoActiveRules(Conflict):
    """An environment has never had an active rule set."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"environment `{environment}` has no active rule set",
            help=f'activate one: `policy env activate {environment} RULES --reason "..."`',
        )


def shown(url: URL) -> str:
    """The database as it may be printed: a file by its path, a server without password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    public = {k: v for k, v in url.query.items() if k in {"host", "port", "sslmode"}}
    plain = url.set(drivername="postgresql", query=public)
    return plain.render_as_string(hide_password=True)


def _secrets(url: URL) -> list[str]:
    values = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if "password" in name.lower():
            values.extend([value] if isinstance(value, str) else value)
    return [v for v in values if v]


def first_line(error: BaseException, url: URL) -> str:
    """The driver's own words, shortened to what a person needs and free of passwords."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    line = lines[0].strip() if lines else type(cause).__name__
    for secret in _secrets(url):
        line = line.replace(secret, "***")
    return _BESIDES.sub("", line).strip().rstrip(".")


_BESIDES: Final = re.compile(
    r"^(?:ERROR: |connection failed: |connection is bad: )| at character \d+$"
)


def sqlstate(error: SQLAlchemyError) -> str:
    """Postgres' code for an error; empty where there is none."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    return getattr(cause, "sqlstate", None) or ""


def connection_lost(error: SQLAlchemyError) -> bool:
    """A connection that was there is there no more."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Database errors of the block as StoreError; SQLite's `interrupted` as KeyboardInterrupt."""
    try:
        yield
    except SQLAlchemyError as exc:
        if str(getattr(exc, "orig", "")) == "interrupted":
            # The signal came while SQLite worked, which swallowed it; see `connection`.
            raise KeyboardInterrupt from exc
        raise _translate(_failed_first(exc), url) from exc


def _failed_first(exc: SQLAlchemyError) -> SQLAlchemyError:
    """What made a transaction fail, where that is taken back while statements are under way.

    Postgres lets those fail, too, that were sent behind the one that failed, and psycopg says no
    more than that of them.
    """
    found: BaseException | None = exc
    while found is not None and _only_followed(found):
        found = found.__cause__ or found.__context__
    return found if isinstance(found, SQLAlchemyError) else exc


def _only_followed(exc: BaseException) -> bool:
    of_driver = getattr(exc, "orig", exc)
    return type(of_driver).__name__ == "PipelineAborted"


def _translate(exc: SQLAlchemyError, url: URL) -> Unavailable:
    line = first_line(exc, url)
    where = shown(url)
    lowered = line.lower()
    if connection_lost(exc):
        return ConnectionLost(f"database `{where}`: {line}", help=_connecting_help(exc, lowered))
    if "database is locked" in lowered:
        return Unavailable(
            f"database `{where}` stayed locked by another process",
            help="try again when the other process has finished",
        )
    if "due to statement timeout" in lowered:
        return Unavailable(
            f"database `{where}` did not execute a statement in time",
            help="it may wait for a lock: `SELECT * FROM pg_locks WHERE NOT granted` lists those",
        )
    if "disk is full" in lowered or "no space left" in lowered:
        return Unavailable(f"no room left for database `{where}`", help="free some disk space")
    if "readonly database" in lowered or "unable to open database file" in lowered:
        refused = _refused(url)
        if refused is not None:
            return refused
    if "readonly database" in lowered or "read-only transaction" in lowered:
        return Unavailable(f"database `{where}` is open for reading only")
    if "not a database" in lowered or "malformed" in lowered or "file is encrypted" in lowered:
        return Unavailable(
            f"`{where}` is damaged or no SQLite database", help="name another file with --db"
        )
    return Unavailable(f"database `{where}`: {line}", help=_connecting_help(exc, lowered))


def _refused(url: URL) -> Unavailable | None:
    """The right to SQLite's file, or to its folder, that is missing: SQLite does not say which."""
    path = Path(shown(url))
    folder = path.absolute().parent
    for place, mode, what in (
        (path, os.R_OK | os.W_OK, "the file"),
        (folder, os.W_OK | os.X_OK, f"SQLite writes beside the file, and its folder `{folder}`"),
    ):
        effective = os.access in os.supports_effective_ids
        if not place.exists() or os.access(place, mode, effective_ids=effective):
            continue
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            said = explained(OSError(errno.EROFS, ""))
            return Unavailable(f"database `{path}`: {said.message}", help=said.help)
        right = f"the right to read and write `{place}`"
        owner = whose(place, what)
        if owner is None:
            return Unavailable(
                f"database `{path}`: permission denied", help=f"its user needs {right}"
            )
        return Unavailable(
            f"database `{path}`: permission denied: {owner.message}",
            help=f"{owner.help}, or have it given {right}",
        )
    return None


_CONNECTING: Final = (
    (
        r"password authentication failed|no password supplied|\bpam authentication failed",
        "check the user and the password in --db or POLICY_DB; a password may also stand in"
        " PGPASSWORD or in ~/.pgpass",
    ),
    (
        r"authentication failed|certificate authentication",
        "connect as the role that the server's pg_hba.conf expects for this user",
    ),
    (
        r"no encryption|ssl off|ssl connection is required|requires ssl",
        "the server may want TLS: add `?sslmode=require` to the URL; otherwise its pg_hba.conf has"
        " no line for this user and database",
    ),
    (
        r"server does not support ssl",
        "the server has no TLS: set `sslmode=prefer` where an unencrypted connection is safe",
    ),
    (
        r"certificate|ssl error|sslmode|tls",
        "check `sslmode`, `sslrootcert` and the server's name in the URL",
    ),
    (
        r"pg_hba\.conf",
        "the server's pg_hba.conf has no line that lets this user and host into this database",
    ),
    (
        r"database .* does not exist",
        "make it with `createdb`, or name another one in --db or POLICY_DB",
    ),
    (
        r"role .* (?:does not exist|is not permitted to log in)",
        "name a role that may log in: `postgresql://ROLE@host/name`",
    ),
    (
        r"permission denied for database",
        "the role needs CONNECT on the database",
    ),
    (
        r"failed to resolve|could not translate host name|name or service not known",
        "check the host name in --db or POLICY_DB",
    ),
    (
        r"too many (?:clients|connections)|connection slots|connection limit",
        "try again when other connections are closed",
    ),
    (
        r"starting up|shutting down|recovery mode",
        "try again when the server has started",
    ),
    (
        r"timeout expired|timed out|no route to host|network is unreachable",
        "check host and port in --db or POLICY_DB, and that no firewall is between",
    ),
    (
        r"connection refused|no such file or directory|is the server running",
        "check host and port in --db or POLICY_DB, and that the server is running",
    ),
    (
        r"invalid connection option|invalid .* value|service",
        "check what stands behind `?` in the URL; the names are those of libpq",
    ),
)
"""What the driver or the server says about a connection that was not made, and what to do."""

_CONNECTING_OTHERWISE: Final = (
    "check user, host, port and database in --db or POLICY_DB, and that the server is running"
)


def _connecting_help(exc: SQLAlchemyError, lowered: str) -> str:
    """What to do about a Postgres connection that was not made, or is no more; else empty."""
    if not isinstance(exc, DBAPIError) or "psycopg" not in type(exc.orig).__module__:
        return ""
    if exc.connection_invalidated:
        return "the server ended the connection: run it again; what was committed stays"
    if exc.statement is not None:
        return ""
    return next(
        (advice for pattern, advice in _CONNECTING if re.search(pattern, lowered)),
        _CONNECTING_OTHERWISE,
    )
