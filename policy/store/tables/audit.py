"""Environments and activations, batch sessions, and the ledger that covers all rows."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index, PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy import text as sql

from policy.store.tables.base import (
    boolean,
    identity,
    int64,
    json,
    millis,
    partial,
    table,
    text,
    written_by,
)

ENVIRONMENTS: Final = table(
    "environments",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("name"),
    millis("created_ms"),
    text("created_by"),
    *written_by(),
    UniqueConstraint("name"),
    Index(None, "cluster_id"),
)

ACTIVATIONS: Final = table(
    "activations",
    identity(),
    int64("environment_id", ForeignKey("environments.id")),
    int64("rule_set_id", ForeignKey("rule_sets.id")),
    int64("previous_rule_set_id", ForeignKey("rule_sets.id"), nullable=True),
    millis("at_ms"),
    text("actor"),
    text("reason"),
    text("source"),
    json("proofs", nullable=True),
    *written_by(),
    Index(None, "environment_id", "id"),
    Index(None, "rule_set_id"),
)

SCHEDULERS: Final = table(
    "schedulers",
    identity(),
    int64("environment_id", ForeignKey("environments.id")),
    text("profile"),
    int64("rule_set_id", ForeignKey("rule_sets.id"), nullable=True),
    millis("at_ms"),
    text("actor"),
    text("source"),
    json("notices"),
    *written_by(),
    Index(None, "environment_id", "id"),
    Index(None, "rule_set_id"),
)

IDEMPOTENCY_KEYS: Final = table(
    "idempotency_keys",
    text("principal"),
    text("operation"),
    text("key"),
    text("request_digest"),
    millis("at_ms"),
    int64("status", nullable=True),
    text("answer"),
    PrimaryKeyConstraint("principal", "operation", "key"),
    Index(None, "at_ms"),
    clustered=True,
)

STEP_EVICTED: Final = sql("operation = 'evict' AND reason = ''")
"""Evictions among the steps that were neither refused nor taken back.

Literally as the index has it: SQLite uses a partial index only where a query has its condition.
"""
STEP_BOUND: Final = sql("operation = 'bind' AND reason = ''")
"""Steps that bound a pod, among those that were neither refused nor taken back."""
SESSIONS: Final = table(
    "sessions",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("kind"),
    text("subject"),
    text("outcome"),
    text("digest"),
    millis("at_ms"),
    millis("now_ms"),
    text("actor"),
    text("environment"),
    int64("rule_set_id", ForeignKey("rule_sets.id")),
    text("snapshot_digest"),
    int64("base_revision"),
    int64("revision", nullable=True),
    int64("seed"),
    int64("bound_count"),
    int64("evicted_count"),
    boolean("hypothetical"),
    text("engine_version"),
    json("document"),
    *written_by(),
    Index(None, "cluster_id", "id"),
    # For the figures of the past.
    Index(None, "cluster_id", "now_ms"),
    Index(None, "now_ms"),
    Index(None, "rule_set_id"),
    # For the cycles of one pod group.
    Index(None, "subject", "id"),
    unique_for_ever=True,
)

SESSION_STEPS: Final = table(
    "session_steps",
    int64("session_id", ForeignKey("sessions.id")),
    int64("position"),
    text("action"),
    text("operation"),
    text("queue"),
    text("job"),
    text("task"),
    text("node"),
    text("for_task"),
    text("reason"),
    json("detail"),
    PrimaryKeyConstraint("session_id", "position"),
    # The evictions that took effect, for the views, and covering for the figures of the past:
    # SQLite would else read all steps of a session, of which those in vain are by far the most.
    partial(
        "ix_session_steps_evictions",
        "session_id",
        "for_task",
        "task",
        "operation",
        "reason",
        where=STEP_EVICTED,
    ),
    # For the page of a node.
    partial(
        "ix_session_steps_evictions_by_node",
        "node",
        "session_id",
        where=STEP_EVICTED,
    ),
    clustered=True,
)

SESSION_OUTCOMES: Final = table(
    "session_outcomes",
    # No foreign key, as with those of decisions: the row belongs to its revision.
    int64("session_id"),
    int64("position"),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("pod"),
    text("outcome"),
    text("reason"),
    int64("revision"),
    millis("at_ms"),
    PrimaryKeyConstraint("session_id", "position"),
    Index(None, "cluster_id", "revision"),
    clustered=True,
)
"""What became of evictions of sessions, where a later state of the cluster contradicts them."""

PRUNINGS: Final = table(
    "prunings",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    millis("at_ms"),
    text("actor"),
    millis("older_than_ms"),
    int64("last_sequence"),
    text("last_hash"),
    int64("last_revision"),
    int64("decision_count"),
    int64("version_count"),
    text("checkpoint_digest"),
    *written_by(),
    Index(None, "cluster_id", "id"),
    unique_for_ever=True,
)

LEDGER: Final = table(
    "ledger",
    int64("cluster_id", ForeignKey("clusters.id")),
    int64("sequence"),
    int64("format"),
    text("kind"),
    int64("revision", nullable=True),
    int64("decision_id", ForeignKey("decisions.id"), nullable=True),
    int64("session_id", ForeignKey("sessions.id"), nullable=True),
    int64("environment_id", ForeignKey("environments.id"), nullable=True),
    int64("activation_id", ForeignKey("activations.id"), nullable=True),
    int64("pruning_id", ForeignKey("prunings.id"), nullable=True),
    int64("observation_id", ForeignKey("observations.id"), nullable=True),
    int64("gap_id", ForeignKey("gaps.id"), nullable=True),
    int64("simulation_id", ForeignKey("simulations.id"), nullable=True),
    int64("scheduler_id", ForeignKey("schedulers.id"), nullable=True),
    text("subject_digest"),
    text("rows_digest"),
    millis("at_ms"),
    text("actor"),
    text("environment"),
    text("previous"),
    text("hash"),
    *written_by(),
    PrimaryKeyConstraint("cluster_id", "sequence"),
    UniqueConstraint("cluster_id", "previous"),
    UniqueConstraint("hash"),
    UniqueConstraint("decision_id"),
    Index(None, "cluster_id", "revision"),
)
