"""Objects of storage: volumes, claims, classes and drivers, by API field names."""

from __future__ import annotations

import msgspec

from policy.cluster.metadata import (
    Int32,
    LabelSelector,
    NodeSelector,
    Object,
    ObjectMeta,
    Quantity,
)


class VolumeNodeAffinity(Object, frozen=True):
    required: NodeSelector | None = None


class ClaimReference(Object, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIVolumeSource(Object, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Object, frozen=True):
    access_modes: list[str] | None = None
    capacity: dict[str, Quantity] | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    csi: CSIVolumeSource | None = None


class PersistentVolumeStatus(Object, frozen=True):
    phase: str = ""


class PersistentVolume(Object, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class ClaimResources(Object, frozen=True):
    requests: dict[str, Quantity] | None = None


class PersistentVolumeClaimSpec(Object, frozen=True):
    access_modes: list[str] | None = None
    resources: ClaimResources | None = None
    selector: LabelSelector | None = None
    volume_mode: str = ""
    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaimStatus(Object, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class CSINodeDriverAllocatable(Object, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(Object, frozen=True):
    name: str = ""
    allocatable: CSINodeDriverAllocatable | None = None


class CSINodeSpec(Object, frozen=True):
    drivers: list[CSINodeDriver] | None = None


class CSINode(Object, frozen=True):
    metadata: ObjectMeta
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class TopologyRequirement(Object, frozen=True):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Object, frozen=True):
    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(Object, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class CSIDriverSpec(Object, frozen=True):
    storage_capacity: bool | None = None


class CSIDriver(Object, frozen=True):
    metadata: ObjectMeta
    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Object, frozen=True):
    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
