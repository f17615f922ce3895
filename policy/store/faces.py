"""From functions over a connection to the methods of a room's face.

What a room does with the database is a function whose first argument is the connection. Its face
lists the functions that the rest of the product uses; each is there as a method without that
argument, with the signature and the docstring of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from policy.store.errors import StoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

P = ParamSpec("P")
R = TypeVar("R")


class Transactions(Protocol):
    """Where the methods of a face get their connections from."""

    def reading(self) -> AbstractContextManager[Connection]: ...
    def writing(self, *, together: bool = False) -> AbstractContextManager[Connection]: ...
    def writing_ahead(self, write: Callable[[Connection], R]) -> Future[R]: ...


class OneView:
    """One connection for all reads: they see the database as it is at one instant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def reading(self) -> AbstractContextManager[Connection]:
        return nullcontext(self._connection)

    def writing(self, *, together: bool = False) -> AbstractContextManager[Connection]:
        raise StoreError("what reads the database at one instant cannot write")

    def writing_ahead(self, write: Callable[[Connection], R]) -> Future[R]:
        raise StoreError("what reads the database at one instant cannot write")


class Face:
    """What a room offers to the rest of the product."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions


def reads(query: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[Face, P], R]:
    """The query as a method that runs in one consistent view of the database."""

    @wraps(query)
    def method(face: Face, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with face._transactions.reading() as connection:
            return query(connection, *args, **kwargs)

    return method


def streams(
    query: Callable[Concatenate[Connection, P], Iterator[R]],
) -> Callable[Concatenate[Face, P], Iterator[R]]:
    """The query as a method that keeps its view of the database until the last row is taken."""

    @wraps(query)
    def method(face: Face, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        with face._transactions.reading() as connection:
            yield from query(connection, *args, **kwargs)

    return method


def writes(change: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[Face, P], R]:
    """The change as a method that is one transaction: all of it or nothing of it."""

    @wraps(change)
    def method(face: Face, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with face._transactions.writing() as connection:
            return change(connection, *args, **kwargs)

    return method


def writes_together(
    change: Callable[Concatenate[Connection, P], R],
) -> Callable[Concatenate[Face, P], R]:
    """The same for a change of which most statements have no answer that is read."""

    @wraps(change)
    def method(face: Face, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with face._transactions.writing(together=True) as connection:
            return change(connection, *args, **kwargs)

    return method


def writes_ahead(
    change: Callable[Concatenate[Connection, P], R],
) -> Callable[Concatenate[Face, P], Future[R]]:
    """The change as a method that is one transaction, whose commit another thread waits for."""

    @wraps(change)
    def method(face: Face, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return face._transactions.writing_ahead(
            lambda connection: change(connection, *args, **kwargs)
        )

    return method
