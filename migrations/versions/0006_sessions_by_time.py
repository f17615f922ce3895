"""Evictions of batch sessions count in the figures of the past: found by cluster and time."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SESSIONS = "ix_sessions_cluster_id_now_ms"
_EVICTIONS = "ix_session_steps_evictions"
_EVICTED = "operation = 'evict' AND reason = ''"


def _evictions(*columns: str) -> None:
    op.drop_index(_EVICTIONS, "session_steps")
    op.create_index(
        _EVICTIONS,
        "session_steps",
        list(columns),
        sqlite_where=text(_EVICTED),
        postgresql_where=text(_EVICTED),
    )


def upgrade() -> None:
    op.create_index(_SESSIONS, "sessions", ["cluster_id", "now_ms"])
    # With the columns of its own condition: only so does SQLite take it for covering.
    _evictions("session_id", "for_task", "task", "operation", "reason")


def downgrade() -> None:
    _evictions("session_id", "for_task")
    op.drop_index(_SESSIONS, "sessions")
