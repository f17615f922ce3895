"""The cycles of one pod group are found by an index."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_INDEX = "ix_sessions_subject_id"


def upgrade() -> None:
    op.create_index(_INDEX, "sessions", ["subject", "id"])


def downgrade() -> None:
    op.drop_index(_INDEX, "sessions")
