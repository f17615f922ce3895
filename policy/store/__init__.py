"""The database behind the product, SQLite or Postgres: the only place with SQL.

`Store` is the whole of it; what goes in and comes out is plain immutable data.
"""

from __future__ import annotations

from policy.decision.record import Keep
from policy.store.errors import ImportConflict, NotFound, StaleRevision, StoreError
from policy.store.ledger.entries import LedgerHead
from policy.store.ledger.findings import Finding, Harm, Pruning, VerifyResult
from policy.store.ledger.pruning import PrunedCluster, PrunePlan
from policy.store.ledger.witnesses import KeptHead
from policy.store.migrate import Check, Schema, check, current, downgrade, upgrade
from policy.store.model import (
    ActivationRow,
    Cause,
    Change,
    ChangedState,
    ChangesSince,
    ClusterRow,
    Counts,
    DecisionRow,
    EnvironmentRow,
    ImportResult,
    LoadedState,
    NominationEnd,
    NominationRow,
    PruneScope,
    QueueInfo,
    Recorded,
    RecordedSession,
    RevisionRow,
    SessionRecord,
    SessionRow,
    SessionStep,
    StoredDecision,
    StoredSession,
    StrayPods,
)
from policy.store.read.sql import SqlResult
from policy.store.record.basis import SnapshotMismatch
from policy.store.record.decisions import HypotheticalDecision
from policy.store.record.importing import Progress
from policy.store.store import Store

__all__ = [
    "ActivationRow",
    "Cause",
    "Change",
    "ChangedState",
    "ChangesSince",
    "Check",
    "ClusterRow",
    "Counts",
    "DecisionRow",
    "EnvironmentRow",
    "Finding",
    "Harm",
    "HypotheticalDecision",
    "ImportConflict",
    "ImportResult",
    "Keep",
    "KeptHead",
    "LedgerHead",
    "LoadedState",
    "NominationEnd",
    "NominationRow",
    "NotFound",
    "Progress",
    "PrunePlan",
    "PruneScope",
    "PrunedCluster",
    "Pruning",
    "QueueInfo",
    "Recorded",
    "RecordedSession",
    "RevisionRow",
    "Schema",
    "SessionRecord",
    "SessionRow",
    "SessionStep",
    "SnapshotMismatch",
    "SqlResult",
    "StaleRevision",
    "Store",
    "StoreError",
    "StoredDecision",
    "StoredSession",
    "StrayPods",
    "VerifyResult",
    "check",
    "current",
    "downgrade",
    "upgrade",
]
