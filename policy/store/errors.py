"""What can go wrong between the product and its database, told without driver or secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError


class StoreError(Exception):
    """`message` says what is wrong, `help` what to do about it."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class StaleRevision(StoreError):
    """The cluster moved on since the snapshot was taken: decide again on the new state."""

    def __init__(self, *, cluster: str, expected: int, actual: int) -> None:
        super().__init__(
            f"cluster `{cluster}` is at revision {actual}, the decision was made on {expected}",
            help="load the changes since then and decide again",
        )
        self.cluster = cluster
        self.expected = expected
        self.actual = actual


class ImportConflict(StoreError):
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


class NotFound(StoreError):
    """The database holds nothing under that name."""


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
    return line.removeprefix("ERROR:").strip().rstrip(".")


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Database errors of the block as StoreError."""
    try:
        yield
    except SQLAlchemyError as exc:
        raise _translate(exc, url) from exc


def _translate(exc: SQLAlchemyError, url: URL) -> StoreError:
    line = first_line(exc, url)
    where = shown(url)
    lowered = line.lower()
    if "database is locked" in lowered:
        return StoreError(
            f"database `{where}` stayed locked by another process",
            help="try again when the other process has finished",
        )
    if "disk is full" in lowered or "no space left" in lowered:
        return StoreError(f"no room left for database `{where}`", help="free some disk space")
    if "readonly database" in lowered or "read-only transaction" in lowered:
        return StoreError(f"database `{where}` is open for reading only")
    if "not a database" in lowered or "malformed" in lowered or "file is encrypted" in lowered:
        return StoreError(
            f"`{where}` is damaged or no SQLite database", help="name another file with --db"
        )
    return StoreError(f"database `{where}`: {line}")
