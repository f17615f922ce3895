"""The criterion that ruled a candidate out is called by that: `eliminated_by`."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE candidates RENAME COLUMN left_behind_at TO eliminated_by")


def downgrade() -> None:
    op.execute("ALTER TABLE candidates RENAME COLUMN eliminated_by TO left_behind_at")
