"""Indexes that hold all that the saved queries read, in the order in which these group it.

Each takes the place of a narrower one: a decision has as many index rows to write as before.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_WIDER: tuple[tuple[str, str, tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        "victims",
        "ix_victims_who_preempts_whom",
        ("cluster_id", "preemptor_namespace", "namespace", "evicted", "now_ms", "run_seconds"),
        "ix_victims_who_preempts_whom",
        (
            *("cluster_id", "preemptor_namespace", "namespace", "owner", "evicted", "now_ms"),
            "run_seconds",
        ),
    ),
)
"""Of each table: an index with its columns, and the one that takes its place."""


def upgrade() -> None:
    for table, narrow, _, wide, columns in _WIDER:
        op.drop_index(narrow, table)
        op.create_index(wide, table, list(columns))


def downgrade() -> None:
    for table, narrow, columns, wide, _ in _WIDER:
        op.drop_index(wide, table)
        op.create_index(narrow, table, list(columns))
