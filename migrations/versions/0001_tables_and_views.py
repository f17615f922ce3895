"""The schema of the first release: cluster state as versions, decisions with all they looked at,
the ledger that covers them, and views for the questions that people ask.

Constraints and indexes get their names from the naming convention of the metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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

# As the views say it: SQLite uses a partial index only where a query has its very condition.
PREEMPTED = "outcome = 'preempt' AND NOT hypothetical"

NOMINATED = "valid_to IS NULL AND nominated_node <> ''"

# What a scheduler was only watched for, or answered otherwise, evicted nothing and changed nothing.
OBEYED_DECISION = "(d.origin <> 'extender' OR d.revision IS NOT NULL)"
# Stands in totals for a priority that is not known.
UNKNOWN = f"CAST({-(2**63)} AS BIGINT)"
# An empty reason says that the step took effect: it was neither refused nor taken back.
EVICTED = "operation = 'evict' AND reason = ''"


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


def written_by() -> tuple[Column[Any], ...]:
    return int64("process_uid", nullable=True), text("process_user"), text("database_user")


def versions(name: str, *columns: Column[Any] | Index) -> None:
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
        Index(None, "cluster_id", "valid_from"),
        Index(
            f"ix_{name}_ended",
            *("cluster_id", "valid_to", "valid_from"),
            sqlite_where=sql("valid_to IS NOT NULL"),
            postgresql_where=sql("valid_to IS NOT NULL"),
        ),
        # One version of an object is true at a time. Behind the others: what is true now is read
        # along this one.
        Index(
            f"uq_{name}_live",
            "cluster_id",
            "key",
            unique=True,
            sqlite_where=sql("valid_to IS NULL"),
            postgresql_where=sql("valid_to IS NULL"),
        ),
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
        # What is on a node: a few pods among many.
        Index(
            "ix_pods_on_node",
            "cluster_id",
            "node",
            sqlite_where=sql("valid_to IS NULL"),
            postgresql_where=sql("valid_to IS NULL"),
        ),
    )
    # Which nominations stand: of a few pods too, so it comes behind the index of all that is true.
    op.create_index(
        "ix_pods_nominated",
        "pods",
        ["cluster_id", "key"],
        sqlite_where=sql(NOMINATED),
        postgresql_where=sql(NOMINATED),
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
    versions(
        "queues",
        text("name"),
        int64("weight"),
        int64("priority"),
        text("parent"),
        boolean("reclaimable"),
        text("state"),
    )
    versions(
        "scheduling_pod_groups",
        text("namespace"),
        text("name"),
        text("uid"),
        int64("min_count", nullable=True),
        int64("priority"),
        text("priority_class"),
        text("disruption_mode"),
        boolean("scheduled"),
    )
    versions("workloads", text("namespace"), text("name"), int64("template_count"))
    versions("resource_quotas", text("namespace"), text("name"))
    versions("persistent_volumes", text("name"), text("claim"))
    versions(
        "persistent_volume_claims",
        text("namespace"),
        text("name"),
        text("volume"),
        text("storage_class"),
    )
    versions("csi_nodes", text("name"))
    versions("storage_classes", text("name"), text("provisioner"), text("binding_mode"))
    versions("csi_drivers", text("name"))
    versions("csi_storage_capacities", text("namespace"), text("name"), text("storage_class"))
    versions("services", text("namespace"), text("name"))
    versions("replication_controllers", text("namespace"), text("name"))
    versions("replica_sets", text("namespace"), text("name"), text("owner"))
    versions("stateful_sets", text("namespace"), text("name"))
    versions("resource_claims", text("namespace"), text("name"), boolean("allocated"))
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
        *written_by(),
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
        Index(
            "ix_decisions_hypothetical",
            "id",
            sqlite_where=sql("hypothetical"),
            postgresql_where=sql("hypothetical"),
        ),
        # Where all was looked at, pods that did not preempt have victims too.
        Index(
            "ix_decisions_would_preempt",
            "id",
            sqlite_where=sql("victim_count > 0 AND outcome <> 'preempt'"),
            postgresql_where=sql("victim_count > 0 AND outcome <> 'preempt'"),
        ),
        # Preemptions by time, over all clusters.
        Index(
            "ix_decisions_preempted",
            "now_ms",
            sqlite_where=sql(PREEMPTED),
            postgresql_where=sql(PREEMPTED),
        ),
    )
    table(
        "decision_traces",
        int64("decision_id", ForeignKey("decisions.id"), primary_key=True, autoincrement=False),
        json("document"),
    )
    table(
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
        clustered=True,
    )
    table(
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
    table(
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
            "decision_id",
            "now_ms",
            "cluster_id",
            "namespace",
            sqlite_where=sql("pdb_violating"),
            postgresql_where=sql("pdb_violating"),
        ),
        Index(None, "now_ms"),
        Index(None, "pod", "decision_id"),
        clustered=True,
    )


def create_outcomes() -> None:
    table(
        "decision_outcomes",
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
    table(
        "session_outcomes",
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


def totals(name: str, *columns: Column[Any], keys: int, also: tuple[Index, ...] = ()) -> None:
    every = (int64("cluster_id", ForeignKey("clusters.id")), *columns)
    key = PrimaryKeyConstraint(*(column.name for column in every[: keys + 1]))
    table(name, *every, key, *also, clustered=True)


def create_totals() -> None:
    table(
        "evicted_workloads",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
        text("namespace"),
        text("owner"),
        UniqueConstraint("namespace", "owner", "cluster_id"),
    )
    totals(
        "eviction_totals",
        int64("day"),
        int64("workload_id"),
        text("preemptor_namespace"),
        int64("preemptor_priority"),
        int64("priority"),
        text("origin"),
        int64("evictions"),
        int64("run_seconds"),
        int64("pdb_violations"),
        keys=6,
        # The days on which a workload was hit.
        also=(Index(None, "workload_id", "preemptor_namespace", "day"),),
    )
    totals(
        "pair_totals",
        int64("workload_id"),
        text("preemptor_namespace"),
        int64("evictions"),
        int64("run_seconds"),
        int64("pdb_violations"),
        keys=2,
    )
    totals(
        "priority_totals",
        text("namespace"),
        int64("preemptor_priority"),
        int64("priority"),
        int64("evictions"),
        int64("run_seconds"),
        keys=3,
    )
    totals(
        "decision_totals",
        int64("day"),
        int64("rule_set_id"),
        text("preemptor_namespace"),
        text("outcome"),
        text("decided_by"),
        text("origin"),
        boolean("preempted"),
        int64("decisions"),
        int64("victims"),
        int64("pdb_violations"),
        keys=7,
    )
    totals(
        "rule_totals",
        int64("day"),
        int64("rule_set_id"),
        text("section"),
        text("rule"),
        text("verdict"),
        text("origin"),
        int64("decisions"),
        keys=6,
    )
    totals(
        "filter_totals",
        int64("day"),
        text("preemptor_namespace"),
        text("filter"),
        text("phase"),
        text("origin"),
        int64("decisions"),
        int64("nodes"),
        keys=5,
    )
    totals(
        "preemptor_totals",
        text("preemptor"),
        int64("preemptor_priority"),
        text("outcome"),
        text("origin"),
        boolean("preempted"),
        int64("decisions"),
        int64("victims"),
        int64("pdb_violations"),
        keys=5,
    )
    totals(
        "hour_totals",
        int64("hour"),
        text("origin"),
        int64("preemptions"),
        int64("victims"),
        int64("pdb_violations"),
        keys=2,
    )
    totals(
        "decision_spans",
        int64("thousand"),
        millis("earliest_ms"),
        millis("latest_ms"),
        keys=1,
    )


def create_simulations() -> None:
    table(
        "simulations",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
        millis("at_ms"),
        text("actor"),
        text("digest"),
        text("trace"),
        text("trace_digest"),
        int64("rule_set_id", ForeignKey("rule_sets.id")),
        int64("seed"),
        millis("start_ms"),
        millis("end_ms"),
        text("engine_version"),
        text("kept_in"),
        json("options"),
        json("result"),
        *written_by(),
        Index(None, "cluster_id", "id"),
        Index(None, "rule_set_id"),
        unique_for_ever=True,
    )


def create_observations() -> None:
    table(
        "observations",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
        millis("at_ms"),
        text("actor"),
        text("source"),
        millis("now_ms"),
        text("preemptor"),
        text("preemptor_namespace"),
        text("preemptor_uid"),
        text("preemptor_kind"),
        int64("preemptor_priority", nullable=True),
        text("node"),
        text("scheduler"),
        text("confidence"),
        int64("victim_count"),
        int64("base_revision", nullable=True),
        int64("revision"),
        text("verdict"),
        text("reason"),
        text("rule_set"),
        text("rule_set_digest"),
        text("engine_version"),
        json("evidence"),
        json("detail"),
        text("digest"),
        int64("replaces", nullable=True),
        *written_by(),
        Index(None, "digest"),
        Index(None, "cluster_id", "id"),
        Index(None, "cluster_id", "now_ms"),
        Index(None, "cluster_id", "preemptor"),
        Index(None, "cluster_id", "verdict"),
        Index(None, "replaces"),
        unique_for_ever=True,
    )
    table(
        "observed_victims",
        int64("observation_id", ForeignKey("observations.id")),
        int64("position"),
        int64("cluster_id"),
        millis("now_ms"),
        boolean("counted"),
        text("preemptor_namespace"),
        text("victim"),
        text("namespace"),
        text("uid"),
        text("node"),
        int64("priority", nullable=True),
        text("priority_class"),
        text("owner"),
        millis("start_ms", nullable=True),
        int64("run_seconds"),
        int64("cpu_milli"),
        int64("memory_bytes"),
        boolean("pdb_violating", nullable=True),
        text("evidence"),
        text("event_uid"),
        PrimaryKeyConstraint("observation_id", "position"),
        Index(None, "cluster_id", "now_ms", "namespace", "owner"),
        Index(None, "cluster_id", "namespace", "owner", "now_ms"),
        Index(None, "now_ms"),
        Index(None, "cluster_id", "event_uid"),
        Index(None, "cluster_id", "uid"),
        clustered=True,
    )
    table(
        "gaps",
        identity(),
        int64("cluster_id", ForeignKey("clusters.id")),
        millis("at_ms"),
        text("actor"),
        text("kind"),
        text("reason"),
        millis("since_ms", nullable=True),
        millis("until_ms"),
        int64("since_version"),
        int64("until_version"),
        int64("revision"),
        *written_by(),
        Index(None, "cluster_id", "id"),
        unique_for_ever=True,
    )
    table(
        "follow_positions",
        int64("cluster_id", ForeignKey("clusters.id")),
        text("kind"),
        int64("resource_version"),
        millis("at_ms"),
        PrimaryKeyConstraint("cluster_id", "kind"),
        clustered=True,
    )
    table(
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
    table(
        "cluster_identities",
        int64("cluster_id", ForeignKey("clusters.id")),
        text("uid"),
        text("server"),
        millis("at_ms"),
        PrimaryKeyConstraint("cluster_id"),
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
        *written_by(),
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
        json("proofs", nullable=True),
        *written_by(),
        Index(None, "environment_id", "id"),
        Index(None, "rule_set_id"),
    )
    table(
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
    table(
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
        Index(None, "rule_set_id"),
        # For the figures of the past.
        Index(None, "cluster_id", "now_ms"),
        Index(None, "now_ms"),
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
        # With the columns of its own condition: only so does SQLite take it for covering.
        Index(
            "ix_session_steps_evictions",
            "session_id",
            "for_task",
            "task",
            "operation",
            "reason",
            sqlite_where=sql(EVICTED),
            postgresql_where=sql(EVICTED),
        ),
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
        *written_by(),
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


TABLES = (
    "clusters",
    "revisions",
    "nodes",
    "pods",
    "pod_disruption_budgets",
    "priority_classes",
    "namespaces",
    "pod_groups",
    "queues",
    "scheduling_pod_groups",
    "workloads",
    "resource_quotas",
    "persistent_volumes",
    "persistent_volume_claims",
    "csi_nodes",
    "storage_classes",
    "csi_drivers",
    "csi_storage_capacities",
    "services",
    "replication_controllers",
    "replica_sets",
    "stateful_sets",
    "resource_claims",
    "nominations",
    "nomination_ends",
    "rule_sets",
    "cycles",
    "decisions",
    "decision_traces",
    "extender_calls",
    "decision_filters",
    "decision_rules",
    "candidates",
    "candidate_violations",
    "victims",
    "decision_outcomes",
    "session_outcomes",
    "evicted_workloads",
    "eviction_totals",
    "pair_totals",
    "priority_totals",
    "decision_totals",
    "rule_totals",
    "filter_totals",
    "preemptor_totals",
    "hour_totals",
    "decision_spans",
    "environments",
    "activations",
    "schedulers",
    "sessions",
    "session_steps",
    "prunings",
    "observations",
    "observed_victims",
    "gaps",
    "follow_positions",
    "idempotency_keys",
    "cluster_identities",
    "simulations",
    "ledger",
)


class Words(NamedTuple):
    """What the two databases say differently.

    SQLite looks into a union of views only where the columns of its parts have one affinity:
    hence the casts.
    """

    instant: Callable[[str], str]
    boolean: str
    json: str
    no: str


def sqlite_instant(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


def postgres_instant(column: str) -> str:
    instant = f"to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC'"
    return f'to_char({instant}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\')'


SQLITE = Words(sqlite_instant, "INTEGER", "TEXT", "0")
POSTGRES = Words(postgres_instant, "BOOLEAN", "JSON", "FALSE")

# Views of single rows say where SQLite shall begin: with the rows, not with the names beside them.
# It chooses the order of inner joins by its statistics, and with those of a long record it begins
# at the few clusters and rule sets: the newest fifty preemptions then cost a sort of all of them.
# An outer join to a name that every row has gives the same rows and keeps the order, and a
# condition on the name still makes it an inner one. A cross join keeps what is looked up behind
# what names it.


def at_base(name: str, key: str) -> str:
    """The pod as it was when the session `s` began.

    Its last version of then alone is looked up: a pod of a controller may have had hundreds.
    """
    return (
        f"{name}.cluster_id = s.cluster_id AND {name}.key = {key}"
        f" AND {name}.valid_from = (SELECT max(b.valid_from) FROM pods b"
        f" WHERE b.cluster_id = s.cluster_id AND b.key = {key}"
        " AND b.valid_from <= s.base_revision)"
        f" AND ({name}.valid_to IS NULL OR {name}.valid_to > s.base_revision)"
    )


# The evictions of sessions that no later state of the cluster contradicts.
STEP_CARRIED_OUT = (
    "NOT EXISTS (SELECT 1 FROM session_outcomes x WHERE x.session_id = {t}.session_id"
    " AND x.position = {t}.position)"
)


def session_evictions(*, names: str) -> str:
    """The evictions of sessions; `names` is how what every row has a name of is joined."""
    return f"""
        FROM session_steps t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods v
        CROSS JOIN pods p
        {names} clusters c ON c.id = s.cluster_id
        WHERE {EVICTED} AND {at_base("v", "t.task")} AND {at_base("p", "t.for_task")}
    """


def session_preemptions(*, names: str) -> str:
    """One row for each pod that others were evicted for, with `victims`."""
    return f"""
        FROM (
            SELECT session_id, for_task, min(node) AS node, count(*) AS victims
            FROM session_steps e
            WHERE {EVICTED} AND {STEP_CARRIED_OUT.format(t="e")}
            GROUP BY session_id, for_task
        ) t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods p
        {names} clusters c ON c.id = s.cluster_id
        {names} rule_sets r ON r.id = s.rule_set_id
        WHERE {at_base("p", "t.for_task")}
    """


RAN = (
    "CASE WHEN v.start_ms IS NULL OR v.start_ms > s.now_ms THEN 0"
    " ELSE (s.now_ms - v.start_ms) / 1000 END"
)


# An observation that a surer one took the place of counts no more.
NOT_REPLACED = "NOT EXISTS (SELECT 1 FROM observations x WHERE x.replaces = o.id)"


# What a later state of the cluster contradicts: a decision as a whole, and a victim of one.
CARRIED_OUT = (
    "NOT EXISTS (SELECT 1 FROM decision_outcomes x WHERE x.decision_id = {decision}"
    " AND x.position = -1)"
)
NOT_SEEN_AGAIN = (
    "NOT EXISTS (SELECT 1 FROM decision_outcomes x WHERE x.decision_id = v.decision_id"
    " AND x.position = v.position)"
)


def carried_out(decision: str) -> str:
    return CARRIED_OUT.format(decision=decision)


def v_preemptions(words: Words) -> str:
    """Of our decisions, of sessions, and those that a real scheduler made: `origin` tells which.

    A session ranks no candidates and heeds no budgets, and what a real scheduler looked at it does
    not say: their columns are null in these rows.
    """
    instant = words.instant
    return f"""
        SELECT d.id AS decision_id, c.name AS cluster, d.now_ms,
               {instant("d.now_ms")} AS decided_at, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, d.node, d.victim_count, d.pdb_violations,
               d.candidate_count, d.decided_by, r.name AS rule_set, r.digest AS rule_set_digest,
               y.environment, y.actor, d.revision, d.digest, CAST(NULL AS BIGINT) AS session_id,
               d.origin, CAST(NULL AS BIGINT) AS observation_id,
               CAST('certain' AS TEXT) AS confidence
        FROM decisions d
        LEFT JOIN clusters c ON c.id = d.cluster_id
        LEFT JOIN rule_sets r ON r.id = d.rule_set_id
        LEFT JOIN cycles y ON y.id = d.id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical AND {carried_out("d.id")}
              AND {OBEYED_DECISION}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), c.name, s.now_ms, {instant("s.now_ms")}, t.for_task,
               p.namespace, p.priority, CAST(t.node AS TEXT), CAST(t.victims AS BIGINT),
               CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST('' AS TEXT), r.name, r.digest,
               s.environment, s.actor, s.revision, s.digest, s.id, CAST('decided' AS TEXT),
               CAST(NULL AS BIGINT), CAST('certain' AS TEXT)
        {session_preemptions(names="LEFT JOIN")}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), c.name, o.now_ms, {instant("o.now_ms")}, o.preemptor,
               o.preemptor_namespace, o.preemptor_priority, o.node, o.victim_count,
               CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST('' AS TEXT), CAST('' AS TEXT),
               CAST('' AS TEXT), CAST('' AS TEXT), o.scheduler, CAST(NULL AS BIGINT), o.digest,
               CAST(NULL AS BIGINT), CAST('observed' AS TEXT), o.id, o.confidence
        FROM observations o
        LEFT JOIN clusters c ON c.id = o.cluster_id
        WHERE {NOT_REPLACED}
    """


def v_victims(words: Words) -> str:
    instant = words.instant
    return f"""
        SELECT v.decision_id, v.position, c.name AS cluster, v.now_ms,
               {instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.priority_class AS victim_priority_class,
               v.uid AS victim_uid, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, {instant("v.start_ms")} AS started_at, v.run_seconds,
               v.cpu_milli, v.memory_bytes, v.pdb_violating, v.already_terminating,
               CAST(v.evicted AND {NOT_SEEN_AGAIN} AS {words.boolean}) AS evicted,
               v.filter, v.reasons, CAST(NULL AS BIGINT) AS session_id, CAST('' AS TEXT) AS action,
               d.origin, CAST(NULL AS BIGINT) AS observation_id,
               CAST('certain' AS TEXT) AS confidence,
               CAST(CASE WHEN {NOT_SEEN_AGAIN} THEN '' ELSE 'not-carried-out' END AS TEXT)
               AS outcome
        FROM victims v
        CROSS JOIN decisions d
        LEFT JOIN clusters c ON c.id = v.cluster_id
        WHERE d.id = v.decision_id AND d.outcome = 'preempt' AND NOT d.hypothetical
              AND {OBEYED_DECISION}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), t.position, c.name, s.now_ms, {instant("s.now_ms")},
               t.task, v.namespace, v.owner, v.priority, v.priority_class, v.uid, t.node,
               t.for_task, p.namespace, p.priority, {instant("v.start_ms")},
               CAST({RAN} AS BIGINT), v.cpu_milli, v.memory_bytes,
               CAST(NULL AS {words.boolean}), CAST({words.no} AS {words.boolean}),
               CAST({STEP_CARRIED_OUT.format(t="t")} AS {words.boolean}), CAST('' AS TEXT),
               CAST('[]' AS {words.json}), s.id, t.action,
               CAST('decided' AS TEXT), CAST(NULL AS BIGINT), CAST('certain' AS TEXT),
               CAST(CASE WHEN {STEP_CARRIED_OUT.format(t="t")} THEN ''
                    ELSE 'not-carried-out' END AS TEXT)
        {session_evictions(names="LEFT JOIN")}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), v.position, c.name, v.now_ms, {instant("v.now_ms")},
               v.victim, v.namespace, v.owner, v.priority, v.priority_class, v.uid, v.node,
               o.preemptor, o.preemptor_namespace, o.preemptor_priority,
               {instant("v.start_ms")}, v.run_seconds, v.cpu_milli, v.memory_bytes,
               v.pdb_violating, CAST({words.no} AS {words.boolean}), v.counted,
               CAST('' AS TEXT), CAST('[]' AS {words.json}), CAST(NULL AS BIGINT),
               CAST('' AS TEXT), CAST('observed' AS TEXT), o.id, o.confidence, CAST('' AS TEXT)
        FROM observed_victims v
        CROSS JOIN observations o
        LEFT JOIN clusters c ON c.id = v.cluster_id
        WHERE o.id = v.observation_id AND {NOT_REPLACED}
    """


def v_who_preempts_whom(words: Words) -> str:
    instant = words.instant
    return f"""
        SELECT c.name AS cluster, g.preemptor_namespace, g.victim_namespace, g.evictions,
               g.run_seconds_lost, {instant("g.first_ms")} AS first_at,
               {instant("g.last_ms")} AS last_at, g.origin
        FROM (
            SELECT cluster_id, preemptor_namespace, victim_namespace, origin,
                   CAST(sum(evictions) AS BIGINT) AS evictions,
                   CAST(sum(run_seconds_lost) AS BIGINT) AS run_seconds_lost,
                   min(first_ms) AS first_ms, max(last_ms) AS last_ms
            FROM (
                SELECT cluster_id, preemptor_namespace, namespace AS victim_namespace,
                       CAST(count(*) AS BIGINT) AS evictions,
                       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
                       min(now_ms) AS first_ms, max(now_ms) AS last_ms,
                       CAST('decided' AS TEXT) AS origin
                FROM victims v
                WHERE v.evicted AND {NOT_SEEN_AGAIN}
                GROUP BY cluster_id, preemptor_namespace, namespace
                UNION ALL
                SELECT s.cluster_id, p.namespace, v.namespace, CAST(count(*) AS BIGINT),
                       CAST(sum({RAN}) AS BIGINT), min(s.now_ms), max(s.now_ms),
                       CAST('decided' AS TEXT)
                {session_evictions(names="JOIN")} AND {STEP_CARRIED_OUT.format(t="t")}
                GROUP BY s.cluster_id, p.namespace, v.namespace
                UNION ALL
                SELECT o.cluster_id, o.preemptor_namespace, o.namespace,
                       CAST(count(*) AS BIGINT), CAST(sum(o.run_seconds) AS BIGINT),
                       min(o.now_ms), max(o.now_ms), CAST('observed' AS TEXT)
                FROM observed_victims o
                WHERE o.counted AND NOT EXISTS (
                    SELECT 1 FROM observations x WHERE x.replaces = o.observation_id
                )
                GROUP BY o.cluster_id, o.preemptor_namespace, o.namespace
            ) b
            GROUP BY cluster_id, preemptor_namespace, victim_namespace, origin
        ) g
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_evictions_daily(words: Words) -> str:
    return f"""
        SELECT c.name AS cluster, t.day, {words.instant("(t.day * 86400000)")} AS day_at,
               t.workload_id, w.namespace AS victim_namespace, w.owner AS victim_owner,
               nullif(t.priority, {UNKNOWN}) AS victim_priority, t.preemptor_namespace,
               nullif(t.preemptor_priority, {UNKNOWN}) AS preemptor_priority, t.origin,
               t.evictions, t.run_seconds AS run_seconds_lost, t.pdb_violations
        FROM eviction_totals t
        JOIN evicted_workloads w ON w.id = t.workload_id
        JOIN clusters c ON c.id = t.cluster_id
    """


def v_pdb_violations(words: Words) -> str:
    return f"""
        SELECT v.decision_id, c.name AS cluster, v.now_ms,
               {words.instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, r.name AS rule_set, b.budget, b.disruptions_allowed,
               b.allowed_before, b.allowed_after
        FROM victims v
        CROSS JOIN decisions d
        LEFT JOIN candidate_violations b ON b.decision_id = v.decision_id AND b.pod = v.pod
        LEFT JOIN rule_sets r ON r.id = d.rule_set_id
        LEFT JOIN clusters c ON c.id = v.cluster_id
        WHERE d.id = v.decision_id
              AND v.pdb_violating AND d.outcome = 'preempt' AND NOT d.hypothetical
              AND {NOT_SEEN_AGAIN}
              AND {OBEYED_DECISION}
    """


def v_preemptions_hourly(words: Words) -> str:
    return f"""
        SELECT c.name AS cluster, t.hour * 3600000 AS hour_ms,
               {words.instant("(t.hour * 3600000)")} AS hour_at,
               t.preemptions, t.victims, t.pdb_violations, t.origin
        FROM hour_totals t
        JOIN clusters c ON c.id = t.cluster_id
    """


def v_extender_calls(words: Words) -> str:
    """What schedulers offered and were answered, beside what was decided."""
    return f"""
        SELECT e.decision_id, c.name AS cluster, y.environment, d.now_ms,
               {words.instant("d.now_ms")} AS decided_at, e.mode, e.form, e.caller, e.answer,
               e.failure, d.preemptor, d.preemptor_namespace, d.preemptor_priority, d.outcome,
               d.node, d.victim_count, d.pdb_violations,
               CAST(d.revision IS NOT NULL AS {words.boolean}) AS carried_out,
               r.name AS rule_set, r.digest AS rule_set_digest, e.duration_us, e.waited_us
        FROM extender_calls e
        CROSS JOIN decisions d
        LEFT JOIN clusters c ON c.id = d.cluster_id
        LEFT JOIN rule_sets r ON r.id = d.rule_set_id
        LEFT JOIN cycles y ON y.id = d.id
        WHERE d.id = e.decision_id
    """


def v_tie_breakers(_: Words) -> str:
    return """
        SELECT c.name AS cluster, r.name AS rule_set, r.digest AS rule_set_digest, g.criterion,
               g.decisions
        FROM (
            SELECT cluster_id, rule_set_id, decided_by AS criterion,
                   CAST(sum(decisions) AS BIGINT) AS decisions
            FROM decision_totals
            WHERE day = -1 AND preempted
            GROUP BY cluster_id, rule_set_id, decided_by
        ) g
        JOIN rule_sets r ON r.id = g.rule_set_id
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_rule_usage(_: Words) -> str:
    return """
        SELECT c.name AS cluster, r.name AS rule_set, r.digest AS rule_set_digest, g.section,
               g.rule, g.verdict, g.fired
        FROM (
            SELECT cluster_id, rule_set_id, section, rule, verdict,
                   CAST(sum(decisions) AS BIGINT) AS fired
            FROM rule_totals
            WHERE day = -1
            GROUP BY cluster_id, rule_set_id, section, rule, verdict
        ) g
        JOIN rule_sets r ON r.id = g.rule_set_id
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_nominations(words: Words) -> str:
    # Here the few clusters come first: their nominations and the ends of these lie in one order.
    instant = words.instant
    return f"""
        SELECT c.name AS cluster, n.pod, n.priority, n.node, n.made_revision, n.made_decision,
               n.made_ms, {instant("n.made_ms")} AS made_at, e.cause AS ended_by,
               e.ended_revision, e.ended_decision, {instant("e.ended_ms")} AS ended_at,
               CAST(CASE WHEN EXISTS (SELECT 1 FROM decision_outcomes x
                                      WHERE x.decision_id = n.made_decision AND x.position = -1)
                    THEN 'not-carried-out' ELSE '' END AS TEXT) AS outcome
        FROM clusters c
        CROSS JOIN nominations n
        LEFT JOIN nomination_ends e ON e.cluster_id = n.cluster_id
             AND e.made_revision = n.made_revision AND e.pod = n.pod
        WHERE n.cluster_id = c.id
    """


KINDS = (
    # kind, table, namespace, node
    ("Node", "nodes", "''", "v.name"),
    ("Pod", "pods", "v.namespace", "v.node"),
    ("PodDisruptionBudget", "pod_disruption_budgets", "v.namespace", "''"),
    ("PriorityClass", "priority_classes", "''", "''"),
    ("Namespace", "namespaces", "v.name", "''"),
    ("PodGroup", "pod_groups", "v.namespace", "''"),
    ("Queue", "queues", "''", "''"),
    ("SchedulingPodGroup", "scheduling_pod_groups", "v.namespace", "''"),
    ("Workload", "workloads", "v.namespace", "''"),
    ("ResourceQuota", "resource_quotas", "v.namespace", "''"),
    ("PersistentVolume", "persistent_volumes", "''", "''"),
    ("PersistentVolumeClaim", "persistent_volume_claims", "v.namespace", "''"),
    ("CSINode", "csi_nodes", "''", "v.name"),
    ("StorageClass", "storage_classes", "''", "''"),
    ("CSIDriver", "csi_drivers", "''", "''"),
    ("CSIStorageCapacity", "csi_storage_capacities", "v.namespace", "''"),
    ("Service", "services", "v.namespace", "''"),
    ("ReplicationController", "replication_controllers", "v.namespace", "''"),
    ("ReplicaSet", "replica_sets", "v.namespace", "''"),
    ("StatefulSet", "stateful_sets", "v.namespace", "''"),
    ("ResourceClaim", "resource_claims", "v.namespace", "''"),
)


def v_cluster_at(words: Words) -> str:
    # The join stands in every branch, so that a condition on cluster and revision reaches the
    # index of each table on both databases; and what is still true has a branch of its own, so
    # that near the newest revision only little is read. The plus keeps SQLite off the index over
    # `valid_from`, which would read the whole past.
    ends = ("v.valid_to IS NULL", "v.valid_to > r.number")
    return "\nUNION ALL\n".join(
        f"""
        SELECT c.name AS cluster, r.number AS revision, r.at_ms,
               {words.instant("r.at_ms")} AS revision_at, '{kind}' AS kind, v.key,
               {namespace} AS namespace, v.name, {node} AS node, v.valid_from, v.valid_to,
               v.digest, v.manifest
        FROM clusters c
        JOIN revisions r ON r.cluster_id = c.id
        JOIN {table} v ON v.cluster_id = r.cluster_id AND +v.valid_from <= r.number AND {end}
        """
        for kind, table, namespace, node in KINDS
        for end in ends
    )


VIEWS = (
    v_preemptions,
    v_victims,
    v_who_preempts_whom,
    v_evictions_daily,
    v_pdb_violations,
    v_preemptions_hourly,
    v_extender_calls,
    v_tie_breakers,
    v_rule_usage,
    v_nominations,
    v_cluster_at,
)


def upgrade() -> None:
    create_state()
    create_decisions()
    create_outcomes()
    create_totals()
    create_observations()
    create_simulations()
    create_audit()
    words = SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRES
    for view in VIEWS:
        op.execute(f"CREATE VIEW {view.__name__} AS {view(words)}")


def downgrade() -> None:
    for view in reversed(VIEWS):
        op.execute(f"DROP VIEW {view.__name__}")
    for name in reversed(TABLES):
        op.drop_table(name)
