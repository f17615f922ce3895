"""What is listed and watched of a cluster, and where its API server has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policy.cluster.objects import KINDS

EVENT: Final = "Event"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A kind of objects of an API server."""

    kind: str  #: as the engine keeps it
    path: str
    required: bool = (
        True  #: False: without it every decision is the same, or servers do not have it
    )
    field_selector: str = ""
    older: str = ""  #: where older servers have it


_ALL: Final = (
    ApiResource(kind="Pod", path="/api/v1/pods"),
    ApiResource(kind="Node", path="/api/v1/nodes"),
    ApiResource(kind="Namespace", path="/api/v1/namespaces"),
    ApiResource(
        kind="PodDisruptionBudget",
        path="/apis/policy/v1/poddisruptionbudgets",
        older="/apis/policy/v1beta1/poddisruptionbudgets",
    ),
    ApiResource(kind="PriorityClass", path="/apis/scheduling.k8s.io/v1/priorityclasses"),
    ApiResource(kind="PersistentVolume", path="/api/v1/persistentvolumes"),
    ApiResource(kind="PersistentVolumeClaim", path="/api/v1/persistentvolumeclaims"),
    ApiResource(kind="StorageClass", path="/apis/storage.k8s.io/v1/storageclasses"),
    ApiResource(
        kind="CSINode",
        path="/apis/storage.k8s.io/v1/csinodes",
        older="/apis/storage.k8s.io/v1beta1/csinodes",
    ),
    ApiResource(kind="Service", path="/api/v1/services"),
    ApiResource(kind="ReplicaSet", path="/apis/apps/v1/replicasets"),
    ApiResource(kind="StatefulSet", path="/apis/apps/v1/statefulsets"),
    ApiResource(kind="ReplicationController", path="/api/v1/replicationcontrollers"),
    ApiResource(
        kind="SchedulingPodGroup",
        path="/apis/scheduling.k8s.io/v1alpha2/podgroups",
        required=False,
    ),
    ApiResource(kind="Workload", path="/apis/scheduling.k8s.io/v1alpha1/workloads", required=False),
)

EVENTS: Final = ApiResource(
    kind=EVENT,
    path="/apis/events.k8s.io/v1/events",
    field_selector="reason=Preempted",
    older="/api/v1/events",
)


def watched() -> tuple[ApiResource, ...]:
    """The kinds that the engine keeps, and the events about preemptions."""
    return (*(one for one in _ALL if one.kind in KINDS), EVENTS)
