"""Who wrote a row: the process's user and the database's, beside the name that is claimed."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, inspect

from policy.store.types import Int64, Str

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TABLES = ("environments", "activations", "sessions", "prunings", "ledger", "cycles")


def upgrade() -> None:
    bind = op.get_bind()
    for table in _TABLES:
        if "process_uid" in {column["name"] for column in inspect(bind).get_columns(table)}:
            continue
        op.add_column(table, Column("process_uid", Int64, nullable=True))
        for name in ("process_user", "database_user"):
            op.add_column(table, Column(name, Str, nullable=False, server_default=""))


def downgrade() -> None:
    """The columns stay: ledger entries cover them, and could not be verified without."""
