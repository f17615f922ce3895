"""The database behind the product, SQLite or Postgres: the only place with SQL.

`Store` is the whole of it; what goes in and comes out is plain immutable data.
Names are imported when first used: who reads a list does not load what verifies or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy import lazy

if TYPE_CHECKING:
    from policy.store.errors import (
        Conflict,
        DamagedRows,
        ImportConflict,
        InvalidValue,
        NoReader,
        NotFound,
        OtherCluster,
        StaleRevision,
        StoreError,
        Unavailable,
    )
    from policy.store.ledger.entries import LedgerHead
    from policy.store.ledger.findings import Finding, Pruning, TamperKind
    from policy.store.ledger.pruning import PrunedCluster, PrunePlan
    from policy.store.ledger.witnesses import KeptHead
    from policy.store.migrate import check, current, downgrade, upgrade
    from policy.store.model.decisions import (
        CallAnswer,
        CallMode,
        DecisionRow,
        NominationRow,
        Origin,
        QueueInfo,
        Recorded,
        ServedCall,
        StoredDecision,
    )
    from policy.store.model.environments import (
        ActivationRow,
        EnvironmentRow,
        Proofs,
        ProvedClaim,
        SchedulerRow,
    )
    from policy.store.model.sessions import SessionRecord, SessionRow, SessionStep, StoredSession
    from policy.store.model.state import (
        Cause,
        ChangesSince,
        ImportCounts,
        ImportResult,
        LoadedState,
        PruneScope,
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
    "Conflict",
    "DamagedRows",
    "DecisionRow",
    "EnvironmentRow",
    "Finding",
    "HypotheticalDecision",
    "ImportConflict",
    "ImportCounts",
    "ImportResult",
    "InvalidValue",
    "KeptHead",
    "LedgerHead",
    "LoadedState",
    "NoReader",
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
    "Unavailable",
    "check",
    "current",
    "downgrade",
    "upgrade",
]

_HOMES = {
    "ActivationRow": "policy.store.model.environments",
    "CallAnswer": "policy.store.model.decisions",
    "CallMode": "policy.store.model.decisions",
    "Cause": "policy.store.model.state",
    "ChangesSince": "policy.store.model.state",
    "Conflict": "policy.store.errors",
    "DamagedRows": "policy.store.errors",
    "DecisionRow": "policy.store.model.decisions",
    "EnvironmentRow": "policy.store.model.environments",
    "Finding": "policy.store.ledger.findings",
    "HypotheticalDecision": "policy.store.record.decisions",
    "ImportConflict": "policy.store.errors",
    "ImportCounts": "policy.store.model.state",
    "ImportResult": "policy.store.model.state",
    "InvalidValue": "policy.store.errors",
    "NoReader": "policy.store.errors",
    "KeptHead": "policy.store.ledger.witnesses",
    "LedgerHead": "policy.store.ledger.entries",
    "LoadedState": "policy.store.model.state",
    "NominationRow": "policy.store.model.decisions",
    "NotFound": "policy.store.errors",
    "Origin": "policy.store.model.decisions",
    "OtherCluster": "policy.store.errors",
    "Proofs": "policy.store.model.environments",
    "ProvedClaim": "policy.store.model.environments",
    "PrunePlan": "policy.store.ledger.pruning",
    "PruneScope": "policy.store.model.state",
    "PrunedCluster": "policy.store.ledger.pruning",
    "Pruning": "policy.store.ledger.findings",
    "QueueInfo": "policy.store.model.decisions",
    "Recorded": "policy.store.model.decisions",
    "SchedulerRow": "policy.store.model.environments",
    "ServedCall": "policy.store.model.decisions",
    "SessionRecord": "policy.store.model.sessions",
    "SessionRow": "policy.store.model.sessions",
    "SessionStep": "policy.store.model.sessions",
    "SnapshotMismatch": "policy.store.record.basis",
    "StaleRevision": "policy.store.errors",
    "Store": "policy.store.store",
    "StoreError": "policy.store.errors",
    "StoredDecision": "policy.store.model.decisions",
    "StoredSession": "policy.store.model.sessions",
    "StrayPods": "policy.store.model.state",
    "TamperKind": "policy.store.ledger.findings",
    "Unavailable": "policy.store.errors",
    "check": "policy.store.migrate",
    "current": "policy.store.migrate",
    "downgrade": "policy.store.migrate",
    "upgrade": "policy.store.migrate",
}

__getattr__ = lazy.names(__name__, _HOMES)
