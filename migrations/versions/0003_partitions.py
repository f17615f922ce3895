"""Decisions and what belongs to them in partitions by month, on Postgres.

A file of SQLite stays as it is: it has no partitions. On Postgres the rows of every month but the
newest that there is move into a partition of their own.
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
    if connection.dialect.name != "postgresql":
        return
    partitions.make_partitioned(connection)
    newest = partitions.newest_month(connection)
    while newest and partitions.complete_month(connection, before=newest):
        pass


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        partitions.make_plain(connection)
