"""What a store sends to its database, and how the database goes about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event, text

from policy.store import Store, bulk

Statement = tuple[str, Any]
"""Text and parameters; a list of these for a statement that is run many times."""


@contextmanager
def statements(store: Store) -> Iterator[list[Statement]]:
    """The statements that are sent to the database, transactions left out."""
    sent: list[Statement] = []

    def note(connection, cursor, statement, parameters, context, many):
        if not statement.startswith("BEGIN"):
            sent.append((statement, parameters))

    @contextmanager
    def noting(connection, statement, **how):
        with driver(connection, statement, **how) as cursor:
            yield cursor if statement.startswith("BEGIN") else _Noting(cursor, sent)

    engine, driver = store._database.engine, bulk.Driver
    event.listen(engine, "before_cursor_execute", note)
    bulk.Driver = noting
    try:
        yield sent
    finally:
        bulk.Driver = driver
        event.remove(engine, "before_cursor_execute", note)


class _Noting:
    """A cursor of the driver that writes down what is sent."""

    def __init__(self, cursor: Any, sent: list[Statement]) -> None:
        self._cursor = cursor
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        self._sent.append((statement, parameters))
        return self._cursor.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Any) -> Any:
        rows = list(parameters)
        self._sent.append((statement, rows))
        return self._cursor.executemany(statement, rows)


def plan(store: Store, statement: str, parameters: Any) -> list[str]:
    """The database's plan for a statement, one line per step."""
    with store._database.writing() as connection:
        if store._database.is_sqlite:
            raw = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            return [row[3] for row in raw]
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("ANALYZE"))
        # The store's own statements have the server's marks for values, others those of the driver.
        send = bulk.fetch if "$1" in statement else Connection.exec_driver_sql
        return [row[0] for row in send(connection, f"EXPLAIN {statement}", parameters)]
