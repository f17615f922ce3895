"""Objects that select pods: services and the controllers that own pods, by API field names."""

from __future__ import annotations

import msgspec

from policy.cluster.metadata import LabelSelector, Object, ObjectMeta


class ServiceSpec(Object, frozen=True):
    selector: dict[str, str] | None = None


class Service(Object, frozen=True):
    metadata: ObjectMeta
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicationControllerSpec(Object, frozen=True):
    selector: dict[str, str] | None = None


class ReplicationController(Object, frozen=True):
    metadata: ObjectMeta
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)


class ControllerSpec(Object, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)


class StatefulSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)
