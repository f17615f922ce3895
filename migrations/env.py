"""Alembic environment: on the connection that `policy.store.migrate` gives, else on `-x db=URL`."""

from __future__ import annotations

import os
from typing import Any

from alembic import context
from sqlalchemy import Connection

from policy.store import types
from policy.store.connection import make_engine, parse_url
from policy.store.migrate import VERSION_TABLE
from policy.store.tables import METADATA
from policy.store.tables.base import name_conditions_for_postgres


def render_item(kind: str, item: Any, autogen_context: Any) -> str | bool:
    """House types by their own name, so that a migration reads like the tables."""
    if kind == "type" and type(item).__module__ == types.__name__:
        autogen_context.imports.add("from policy.store import types")
        return f"types.{type(item).__name__}()"
    return False


name_conditions_for_postgres()


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        render_as_batch=True,
        render_item=render_item,
        compare_type=True,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.get_x_argument(as_dictionary=True).get("db") or os.environ.get("POLICY_DB")
    engine = make_engine(parse_url(url or "policy.db"), migrating=True)
    with engine.connect() as own, own.begin():
        run(own)
    engine.dispose()
