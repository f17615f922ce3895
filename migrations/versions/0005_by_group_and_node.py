"""Indexes for the cycles of one pod group, and for what was evicted from one node."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_WHOLE = (
    ("ix_sessions_subject_id", "sessions", ("subject", "id")),
    (
        "ix_observed_victims_cluster_id_node_now_ms",
        "observed_victims",
        ("cluster_id", "node", "now_ms"),
    ),
)
_EVICTIONS = "ix_session_steps_evictions_by_node"
_EVICTED = text("operation = 'evict' AND reason = ''")


def upgrade() -> None:
    for name, table, columns in _WHOLE:
        op.create_index(name, table, list(columns))
    op.create_index(
        _EVICTIONS,
        "session_steps",
        ["node", "session_id"],
        sqlite_where=_EVICTED,
        postgresql_where=_EVICTED,
    )


def downgrade() -> None:
    op.drop_index(_EVICTIONS, "session_steps")
    for name, table, _ in reversed(_WHOLE):
        op.drop_index(name, table)
