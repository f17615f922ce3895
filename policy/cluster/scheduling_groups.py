"""Pod groups and workloads of `scheduling.k8s.io`, by API field names."""

from __future__ import annotations

from typing import Any

import msgspec

from policy.cluster.metadata import Int32, Int64, Object, ObjectMeta


class GangPolicy(Object, frozen=True):
    min_count: Int32 = 0


class GroupSchedulingPolicy(Object, frozen=True):
    """Exactly one is set; presence alone makes a group `basic`."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class DisruptionMode(Object, frozen=True):
    """Shape of `disruptionMode` from v1alpha3 on."""

    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class TopologyConstraint(Object, frozen=True):
    key: str = ""


class GroupSchedulingConstraints(Object, frozen=True):
    topology: list[TopologyConstraint] | None = None


class SchedulingPodGroupSpec(Object, frozen=True):
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


class GroupCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    observed_generation: Int64 | None = None
    last_transition_time: str | None = None


class SchedulingPodGroupStatus(Object, frozen=True):
    conditions: list[GroupCondition] | None = None


class GroupMeta(ObjectMeta, frozen=True):
    generation: Int64 = 0


class SchedulingPodGroup(Object, frozen=True):
    """`PodGroup` of `scheduling.k8s.io`: pods that kube-scheduler places together."""

    metadata: GroupMeta
    spec: SchedulingPodGroupSpec = msgspec.field(default_factory=SchedulingPodGroupSpec)
    status: SchedulingPodGroupStatus = msgspec.field(default_factory=SchedulingPodGroupStatus)


class PodGroupTemplate(Object, frozen=True):
    """One template of a workload: `policy` in v1alpha1, `schedulingPolicy` later."""

    name: str = ""
    policy: GroupSchedulingPolicy | None = None
    scheduling_policy: GroupSchedulingPolicy | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    disruption_mode: str | DisruptionMode | None = None


class WorkloadSpec(Object, frozen=True):
    pod_groups: list[PodGroupTemplate] | None = None
    pod_group_templates: list[PodGroupTemplate] | None = None


class Workload(Object, frozen=True):
    """Templates of pod groups. No scheduler reads it to decide."""

    metadata: ObjectMeta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
