"""Writes that name a key, so that whoever sends them again has them done once.

The processes of one database know the same keys, and none is taken twice. `take` does that before
a write begins: where the process ends in between, whether the write was done is not known. A write
that is one transaction takes its key in that (`write_once`), and is done exactly if that is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, select, text, update

from policy.store import bulk
from policy.store.errors import AlreadyWritten
from policy.store.tables import IDEMPOTENCY_KEYS

KEPT_MS: Final = 24 * 3600 * 1000
"""How long keys are known."""

_TAKE: Final = text(
    "INSERT INTO idempotency_keys (principal, operation, key, request_digest, at_ms, answer)"
    " VALUES (:principal, :operation, :key, :request_digest, :at_ms, '') ON CONFLICT DO NOTHING"
)


_TAKE_WITH_WRITE: Final = (
    "INSERT INTO idempotency_keys (principal, operation, key, request_digest, at_ms, answer)"
    " VALUES (?, ?, ?, '', ?, '') ON CONFLICT DO NOTHING RETURNING key"
)
_FORGET: Final = "DELETE FROM idempotency_keys WHERE at_ms <= ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKey:
    """What one key stands for; others may use the same text for other writes."""

    principal: str
    operation: str  #: method and path
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWrite:
    """A write whose key was taken."""

    request_digest: str
    status: int | None  #: of the answer; None where there is none (yet)
    answer: str  #: JSON; "" where there is none


def take(
    connection: Connection, place: WriteKey, *, request_digest: str, at_ms: int
) -> KnownWrite | None:
    """Take the key: None where it is ours now, else the write that it was taken for."""
    k = IDEMPOTENCY_KEYS.c
    bulk.execute(connection, _FORGET, (at_ms - KEPT_MS,))
    row = {
        "principal": place.principal,
        "operation": place.operation,
        "key": place.key,
        "request_digest": request_digest,
        "at_ms": at_ms,
    }
    done = connection.execute(_TAKE, row)
    if done.rowcount == 1:
        return None
    found = connection.execute(
        select(k.request_digest, k.status, k.answer).where(_at(place))
    ).first()
    if found is None:  # given back between the two statements
        return KnownWrite(request_digest=request_digest, status=None, answer="")
    return KnownWrite(request_digest=found.request_digest, status=found.status, answer=found.answer)


def write_once(connection: Connection, place: WriteKey, *, at_ms: int) -> None:
    """Take the key in the transaction that does its write. Raises AlreadyWritten.

    Of two transactions that are under way at once, the second one waits here for the end of the
    first: the key is there if that was committed, and free if it was not.
    """
    bulk.execute(connection, _FORGET, (at_ms - KEPT_MS,))
    values = place.principal, place.operation, place.key, at_ms
    if not bulk.fetch(connection, _TAKE_WITH_WRITE, values):
        raise AlreadyWritten(f"`{place.key}` was written before")


def is_taken(connection: Connection, place: WriteKey) -> bool:
    """Is the key known?"""
    query = select(IDEMPOTENCY_KEYS.c.key).where(_at(place))
    return connection.execute(query).first() is not None


def answered(connection: Connection, place: WriteKey, *, status: int, answer: str) -> None:
    """The write was done, and answered so."""
    values = {"status": status, "answer": answer}
    connection.execute(update(IDEMPOTENCY_KEYS).where(_at(place)).values(values))


def give_back(connection: Connection, place: WriteKey) -> None:
    """The write failed and did nothing: its key may be taken again."""
    connection.execute(delete(IDEMPOTENCY_KEYS).where(_at(place)))


def _at(place: WriteKey) -> ColumnElement[bool]:
    k = IDEMPOTENCY_KEYS.c
    return (
        (k.principal == place.principal) & (k.operation == place.operation) & (k.key == place.key)
    )
