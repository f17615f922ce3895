"""Clusters, revisions, and the versions of every object.

A version is true from revision `valid_from` on, up to and without `valid_to` (null: still true).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)
from sqlalchemy import text as sql

from policy.store.tables.base import boolean, identity, int64, json, millis, partial, table, text

CLUSTERS: Final = table("clusters", identity(), text("name"), UniqueConstraint("name"))

REVISIONS: Final = table(
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


def _versions(name: str, *columns: Column[Any] | Index) -> Table:
    return table(
        name,
        int64("cluster_id", ForeignKey("clusters.id")),
        text("key"),
        int64("valid_from"),
        int64("valid_to", nullable=True, info={"elsewhere": True}),
        *columns,
        text("digest"),
        json("manifest", info={"elsewhere": True}),
        PrimaryKeyConstraint("cluster_id", "key", "valid_from"),
        # One version of an object is true at a time.
        partial(f"uq_{name}_live", "cluster_id", "key", unique=True, where=sql("valid_to IS NULL")),
        # Of those that ended alone: one that ends is not taken from another place in the index.
        partial(
            f"ix_{name}_ended",
            *("cluster_id", "valid_to", "valid_from"),
            where=sql("valid_to IS NOT NULL"),
        ),
        Index(None, "cluster_id", "valid_from"),
    )


NODES: Final = _versions(
    "nodes",
    text("name"),
    int64("cpu_milli"),
    int64("memory_bytes"),
    int64("pod_capacity"),
    boolean("unschedulable"),
)
PODS: Final = _versions(
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
    # What is on a node, and which nominations stand: of a few pods among many.
    partial("ix_pods_on_node", "cluster_id", "node", where=sql("valid_to IS NULL")),
    partial(
        "ix_pods_nominated",
        "cluster_id",
        "key",
        where=sql("valid_to IS NULL AND nominated_node <> ''"),
    ),
)
POD_DISRUPTION_BUDGETS: Final = _versions(
    "pod_disruption_budgets",
    text("namespace"),
    text("name"),
    text("min_available", nullable=True),
    text("max_unavailable", nullable=True),
    int64("disruptions_allowed"),
)
PRIORITY_CLASSES: Final = _versions(
    "priority_classes",
    text("name"),
    int64("value"),
    boolean("global_default"),
    text("preemption_policy"),
)
NAMESPACES: Final = _versions("namespaces", text("name"))
POD_GROUPS: Final = _versions(
    "pod_groups",
    text("namespace"),
    text("name"),
    int64("min_member"),
    text("queue"),
    text("priority_class"),
    text("phase"),
)
QUEUES: Final = _versions(
    "queues",
    text("name"),
    int64("weight"),
    int64("priority"),
    text("parent"),
    boolean("reclaimable"),
    text("state"),
)
SCHEDULING_POD_GROUPS: Final = _versions(
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
WORKLOADS: Final = _versions("workloads", text("namespace"), text("name"), int64("template_count"))
RESOURCE_QUOTAS: Final = _versions("resource_quotas", text("namespace"), text("name"))
PERSISTENT_VOLUMES: Final = _versions("persistent_volumes", text("name"), text("claim"))
PERSISTENT_VOLUME_CLAIMS: Final = _versions(
    "persistent_volume_claims",
    text("namespace"),
    text("name"),
    text("volume"),
    text("storage_class"),
)
CSI_NODES: Final = _versions("csi_nodes", text("name"))
STORAGE_CLASSES: Final = _versions(
    "storage_classes", text("name"), text("provisioner"), text("binding_mode")
)
CSI_DRIVERS: Final = _versions("csi_drivers", text("name"))
CSI_STORAGE_CAPACITIES: Final = _versions(
    "csi_storage_capacities", text("namespace"), text("name"), text("storage_class")
)
SERVICES: Final = _versions("services", text("namespace"), text("name"))
REPLICATION_CONTROLLERS: Final = _versions(
    "replication_controllers", text("namespace"), text("name")
)
REPLICA_SETS: Final = _versions("replica_sets", text("namespace"), text("name"), text("owner"))
STATEFUL_SETS: Final = _versions("stateful_sets", text("namespace"), text("name"))
RESOURCE_CLAIMS: Final = _versions(
    "resource_claims", text("namespace"), text("name"), boolean("allocated")
)

VERSIONS: Final[Mapping[str, Table]] = {
    "Node": NODES,
    "Pod": PODS,
    "PodDisruptionBudget": POD_DISRUPTION_BUDGETS,
    "PriorityClass": PRIORITY_CLASSES,
    "Namespace": NAMESPACES,
    "PodGroup": POD_GROUPS,
    "Queue": QUEUES,
    "SchedulingPodGroup": SCHEDULING_POD_GROUPS,
    "Workload": WORKLOADS,
    "ResourceQuota": RESOURCE_QUOTAS,
    "PersistentVolume": PERSISTENT_VOLUMES,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "CSINode": CSI_NODES,
    "StorageClass": STORAGE_CLASSES,
    "CSIDriver": CSI_DRIVERS,
    "CSIStorageCapacity": CSI_STORAGE_CAPACITIES,
    "Service": SERVICES,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "ResourceClaim": RESOURCE_CLAIMS,
}
"""Kind -> the table of its versions."""

NOMINATIONS: Final = table(
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

NOMINATION_ENDS: Final = table(
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
