"""Decisions and what belongs to them in partitions by month, on Postgres.

A file of SQLite stays as it is: it has no partitions. On Postgres the tables that are there become
the partition of new decisions, without a row being moved. `policy.store.migrate.upgrade` then gives
every month but the newest that there is a partition of its own, each in a transaction of its own.
"""

from __future__ import annotations

from alembic import op

from policy.store import partitions

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        partitions.make_partitioned(connection)


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        partitions.make_plain(connection)
