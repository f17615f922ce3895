"""The database behind the product, SQLite or Postgres: the only place with SQL.

`Store` is the whole of it; what goes in and comes out is plain immutable data.
Names are imported when first used: who reads a list does not load what verifies or writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policy.decision.record import Keep
    from policy.store.errors import (
        ImportConflict,
        NotFound,
        OtherCluster,
        StaleRevision,
        StoreError,
    )
    from policy.store.ledger.entries import LedgerHead
    from policy.store.ledger.findings import Finding, Pruning, TamperKind, VerifyResult
    from policy.store.ledger.pruning import PrunedCluster, PrunePlan
    from policy.store.ledger.witnesses import KeptHead
    from policy.store.migrate import Check, Schema, check, current, downgrade, upgrade
    from policy.store.model import (
        ActivationRow,
        CallAnswer,
        CallMode,
        Cause,
        Change,
        ChangedState,
        ChangesSince,
        ClusterRow,
        DecisionRow,
        EnvironmentRow,
        ImportCounts,
        ImportResult,
        LoadedState,
        NominationEnd,
        NominationRow,
        Origin,
        Proofs,
        ProvedClaim,
        PruneScope,
        QueueInfo,
        Recorded,
        RecordedSession,
        RevisionRow,
        SchedulerRow,
        ServedCall,
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
    "CallAnswer",
    "CallMode",
    "Cause",
    "Change",
    "ChangedState",
    "ChangesSince",
    "Check",
    "ClusterRow",
    "DecisionRow",
    "EnvironmentRow",
    "Finding",
    "HypotheticalDecision",
    "ImportConflict",
    "ImportCounts",
    "ImportResult",
    "Keep",
    "KeptHead",
    "LedgerHead",
    "LoadedState",
    "NominationEnd",
    "NominationRow",
    "NotFound",
    "Origin",
    "OtherCluster",
    "Progress",
    "Proofs",
    "ProvedClaim",
    "PrunePlan",
    "PruneScope",
    "PrunedCluster",
    "Pruning",
    "QueueInfo",
    "Recorded",
    "RecordedSession",
    "RevisionRow",
    "SchedulerRow",
    "Schema",
    "ServedCall",
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
    "TamperKind",
    "VerifyResult",
    "check",
    "current",
    "downgrade",
    "upgrade",
]

_HOMES = {
    "ActivationRow": "policy.store.model",
    "CallAnswer": "policy.store.model",
    "CallMode": "policy.store.model",
    "Cause": "policy.store.model",
    "Change": "policy.store.model",
    "ChangedState": "policy.store.model",
    "ChangesSince": "policy.store.model",
    "Check": "policy.store.migrate",
    "ClusterRow": "policy.store.model",
    "ImportCounts": "policy.store.model",
    "DecisionRow": "policy.store.model",
    "EnvironmentRow": "policy.store.model",
    "Finding": "policy.store.ledger.findings",
    "TamperKind": "policy.store.ledger.findings",
    "HypotheticalDecision": "policy.store.record.decisions",
    "ImportConflict": "policy.store.errors",
    "ImportResult": "policy.store.model",
    "Keep": "policy.decision.record",
    "KeptHead": "policy.store.ledger.witnesses",
    "LedgerHead": "policy.store.ledger.entries",
    "LoadedState": "policy.store.model",
    "NominationEnd": "policy.store.model",
    "NominationRow": "policy.store.model",
    "Origin": "policy.store.model",
    "NotFound": "policy.store.errors",
    "OtherCluster": "policy.store.errors",
    "Progress": "policy.store.record.importing",
    "PrunePlan": "policy.store.ledger.pruning",
    "Proofs": "policy.store.model",
    "ProvedClaim": "policy.store.model",
    "PruneScope": "policy.store.model",
    "PrunedCluster": "policy.store.ledger.pruning",
    "Pruning": "policy.store.ledger.findings",
    "QueueInfo": "policy.store.model",
    "Recorded": "policy.store.model",
    "RecordedSession": "policy.store.model",
    "RevisionRow": "policy.store.model",
    "SchedulerRow": "policy.store.model",
    "Schema": "policy.store.migrate",
    "SessionRecord": "policy.store.model",
    "SessionRow": "policy.store.model",
    "ServedCall": "policy.store.model",
    "SessionStep": "policy.store.model",
    "SnapshotMismatch": "policy.store.record.basis",
    "SqlResult": "policy.store.read.sql",
    "StaleRevision": "policy.store.errors",
    "Store": "policy.store.store",
    "StoreError": "policy.store.errors",
    "StoredDecision": "policy.store.model",
    "StoredSession": "policy.store.model",
    "StrayPods": "policy.store.model",
    "VerifyResult": "policy.store.ledger.findings",
    "check": "policy.store.migrate",
    "current": "policy.store.migrate",
    "downgrade": "policy.store.migrate",
    "upgrade": "policy.store.migrate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
