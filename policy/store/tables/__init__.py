"""The tables, whose names are part of the public interface: people query them with SQL."""

from __future__ import annotations

from policy.store.tables.audit import (
    ACTIVATIONS,
    ENVIRONMENTS,
    IDEMPOTENCY_KEYS,
    LEDGER,
    PRUNINGS,
    SCHEDULERS,
    SESSION_OUTCOMES,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
)
from policy.store.tables.base import METADATA, covered
from policy.store.tables.decisions import (
    CANDIDATE_VIOLATIONS,
    CANDIDATES,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_FILTERS,
    DECISION_OUTCOMES,
    DECISION_RULES,
    DECISION_TRACES,
    DECISIONS,
    EXTENDER_CALLS,
    RULE_SETS,
    VICTIMS,
)
from policy.store.tables.observing import (
    CLUSTER_IDENTITIES,
    FOLLOW_POSITIONS,
    GAPS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
)
from policy.store.tables.simulating import SIMULATIONS
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
    "CANDIDATE_VIOLATIONS",
    "CLUSTERS",
    "CLUSTER_IDENTITIES",
    "CYCLES",
    "DECISIONS",
    "DECISION_CHILDREN",
    "DECISION_FILTERS",
    "DECISION_OUTCOMES",
    "DECISION_RULES",
    "DECISION_TRACES",
    "ENVIRONMENTS",
    "EXTENDER_CALLS",
    "FOLLOW_POSITIONS",
    "GAPS",
    "IDEMPOTENCY_KEYS",
    "LEDGER",
    "METADATA",
    "NOMINATIONS",
    "NOMINATION_ENDS",
    "OBSERVATIONS",
    "OBSERVED_VICTIMS",
    "PODS",
    "PRUNINGS",
    "REVISIONS",
    "RULE_SETS",
    "SCHEDULERS",
    "SESSIONS",
    "SESSION_OUTCOMES",
    "SESSION_STEPS",
    "SIMULATIONS",
    "STEP_EVICTED",
    "VERSIONS",
    "VICTIMS",
    "covered",
]
