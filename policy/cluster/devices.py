"""Claims to devices (resource.k8s.io), by API field names."""

from __future__ import annotations

import msgspec

from policy.cluster.metadata import NodeSelector, Object, ObjectMeta


class AllocationResult(Object, frozen=True):
    node_selector: NodeSelector | None = None


class ResourceClaimConsumer(Object, frozen=True):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Object, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumer] | None = None


class ResourceClaim(Object, frozen=True):
    metadata: ObjectMeta
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
