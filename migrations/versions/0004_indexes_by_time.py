"""Indexes by time over all clusters, for views of preemptions that are asked without a cluster."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_DECISIONS = "ix_decisions_preempted"
_VICTIMS = "ix_victims_now_ms"

# As the views say it: SQLite uses a partial index only where a query has its very condition.
_PREEMPTED = "outcome = 'preempt' AND NOT hypothetical"


def upgrade() -> None:
    op.create_index(
        _DECISIONS,
        "decisions",
        ["now_ms"],
        sqlite_where=text(_PREEMPTED),
        postgresql_where=text(_PREEMPTED),
    )
    op.create_index(_VICTIMS, "victims", ["now_ms"])


def downgrade() -> None:
    op.drop_index(_VICTIMS, "victims")
    op.drop_index(_DECISIONS, "decisions")
