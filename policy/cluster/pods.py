"""Pods and what they are made of, by API field names."""

from __future__ import annotations

from typing import Any

import msgspec

from policy.cluster.metadata import (
    REST,
    Condition,
    Int32,
    Int64,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Object,
    ObjectMeta,
    Port,
    Quantity,
)


class ResourceRequirements(Object, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(Object, frozen=True):
    container_port: Port = 0
    host_port: Port = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerRestartRule(Object, frozen=True):
    action: str = ""


class Container(Object, frozen=True):
    name: str = ""
    image: str | None = None
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None


class PreferredSchedulingTerm(Object, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Object, frozen=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Object, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Object, frozen=True):
    """Shape of both `podAffinity` and `podAntiAffinity`."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Object, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PersistentVolumeClaimSource(Object, frozen=True):
    claim_name: str = ""


class GCEPersistentDiskSource(Object, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreSource(Object, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class RBDSource(Object, frozen=True):
    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class ISCSISource(Object, frozen=True):
    iqn: str = ""
    read_only: bool = False


class ImageVolumeSource(Object, frozen=True):
    reference: str = ""


class Volume(Object, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    gce_persistent_disk: GCEPersistentDiskSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreSource | None = None
    rbd: RBDSource | None = None
    iscsi: ISCSISource | None = None
    image: ImageVolumeSource | None = None
    #: presence alone matters: the claim is then `<pod>-<volume>`
    ephemeral: dict[str, Any] | None = None


class SchedulingGate(Object, frozen=True):
    name: str = ""


class PodResourceClaim(Object, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Object, frozen=True):
    """The pod group that a pod belongs to (1.36)."""

    pod_group_name: str = ""


class WorkloadReference(Object, frozen=True):
    """The workload and its group that a pod belongs to (1.35)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Object, frozen=True):
    node_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class ContainerStatus(Object, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class PodResourceClaimStatus(Object, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Object, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    nominated_node_name: str = ""
    qos_class: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resize: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class Pod(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    rest: str | None = msgspec.field(default=None, name=REST)
