"""Nodes, by API field names."""

from __future__ import annotations

import msgspec

from policy.cluster.metadata import REST, Condition, Int64, Object, ObjectMeta, Quantity


class Taint(Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Object, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class ContainerImage(Object, frozen=True):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeSystemInfo(Object, frozen=True):
    kubelet_version: str = ""


class NodeStatus(Object, frozen=True):
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None
    node_info: NodeSystemInfo | None = None


class Node(Object, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
    rest: str | None = msgspec.field(default=None, name=REST)
