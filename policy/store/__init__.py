"""The database behind the product, SQLite or Postgres: the only place with SQL.

`Store` is the whole of it; what goes in and comes out is plain immutable data.
"""

from __future__ import annotations

from policy.store.errors import ImportConflict, NotFound, StaleRevision, StoreError
from policy.store.importing import Progress
from policy.store.migrate import Schema, current, downgrade, upgrade
from policy.store.model import (
    Cause,
    Change,
    ChangesSince,
    ClusterRow,
    Counts,
    DecisionRow,
    ImportResult,
    LoadedState,
    NominationEnd,
    NominationRow,
    PruneScope,
    QueueInfo,
    Recorded,
    RevisionRow,
    StoredCandidate,
    StoredDecision,
    StoredFilter,
    StoredRule,
    StoredVictim,
)
from policy.store.recording import Keep
from policy.store.store import Store

__all__ = [
    "Cause",
    "Change",
    "ChangesSince",
    "ClusterRow",
    "Counts",
    "DecisionRow",
    "ImportConflict",
    "ImportResult",
    "Keep",
    "LoadedState",
    "NominationEnd",
    "NominationRow",
    "NotFound",
    "Progress",
    "PruneScope",
    "QueueInfo",
    "Recorded",
    "RevisionRow",
    "Schema",
    "StaleRevision",
    "Store",
    "StoreError",
    "StoredCandidate",
    "StoredDecision",
    "StoredFilter",
    "StoredRule",
    "StoredVictim",
    "current",
    "downgrade",
    "upgrade",
]
