"""An index for what was observed of one pod."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAME = "ix_observed_victims_victim_cluster_id_now_ms"
_TABLE = "observed_victims"


def upgrade() -> None:
    op.create_index(_NAME, _TABLE, ["victim", "cluster_id", "now_ms"])


def downgrade() -> None:
    op.drop_index(_NAME, _TABLE)
