"""Tables: cluster state as versions, decisions with all they looked at, the ledger.

Constraints and indexes get their names from the naming convention of the metadata.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    PrimaryKeyConstraint,
    UniqueConstraint,
)
from sqlalchemy import text as sql
from sqlalchemy.schema import SchemaItem

from policy.store.types import Bool, Int64, Json, Millis, Str

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


class Index:
    """An index, made after its table and after those above it.

    SQLAlchemy keeps the indexes of a table in no order, and where two would do, SQLite takes the
    one that was made last: databases of one schema would go about one question differently.
    """

    def __init__(self, name: str | None, *columns: str, **options: Any) -> None:
        self.name, self.columns, self.options = name, columns, options


def table(
    name: str, *items: SchemaItem | Index, clustered: bool = False, unique_for_ever: bool = False
) -> None:
    op.create_table(
        name,
        *(item for item in items if not isinstance(item, Index)),
        sqlite_strict=True,
        sqlite_with_rowid=not clustered,
        sqlite_autoincrement=unique_for_ever,
    )
    for item in items:
        if isinstance(item, Index):
            op.create_index(item.name, name, list(item.columns), **item.options)


def int64(name: str, *items: SchemaItem, **options: Any) -> Column[int]:
    return Column(name, Int64, *items, **{"nullable": False, **options})


def millis(name: str, **options: Any) -> Column[int]:
    return Column(name, Millis, **{"nullable": False, **options})


def boolean(name: str, **options: Any) -> Column[bool]:
    return Column(name, Bool, **{"nullable": False, **options})


def text(name: str, **options: Any) -> Column[str]:
    return Column(name, Str, **{"nullable": False, **options})


def json(name: str, **options: Any) -> Column[str]:
    return Column(name, Json, **{"nullable": False, **options})


def identity(name: str = "id") -> Column[int]:
    return Column(name, Int64, Identity(), primary_key=True)


def versions(name: str, *columns: Column[Any]) -> None:
    table(
        name,
        int64("cluster_id", ForeignKey("clusters.id")),
        text("key"),
        int64("valid_from"),
        int64("valid_to", nullable=True),
        *columns,
        text("digest"),
        json("manifest"),
        PrimaryKeyConstraint("cluster_id", "key", "valid_from"),
        # One version of an object is true at a time.
        Index(
            f"uq_{name}_live",
            "cluster_id",
            "key",
            unique=True,
            sqlite_where=sql("valid_to IS NULL"),
            postgresql_where=sql("valid_to IS NULL"),
        ),
        Index(None, "cluster_id", "valid_to", "valid_from"),
        Index(None, "cluster_id", "valid_from"),
    )


def create_state() -> None:
    table("clusters", identity(), text("name"), UniqueConstraint("name"))
    table(
        "revisions",
        int64("cluster_id", ForeignKey("clusters.id")),
        int64("number"),
        millis("at_ms"),
        text("source"),
        text("cause"),
        int64("put_count"),
        int64("deleted_count"),
        text("previous"),
        text("digest"),
        PrimaryKeyConstraint("cluster_id", "number"),
        Index(None, "cluster_id", "at_ms", "number"),
    )
    versions(
        "nodes",
        text("name"),
        int64("cpu_milli"),
        int64("memory_bytes"),
        int64("pod_capacity"),
        boolean("unschedulable"),
    )
    versions(
        "pods",
        text("namespace"),
        text("name"),
        text("uid"),
        text("node"),
        int64("priority"),
        text("priority_class"),
        text("phase"),
        millis("start_ms", nullable=True),
        text("nominated_node"),
        boolean("terminating"),
        text("owner"),
        int64("cpu_milli"),
        int64("memory_bytes"),
    )
    versions(
        "pod_disruption_budgets",
        text("namespace"),
        text("name"),
        text("min_available", nullable=True),
        text("max_unavailable", nullable=True),
        int64("disruptions_allowed"),
    )
    versions(
        "priority_classes",
        text("name"),
        int64("value"),
        boolean("global_default"),
        text("preemption_policy"),
    )
    versions("namespaces", text("name"))
    versions(
        "pod_groups",
        text("namespace"),
        text("name"),
        int64("min_member"),
        text("queue"),
        text("priority_class"),
        text("phase"),
    )
    versions("queues", text("name"), int64("weight"))
    versions("persistent_volumes", text("name"), text("claim"))
    versions(
        "persistent_volume_claims",
        text("namespace"),
        text("name"),
        text("volume"),
        text("storage_class"),
    )
    versions("csi_nodes", text("name"))
    table(
        "nominations",
        int64("cluster_id", ForeignKey("clusters.id")),
        int64("made_revision"),
        text("pod"),
        text("uid"),
        int64("priority"),
        text("node"),
        int64("made_decision", nullable=True),
        millis("made_ms"),
        PrimaryKeyConstraint("cluster_id", "made_revision", "pod"),
        Index(None, "cluster_id", "pod", "made_revision"),
        Index(None, "cluster_id", "node"),
        clustered=True,
    )
    table(
        "nomination_ends",
        int64("cluster_id"),
        int64("made_revision"),
        text("pod"),
        int64("ended_revision"),
        int64("ended_decision", nullable=True),
        text("cause"),
        millis("ended_ms"),
        PrimaryKeyConstraint("cluster_id", "made_revision", "pod"),
        ForeignKeyConstraint(
            ["cluster_id", "made_revision", "pod"],
            ["nominations.cluster_id", "nominations.made_revision", "nominations.pod"],
        ),
        Index(None, "cluster_id", "ended_revision"),
        clustered=True,
    )


def create_decisions() -> None:
    table(
        "rule_sets",
        identity(),
        text("digest"),
        text("name"),
        text("canonical"),
        millis("first_used_ms"),
        UniqueConstraint("digest"),
    )
    table(
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
        Index(None, "cluster_id", "id"),
        unique_for_ever=True,
    )
    table(
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
        boolean("hypothetical"),
        text("engine_version"),
        Index(None, "digest"),
        Index(None, "cluster_id", "id"),
        Index(None, "cluster_id", "now_ms"),
        Index(None, "cluster_id", "preemptor"),
        Index(None, "cluster_id", "preemptor_namespace"),
        Index(None, "cluster_id", "node"),
        Index(None, "rule_set_id"),
        # Cover the views of preemptions by hour, and by the criterion that decided.
        Index(
            "ix_decisions_hourly",
            "cluster_id",
            "outcome",
            "now_ms",
            "hypothetical",
            "victim_count",
            "pdb_violations",
        ),
        Index(
            "ix_decisions_tie_breakers",
            "cluster_id",
            "rule_set_id",
            "decided_by",
            "outcome",
            "hypothetical",
        ),
    )
    table(
        "decision_traces",
        int64("decision_id", ForeignKey("decisions.id"), primary_key=True, autoincrement=False),
        json("document"),
    )
    table(
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
    table(
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
        # Covers the view of how often each rule decided.
        Index(
            "ix_decision_rules_usage",
            "cluster_id",
            "rule_set_id",
            "section",
            "rule",
            "verdict",
            "hypothetical",
        ),
        clustered=True,
    )
    table(
        "candidates",
        int64("decision_id", ForeignKey("decisions.id")),
        int64("position"),
        text("node"),
        int64("victim_count"),
        int64("pdb_violations"),
        text("left_behind_at"),
        json("criteria_values"),
        json("victims"),
        PrimaryKeyConstraint("decision_id", "position"),
        clustered=True,
    )
    table(
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
        Index(None, "cluster_id", "now_ms", "namespace", "owner"),
        Index(None, "cluster_id", "namespace", "owner", "now_ms"),
        # Covers the view of who preempts whom.
        Index(
            "ix_victims_who_preempts_whom",
            "cluster_id",
            "preemptor_namespace",
            "namespace",
            "evicted",
            "now_ms",
            "run_seconds",
        ),
        Index(
            "ix_victims_pdb_violating",
            "cluster_id",
            "now_ms",
            sqlite_where=sql("pdb_violating"),
            postgresql_where=sql("pdb_violating"),
        ),
        clustered=True,
    )


def create_audit() -> None:
    table(
        "environments",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
        text("name"),
        millis("created_ms"),
        text("created_by"),
        UniqueConstraint("name"),
        Index(None, "cluster_id"),
    )
    table(
        "activations",
        identity(),
        int64("environment_id", ForeignKey("environments.id")),
        int64("rule_set_id", ForeignKey("rule_sets.id")),
        int64("previous_rule_set_id", ForeignKey("rule_sets.id"), nullable=True),
        millis("at_ms"),
        text("actor"),
        text("reason"),
        text("source"),
        Index(None, "environment_id", "id"),
        Index(None, "rule_set_id"),
    )
    table(
        "sessions",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
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
        text("engine_version"),
        json("document"),
        Index(None, "cluster_id", "id"),
        Index(None, "rule_set_id"),
        unique_for_ever=True,
    )
    table(
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
        clustered=True,
    )
    table(
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
        Index(None, "cluster_id", "id"),
        unique_for_ever=True,
    )
    table(
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
        text("subject_digest"),
        text("rows_digest"),
        millis("at_ms"),
        text("actor"),
        text("environment"),
        text("previous"),
        text("hash"),
        PrimaryKeyConstraint("cluster_id", "sequence"),
        UniqueConstraint("cluster_id", "previous"),
        UniqueConstraint("hash"),
        UniqueConstraint("decision_id"),
        Index(None, "cluster_id", "revision"),
    )


_TABLES = (
    "clusters",
    "revisions",
    "nodes",
    "pods",
    "pod_disruption_budgets",
    "priority_classes",
    "namespaces",
    "pod_groups",
    "queues",
    "persistent_volumes",
    "persistent_volume_claims",
    "csi_nodes",
    "nominations",
    "nomination_ends",
    "rule_sets",
    "cycles",
    "decisions",
    "decision_traces",
    "decision_filters",
    "decision_rules",
    "candidates",
    "victims",
    "environments",
    "activations",
    "sessions",
    "session_steps",
    "prunings",
    "ledger",
)


def upgrade() -> None:
    create_state()
    create_decisions()
    create_audit()


def downgrade() -> None:
    for name in reversed(_TABLES):
        op.drop_table(name)
