"""Preemptions that a real scheduler made, and how far a cluster was followed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index, PrimaryKeyConstraint

from policy.store.tables.base import (
    boolean,
    identity,
    int64,
    json,
    millis,
    table,
    text,
    written_by,
)

OBSERVATIONS: Final = table(
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

OBSERVED_VICTIMS: Final = table(
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
    Index(None, "cluster_id", "node", "now_ms"),
    Index(None, "now_ms"),
    Index(None, "victim", "cluster_id", "now_ms"),
    Index(None, "cluster_id", "event_uid"),
    Index(None, "cluster_id", "uid"),
    clustered=True,
)

GAPS: Final = table(
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

FOLLOW_POSITIONS: Final = table(
    "follow_positions",
    int64("cluster_id", ForeignKey("clusters.id")),
    text("kind"),
    int64("resource_version"),
    millis("at_ms"),
    PrimaryKeyConstraint("cluster_id", "kind"),
    clustered=True,
)

CLUSTER_IDENTITIES: Final = table(
    "cluster_identities",
    int64("cluster_id", ForeignKey("clusters.id")),
    text("uid"),
    text("server"),
    millis("at_ms"),
    PrimaryKeyConstraint("cluster_id"),
    clustered=True,
)
