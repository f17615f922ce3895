"""Pod groups and queues of kube-batch and Volcano, and the quotas they read, by API field names."""

from __future__ import annotations

import msgspec

from policy.cluster.metadata import Int32, Object, ObjectMeta, Quantity


class NetworkTopologySpec(Object, frozen=True):
    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicySpec(Object, frozen=True):
    name: str = ""
    sub_group_size: int | None = None
    min_sub_groups: int | None = None


class PodGroupSpec(Object, frozen=True):
    min_member: Int32 = 0
    queue: str = ""
    priority_class_name: str = ""
    min_task_member: dict[str, Int32] | None = None
    min_resources: dict[str, Quantity] | None = None
    network_topology: NetworkTopologySpec | None = None
    sub_group_policy: list[SubGroupPolicySpec] | None = None


class PodGroupStatus(Object, frozen=True):
    phase: str = ""


class PodGroup(Object, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class QueueGuarantee(Object, frozen=True):
    resource: dict[str, Quantity] | None = None


class NodeGroupAffinity(Object, frozen=True):
    required: list[str] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[str] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class QueueAffinity(Object, frozen=True):
    node_group_affinity: NodeGroupAffinity | None = None
    node_group_anti_affinity: NodeGroupAffinity | None = None


class QueueSpec(Object, frozen=True):
    weight: Int32 = 0
    capability: dict[str, Quantity] | None = None
    deserved: dict[str, Quantity] | None = None
    guarantee: QueueGuarantee | None = None
    reclaimable: bool | None = None
    priority: Int32 = 0
    parent: str = ""
    dequeue_strategy: str = ""
    affinity: QueueAffinity | None = None


class QueueStatus(Object, frozen=True):
    state: str = ""


class Queue(Object, frozen=True):
    metadata: ObjectMeta
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class ResourceQuotaSpec(Object, frozen=True):
    hard: dict[str, Quantity] | None = None


class ResourceQuotaStatus(Object, frozen=True):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(Object, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)
