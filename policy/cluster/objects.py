"""The Kubernetes objects that the engine reads, with just the fields it uses.

Every struct mirrors the API field names (camelCase on the wire, snake_case here). Unknown fields
are ignored: a dump holds far more than a scheduling decision needs. The structs are in one file
per topic (`pods`, `nodes`, `storage`, `queues`, ...), and can be imported from here.
`msgspec.convert` and the decoders below report the path of a field that has the wrong type.

Objects are immutable; a changed object is a new one (`msgspec.structs.replace`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from policy.cluster import canonical
from policy.cluster.devices import (
    ResourceClaim,
)
from policy.cluster.metadata import (
    REST,
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
from policy.cluster.nodes import ContainerImage, Node, NodeSpec, NodeStatus, NodeSystemInfo, Taint
from policy.cluster.pods import (
    Affinity,
    AWSElasticBlockStoreSource,
    Container,
    ContainerPort,
    ContainerRestartRule,
    ContainerStatus,
    GCEPersistentDiskSource,
    ImageVolumeSource,
    ISCSISource,
    NodeAffinity,
    PersistentVolumeClaimSource,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    RBDSource,
    ResourceRequirements,
    SchedulingGate,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
    WorkloadReference,
)
from policy.cluster.queues import (
    NetworkTopologySpec,
    NodeGroupAffinity,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueAffinity,
    QueueGuarantee,
    QueueSpec,
    QueueStatus,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    SubGroupPolicySpec,
)
from policy.cluster.scheduling_groups import (
    DisruptionMode,
    GangPolicy,
    GroupCondition,
    GroupMeta,
    GroupSchedulingConstraints,
    GroupSchedulingPolicy,
    PodGroupTemplate,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
    SchedulingPodGroupStatus,
    TopologyConstraint,
    Workload,
    WorkloadSpec,
)
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
    "REST",
    "AWSElasticBlockStoreSource",
    "Affinity",
    "CSIDriver",
    "CSINode",
    "CSINodeDriver",
    "CSINodeDriverAllocatable",
    "CSINodeSpec",
    "CSIStorageCapacity",
    "CSIVolumeSource",
    "ClaimReference",
    "Condition",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerRestartRule",
    "ContainerStatus",
    "DisruptionMode",
    "GCEPersistentDiskSource",
    "GangPolicy",
    "GroupCondition",
    "GroupMeta",
    "GroupSchedulingConstraints",
    "GroupSchedulingPolicy",
    "ISCSISource",
    "ImageVolumeSource",
    "Int32",
    "Int64",
    "LabelSelector",
    "LabelSelectorRequirement",
    "NetworkTopologySpec",
    "Node",
    "NodeAffinity",
    "NodeGroupAffinity",
    "NodeSelector",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "ObjectMeta",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSource",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodGroup",
    "PodGroupSpec",
    "PodGroupStatus",
    "PodGroupTemplate",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSchedulingGroup",
    "PodSpec",
    "PodStatus",
    "Port",
    "PreferredSchedulingTerm",
    "Quantity",
    "Queue",
    "QueueAffinity",
    "QueueGuarantee",
    "QueueSpec",
    "QueueStatus",
    "RBDSource",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ResourceRequirements",
    "SchedulingGate",
    "SchedulingPodGroup",
    "SchedulingPodGroupSpec",
    "SchedulingPodGroupStatus",
    "Service",
    "StatefulSet",
    "StorageClass",
    "SubGroupPolicySpec",
    "Taint",
    "Toleration",
    "TopologyConstraint",
    "TopologySpreadConstraint",
    "Volume",
    "VolumeNodeAffinity",
    "WeightedPodAffinityTerm",
    "Workload",
    "WorkloadReference",
    "WorkloadSpec",
]
"""What is imported from here beside the structs below."""

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
