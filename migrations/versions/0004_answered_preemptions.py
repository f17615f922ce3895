"""A preemption that the service answered is in the views once: as the decision.

What a follower observes of it keeps its row, its evidence and the verdict `answered`, and is left
out of `v_preemptions` and `v_victims`.
"""

from __future__ import annotations

from types import ModuleType

from alembic import context, op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_VIEWS = ("v_preemptions", "v_victims")


def upgrade() -> None:
    first = _first()
    _make(first, f"{first.NOT_REPLACED} AND o.verdict <> 'answered'")


def downgrade() -> None:
    first = _first()
    _make(first, first.NOT_REPLACED)


def _first() -> ModuleType:
    """The revision that has the views; no other one changes them."""
    return context.script.get_revision("0001").module


def _make(first: ModuleType, counts: str) -> None:
    """Make the views anew; counts: which observations are in them."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    words = first.SQLITE if sqlite else first.POSTGRES
    for name in _VIEWS:
        query = getattr(first, name)(words)
        if query.count(first.NOT_REPLACED) != 1:
            raise AssertionError(f"view {name} has observations in another way than is known")
        if sqlite:
            op.execute(f"DROP VIEW {name}")
        make = "CREATE VIEW" if sqlite else "CREATE OR REPLACE VIEW"
        op.execute(f"{make} {name} AS {query.replace(first.NOT_REPLACED, counts)}")
