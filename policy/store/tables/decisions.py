"""Cycles, the decisions they made, and everything that a decision looked at."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index, PrimaryKeyConstraint, Table, UniqueConstraint
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

RULE_SETS: Final = table(
    "rule_sets",
    identity(),
    text("digest"),
    text("name"),
    text("canonical", info={"elsewhere": True}),
    millis("first_used_ms"),
    UniqueConstraint("digest"),
)

CYCLES: Final = table(
    "cycles",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    millis("at_ms"),
    text("actor"),
    text("environment"),
    text("pod"),
    int64("attempt", nullable=True),
    millis("queued_ms", nullable=True),
    int64("base_revision"),
    int64("revision", nullable=True),
    *written_by(),
    unique_for_ever=True,
)

DECISIONS: Final = table(
    "decisions",
    int64("id", ForeignKey("cycles.id"), primary_key=True, autoincrement=False),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("digest"),
    millis("now_ms"),
    text("preemptor"),
    text("preemptor_namespace"),
    text("preemptor_uid"),
    int64("preemptor_priority"),
    text("outcome"),
    text("node", nullable=True),
    int64("victim_count"),
    int64("pdb_violations"),
    int64("candidate_count"),
    int64("kept_candidates"),
    text("decided_by"),
    text("nomination"),
    boolean("eligible"),
    boolean("fits"),
    text("message"),
    int64("rule_set_id", ForeignKey("rule_sets.id")),
    text("snapshot_digest"),
    int64("base_revision"),
    int64("revision", nullable=True),
    int64("seed"),
    boolean("evaluate_all"),
    text("origin"),
    boolean("hypothetical"),
    text("engine_version"),
    Index(None, "digest"),
    Index(None, "cluster_id", "id"),
    # With the id: a stretch of time becomes a stretch of ids without a look at the rows.
    Index(None, "cluster_id", "now_ms", "id"),
    # Lists are walked from the newest one back, along one of these where they are filtered.
    Index(None, "preemptor", "id"),
    Index(None, "preemptor_namespace", "outcome", "id"),
    Index(None, "node", "id"),
    Index(None, "rule_set_id", "id"),
    Index(None, "outcome", "id"),
    Index(None, "origin", "id"),
    partial("ix_decisions_hypothetical", "id", where=sql("hypothetical")),
    # Where all was looked at, pods that did not preempt have victims too.
    partial(
        "ix_decisions_would_preempt",
        "id",
        where=sql("victim_count > 0 AND outcome <> 'preempt'"),
    ),
    # For the view of preemptions by time, of all clusters.
    partial(
        "ix_decisions_preempted",
        "now_ms",
        where=sql("outcome = 'preempt' AND NOT hypothetical"),
    ),
)

DECISION_TRACES: Final = table(
    "decision_traces",
    int64("decision_id", ForeignKey("decisions.id"), primary_key=True, autoincrement=False),
    json("document"),
)

EXTENDER_CALLS: Final = table(
    "extender_calls",
    int64("decision_id", ForeignKey("decisions.id"), primary_key=True, autoincrement=False),
    text("mode"),
    text("form"),
    text("caller"),
    text("request_digest"),
    int64("request_bytes"),
    text("answer"),
    text("failure"),
    json("from_request"),
    millis("arrived_ms"),
    int64("duration_us"),
    int64("waited_us"),
    Index(None, "arrived_ms"),
)

DECISION_FILTERS: Final = table(
    "decision_filters",
    int64("decision_id", ForeignKey("decisions.id")),
    int64("position"),
    text("phase"),
    text("filter"),
    int64("code"),
    json("reasons"),
    int64("node_count"),
    PrimaryKeyConstraint("decision_id", "position"),
    clustered=True,
)

DECISION_RULES: Final = table(
    "decision_rules",
    int64("decision_id", ForeignKey("decisions.id")),
    int64("position"),
    int64("cluster_id"),
    int64("rule_set_id"),
    boolean("hypothetical"),
    text("section"),
    text("rule"),
    text("verdict"),
    text("reason"),
    json("inputs"),
    PrimaryKeyConstraint("decision_id", "position"),
    clustered=True,
)

CANDIDATES: Final = table(
    "candidates",
    int64("decision_id", ForeignKey("decisions.id")),
    int64("position"),
    text("node"),
    int64("victim_count"),
    int64("pdb_violations"),
    text("eliminated_by"),
    json("criteria_values"),
    json("victims"),
    PrimaryKeyConstraint("decision_id", "position"),
    clustered=True,
)

CANDIDATE_VIOLATIONS: Final = table(
    "candidate_violations",
    int64("decision_id", ForeignKey("decisions.id")),
    int64("position"),
    text("node"),
    text("pod"),
    text("budget"),
    int64("disruptions_allowed"),
    int64("allowed_before"),
    int64("allowed_after"),
    PrimaryKeyConstraint("decision_id", "position"),
    clustered=True,
)

VICTIMS: Final = table(
    "victims",
    int64("decision_id", ForeignKey("decisions.id")),
    int64("position"),
    int64("cluster_id"),
    millis("now_ms"),
    boolean("evicted"),
    text("preemptor_namespace"),
    text("pod"),
    text("namespace"),
    text("uid"),
    text("node"),
    int64("priority"),
    text("priority_class"),
    text("owner"),
    millis("start_ms", nullable=True),
    int64("run_seconds"),
    int64("cpu_milli"),
    int64("memory_bytes"),
    boolean("pdb_violating"),
    boolean("already_terminating"),
    text("filter"),
    json("reasons"),
    PrimaryKeyConstraint("decision_id", "position"),
    Index(None, "now_ms"),
    Index(None, "pod", "decision_id"),
    Index(None, "cluster_id", "now_ms", "namespace", "owner"),
    # Not wider: SQLite would read all of a cluster in it for figures that look at an hour.
    Index(None, "cluster_id", "namespace", "owner", "now_ms"),
    # Covers the view of who preempts whom, and the same by workload.
    Index(
        "ix_victims_who_preempts_whom",
        "cluster_id",
        "preemptor_namespace",
        "namespace",
        "owner",
        "evicted",
        "now_ms",
        "run_seconds",
    ),
    partial(
        "ix_victims_pdb_violating",
        "decision_id",
        "now_ms",
        "cluster_id",
        "namespace",
        where=sql("pdb_violating"),
    ),
    clustered=True,
)

DECISION_OUTCOMES: Final = table(
    "decision_outcomes",
    # No foreign key: the row belongs to its revision, and may outlive a decision that is pruned.
    int64("decision_id"),
    int64("position"),
    int64("cluster_id", ForeignKey("clusters.id")),
    text("pod"),
    text("outcome"),
    text("reason"),
    int64("revision"),
    millis("at_ms"),
    PrimaryKeyConstraint("decision_id", "position"),
    Index(None, "cluster_id", "revision"),
    clustered=True,
)
"""What became of decisions, where a later state of the cluster contradicts them."""

DECISION_CHILDREN: Final[tuple[Table, ...]] = (
    DECISION_TRACES,
    EXTENDER_CALLS,
    DECISION_FILTERS,
    DECISION_RULES,
    CANDIDATES,
    CANDIDATE_VIOLATIONS,
    VICTIMS,
)
"""Tables whose rows belong to one decision by `decision_id`."""
