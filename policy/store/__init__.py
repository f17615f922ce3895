"""The database behind the product, SQLite or Postgres: the only place with SQL.

`Store` is the whole of it; what goes in and comes out is plain immutable data.
Names are imported when first used: who reads a list does not load what verifies or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy import lazy

if TYPE_CHECKING:
    from policy.store.errors import (
        ImportConflict,
        NotFound,
        OtherCluster,
        StaleRevision,
        StoreError,
    )
    from policy.store.ledger.entries import LedgerHead
    from policy.store.ledger.findings import Finding, Pruning, TamperKind
    from policy.store.ledger.pruning import PrunedCluster, PrunePlan
    from policy.store.ledger.witnesses import KeptHead
    from policy.store.migrate import check, current, downgrade, upgrade
    from policy.store.model import (
        ActivationRow,
        CallAnswer,
        CallMode,
        Cause,
        ChangesSince,
        DecisionRow,
        EnvironmentRow,
        ImportCounts,
        ImportResult,
        LoadedState,
        NominationRow,
        Origin,
        Proofs,
        ProvedClaim,
        PruneScope,
        QueueInfo,
        Recorded,
        SchedulerRow,
        ServedCall,
        SessionRecord,
        SessionRow,
        SessionStep,
        StoredDecision,
        StoredSession,
        StrayPods,
    )
    from policy.store.record.basis import SnapshotMismatch
    from policy.store.record.decisions import HypotheticalDecision
    from policy.store.store import Store

__all__ = [
    "ActivationRow",
    "CallAnswer",
    "CallMode",
    "Cause",
    "ChangesSince",
    "DecisionRow",
    "EnvironmentRow",
    "Finding",
    "HypotheticalDecision",
    "ImportConflict",
    "ImportCounts",
    "ImportResult",
    "KeptHead",
    "LedgerHead",
    "LoadedState",
    "NominationRow",
    "NotFound",
    "Origin",
    "OtherCluster",
    "Proofs",
    "ProvedClaim",
    "PrunePlan",
    "PruneScope",
    "PrunedCluster",
    "Pruning",
    "QueueInfo",
    "Recorded",
    "SchedulerRow",
    "ServedCall",
    "SessionRecord",
    "SessionRow",
    "SessionStep",
    "SnapshotMismatch",
    "StaleRevision",
    "Store",
    "StoreError",
    "StoredDecision",
    "StoredSession",
    "StrayPods",
    "TamperKind",
    "check",
    "current",
    "downgrade",
    "upgrade",
]

#: where the names are defined that `policy.store.model` does not define
_HOMES = {
    "Finding": "policy.store.ledger.findings",
    "TamperKind": "policy.store.ledger.findings",
    "HypotheticalDecision": "policy.store.record.decisions",
    "ImportConflict": "policy.store.errors",
    "KeptHead": "policy.store.ledger.witnesses",
    "LedgerHead": "policy.store.ledger.entries",
    "NotFound": "policy.store.errors",
    "OtherCluster": "policy.store.errors",
    "PrunePlan": "policy.store.ledger.pruning",
    "PrunedCluster": "policy.store.ledger.pruning",
    "Pruning": "policy.store.ledger.findings",
    "SnapshotMismatch": "policy.store.record.basis",
    "StaleRevision": "policy.store.errors",
    "Store": "policy.store.store",
    "StoreError": "policy.store.errors",
    "check": "policy.store.migrate",
    "current": "policy.store.migrate",
    "downgrade": "policy.store.migrate",
    "upgrade": "policy.store.migrate",
}

__getattr__ = lazy.names(__name__, {**dict.fromkeys(__all__, "policy.store.model"), **_HOMES})
