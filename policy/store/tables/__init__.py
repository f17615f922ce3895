"""The tables, whose names are part of the public interface: people query them with SQL."""

from __future__ import annotations

from policy.store.tables.audit import (
    ACTIVATIONS,
    ENVIRONMENTS,
    LEDGER,
    PRUNINGS,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
)
from policy.store.tables.base import METADATA, covered
from policy.store.tables.decisions import (
    CANDIDATES,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_FILTERS,
    DECISION_RULES,
    DECISION_TRACES,
    DECISIONS,
    EXTENDER_CALLS,
    RULE_SETS,
    VICTIMS,
)
from policy.store.tables.state import (
    CLUSTERS,
    NOMINATION_ENDS,
    NOMINATIONS,
    PODS,
    REVISIONS,
    VERSIONS,
)

__all__ = [
    "ACTIVATIONS",
    "CANDIDATES",
    "CLUSTERS",
    "CYCLES",
    "DECISIONS",
    "DECISION_CHILDREN",
    "DECISION_FILTERS",
    "DECISION_RULES",
    "DECISION_TRACES",
    "ENVIRONMENTS",
    "EXTENDER_CALLS",
    "LEDGER",
    "METADATA",
    "NOMINATIONS",
    "NOMINATION_ENDS",
    "PODS",
    "PRUNINGS",
    "REVISIONS",
    "RULE_SETS",
    "SESSIONS",
    "SESSION_STEPS",
    "STEP_EVICTED",
    "VERSIONS",
    "VICTIMS",
    "covered",
]
