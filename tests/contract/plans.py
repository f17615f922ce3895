"""What a store sends to its database, and how the database goes about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, text

from policy.store import Store

Statement = tuple[str, Any]
"""Text and parameters; a list of these for a statement that is run many times."""


@contextmanager
def statements(store: Store) -> Iterator[list[Statement]]:
    """The statements that are sent to the database, transactions left out."""
    sent: list[Statement] = []

    def note(connection, cursor, statement, parameters, context, many):
        if not statement.startswith("BEGIN"):
            sent.append((statement, parameters))

    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def plan(store: Store, statement: str, parameters: Any) -> list[str]:
    """The database's plan for a statement, one line per step."""
    with store._database.writing() as connection:
        if store._database.is_sqlite:
            raw = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            return [row[3] for row in raw]
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("ANALYZE"))
        raw = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        return [row[0] for row in raw]
