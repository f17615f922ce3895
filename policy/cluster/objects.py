"""The Kubernetes objects that the engine reads, with just the fields it uses.

Every struct mirrors the API field names (camelCase on the wire, snake_case here). Unknown fields
are ignored: a dump holds far more than a scheduling decision needs. Structs that stand on
their own are in `metadata`, `storage`, `workloads` and `devices`, and can be imported from here.
`msgspec.convert` and the decoders below report the path of a field that has the wrong type.

Objects are immutable; a changed object is a new one (`msgspec.structs.replace`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from policy.cluster import canonical
from policy.cluster.devices import (
    ResourceClaim,
)
from policy.cluster.metadata import (
    Condition,
    Int32,
    Int64,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Port,
    Quantity,
)
from policy.cluster.metadata import Object as _Object
from policy.cluster.storage import (
    ClaimReference,
    CSIDriver,
    CSINode,
    CSINodeDriver,
    CSINodeDriverAllocatable,
    CSINodeSpec,
    CSIStorageCapacity,
    CSIVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from policy.cluster.workloads import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

__all__ = [
    "CSIDriver",
    "CSINode",
    "CSINodeDriver",
    "CSINodeDriverAllocatable",
    "CSINodeSpec",
    "CSIStorageCapacity",
    "CSIVolumeSource",
    "ClaimReference",
    "Condition",
    "Int32",
    "Int64",
    "LabelSelector",
    "LabelSelectorRequirement",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectMeta",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeSpec",
    "Port",
    "Quantity",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "Service",
    "StatefulSet",
    "StorageClass",
    "VolumeNodeAffinity",
]
"""What is imported from here beside the structs below."""

# --- pod ---------------------------------------------------------------------------------------


class ResourceRequirements(_Object, frozen=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(_Object, frozen=True):
    container_port: Port = 0
    host_port: Port = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerRestartRule(_Object, frozen=True):
    action: str = ""


class Container(_Object, frozen=True):
    name: str = ""
    image: str | None = None
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None


class PreferredSchedulingTerm(_Object, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(_Object, frozen=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(_Object, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(_Object, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(_Object, frozen=True):
    """Shape of both `podAffinity` and `podAntiAffinity`."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Object, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(_Object, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PersistentVolumeClaimSource(_Object, frozen=True):
    claim_name: str = ""


class GCEPersistentDiskSource(_Object, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreSource(_Object, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class RBDSource(_Object, frozen=True):
    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class ISCSISource(_Object, frozen=True):
    iqn: str = ""
    read_only: bool = False


class ImageVolumeSource(_Object, frozen=True):
    reference: str = ""


class Volume(_Object, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    gce_persistent_disk: GCEPersistentDiskSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreSource | None = None
    rbd: RBDSource | None = None
    iscsi: ISCSISource | None = None
    image: ImageVolumeSource | None = None
    #: presence alone matters: the claim is then `<pod>-<volume>`
    ephemeral: dict[str, Any] | None = None


class SchedulingGate(_Object, frozen=True):
    name: str = ""


class PodResourceClaim(_Object, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(_Object, frozen=True):
    """The pod group that a pod belongs to (1.36)."""

    pod_group_name: str = ""


class WorkloadReference(_Object, frozen=True):
    """The workload and its group that a pod belongs to (1.35)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(_Object, frozen=True):
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


class ContainerStatus(_Object, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class PodResourceClaimStatus(_Object, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(_Object, frozen=True):
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


REST: Final = "$rest"
"""Where a pod or node keeps what else its manifest holds (`policy.cluster.whole`)."""


class Pod(_Object, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
    rest: str | None = msgspec.field(default=None, name=REST)


# --- node --------------------------------------------------------------------------------------


class Taint(_Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class ContainerImage(_Object, frozen=True):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeSystemInfo(_Object, frozen=True):
    kubelet_version: str = ""


class NodeStatus(_Object, frozen=True):
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None
    node_info: NodeSystemInfo | None = None


class Node(_Object, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
    rest: str | None = msgspec.field(default=None, name=REST)


# --- policy and scheduling ---------------------------------------------------------------------


class PodDisruptionBudgetSpec(_Object, frozen=True):
    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None


class PodDisruptionBudgetStatus(_Object, frozen=True):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str | None] | None = None
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0


class PodDisruptionBudget(_Object, frozen=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(_Object, frozen=True):
    metadata: ObjectMeta
    value: Int32
    global_default: bool = False
    preemption_policy: str | None = None


class Namespace(_Object, frozen=True):
    metadata: ObjectMeta


# --- batch (kube-batch and Volcano API groups) ---------------------------------------------------


class NetworkTopologySpec(_Object, frozen=True):
    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicySpec(_Object, frozen=True):
    name: str = ""
    sub_group_size: int | None = None
    min_sub_groups: int | None = None


class PodGroupSpec(_Object, frozen=True):
    min_member: Int32 = 0
    queue: str = ""
    priority_class_name: str = ""
    min_task_member: dict[str, Int32] | None = None
    min_resources: dict[str, Quantity] | None = None
    network_topology: NetworkTopologySpec | None = None
    sub_group_policy: list[SubGroupPolicySpec] | None = None


class PodGroupStatus(_Object, frozen=True):
    phase: str = ""


class PodGroup(_Object, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class QueueGuarantee(_Object, frozen=True):
    resource: dict[str, Quantity] | None = None


class NodeGroupAffinity(_Object, frozen=True):
    required: list[str] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[str] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class QueueAffinity(_Object, frozen=True):
    node_group_affinity: NodeGroupAffinity | None = None
    node_group_anti_affinity: NodeGroupAffinity | None = None


class QueueSpec(_Object, frozen=True):
    weight: Int32 = 0
    capability: dict[str, Quantity] | None = None
    deserved: dict[str, Quantity] | None = None
    guarantee: QueueGuarantee | None = None
    reclaimable: bool | None = None
    priority: Int32 = 0
    parent: str = ""
    dequeue_strategy: str = ""
    affinity: QueueAffinity | None = None


class QueueStatus(_Object, frozen=True):
    state: str = ""


class Queue(_Object, frozen=True):
    metadata: ObjectMeta
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class ResourceQuotaSpec(_Object, frozen=True):
    hard: dict[str, Quantity] | None = None


class ResourceQuotaStatus(_Object, frozen=True):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(_Object, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


# --- pod groups and workloads (scheduling.k8s.io) ------------------------------------------------


class GangPolicy(_Object, frozen=True):
    min_count: Int32 = 0


class GroupSchedulingPolicy(_Object, frozen=True):
    """Exactly one is set; presence alone makes a group `basic`."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class DisruptionMode(_Object, frozen=True):
    """Shape of `disruptionMode` from v1alpha3 on."""

    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class TopologyConstraint(_Object, frozen=True):
    key: str = ""


class GroupSchedulingConstraints(_Object, frozen=True):
    topology: list[TopologyConstraint] | None = None


class SchedulingPodGroupSpec(_Object, frozen=True):
    scheduling_policy: GroupSchedulingPolicy = msgspec.field(default_factory=GroupSchedulingPolicy)
    priority: Int32 | None = None
    priority_class_name: str = ""
    #: only in v1alpha3, behind a gate; before, the members' own policies count
    preemption_policy: str | None = None
    #: `Pod` or `PodGroup` up to v1alpha2, then an object
    disruption_mode: str | DisruptionMode | None = None
    scheduling_constraints: GroupSchedulingConstraints | None = None
    pod_group_template_ref: dict[str, Any] | None = None
    workload_ref: dict[str, Any] | None = None  #: its name from v1alpha3 on
    parent_composite_pod_group_name: str = ""


class GroupCondition(_Object, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    observed_generation: Int64 | None = None
    last_transition_time: str | None = None


class SchedulingPodGroupStatus(_Object, frozen=True):
    conditions: list[GroupCondition] | None = None


class GroupMeta(ObjectMeta, frozen=True):
    generation: Int64 = 0


class SchedulingPodGroup(_Object, frozen=True):
    """`PodGroup` of `scheduling.k8s.io`: pods that kube-scheduler places together."""

    metadata: GroupMeta
    spec: SchedulingPodGroupSpec = msgspec.field(default_factory=SchedulingPodGroupSpec)
    status: SchedulingPodGroupStatus = msgspec.field(default_factory=SchedulingPodGroupStatus)


class PodGroupTemplate(_Object, frozen=True):
    """One template of a workload: `policy` in v1alpha1, `schedulingPolicy` later."""

    name: str = ""
    policy: GroupSchedulingPolicy | None = None
    scheduling_policy: GroupSchedulingPolicy | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    disruption_mode: str | DisruptionMode | None = None


class WorkloadSpec(_Object, frozen=True):
    pod_groups: list[PodGroupTemplate] | None = None
    pod_group_templates: list[PodGroupTemplate] | None = None


class Workload(_Object, frozen=True):
    """Templates of pod groups. No scheduler reads it to decide."""

    metadata: ObjectMeta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


ClusterObject: TypeAlias = (
    Pod
    | Node
    | PodDisruptionBudget
    | PriorityClass
    | Namespace
    | PodGroup
    | Queue
    | SchedulingPodGroup
    | Workload
    | ResourceQuota
    | PersistentVolume
    | PersistentVolumeClaim
    | CSINode
    | Service
    | ReplicationController
    | ReplicaSet
    | StatefulSet
    | StorageClass
    | CSIDriver
    | CSIStorageCapacity
    | ResourceClaim
)

Kind: TypeAlias = Literal[
    "Node",
    "Pod",
    "PodDisruptionBudget",
    "PriorityClass",
    "Namespace",
    "PodGroup",
    "Queue",
    "SchedulingPodGroup",
    "Workload",
    "ResourceQuota",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CSINode",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "StorageClass",
    "CSIDriver",
    "CSIStorageCapacity",
    "ResourceClaim",
]

KINDS: Final[dict[str, type[ClusterObject]]] = {
    "Node": Node,
    "Pod": Pod,
    "PodDisruptionBudget": PodDisruptionBudget,
    "PriorityClass": PriorityClass,
    "Namespace": Namespace,
    "PodGroup": PodGroup,
    "Queue": Queue,
    "SchedulingPodGroup": SchedulingPodGroup,
    "Workload": Workload,
    "ResourceQuota": ResourceQuota,
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "CSINode": CSINode,
    "Service": Service,
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSIStorageCapacity": CSIStorageCapacity,
    "ResourceClaim": ResourceClaim,
}
"""Kinds that the engine uses; objects of any other kind are counted and skipped on import.

A `PodGroup` of `scheduling.k8s.io` is a kind of its own: it may stand beside one of kube-batch or
Volcano of the same name.
"""

NAMESPACED: Final = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "PodGroup",
        "PersistentVolumeClaim",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
        "CSIStorageCapacity",
        "ResourceClaim",
        "SchedulingPodGroup",
        "Workload",
        "ResourceQuota",
    }
)


def kind_of(obj: ClusterObject) -> Kind:
    """The Kubernetes kind of an object; the struct's name is the kind."""
    return type(obj).__name__  # type: ignore[return-value]  # the union's names are the literals


def key_of(obj: ClusterObject) -> str:
    """`namespace/name` of a namespaced object (namespace `default` where absent), else `name`."""
    meta = obj.metadata
    if type(obj).__name__ in NAMESPACED:
        return f"{meta.namespace or 'default'}/{meta.name}"
    return meta.name


def workload_key(pod: str, owner: str) -> str:
    """`namespace/Kind/name` of the workload that a pod belongs to; of the pod without an owner.

    pod: `namespace/name`; owner: `Kind/name` of the controlling owner, "" without one.
    """
    namespace, _, name = pod.partition("/")
    return f"{namespace}/{owner or 'Pod/' + name}"


def encode(obj: ClusterObject) -> bytes:
    """Canonical JSON of the used fields: equal objects give equal bytes, whatever their source."""
    return canonical.encode(obj)
