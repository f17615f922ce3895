"""What is listed and watched of a cluster, and where its API server has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from policy.cluster.objects import KINDS

EVENT: Final = "Event"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A kind of objects of an API server."""

    kind: str  #: as the engine keeps it
    path: str
    required: bool = True
    """False: few decisions need it, or servers do not have it."""
    field_selector: str = ""
    older: tuple[str, ...] = ()  #: where older servers have it, the newest of them first

    def where_older(self) -> ApiResource | None:
        """Where the next older servers have it; None where they do not."""
        if not self.older:
            return None
        return replace(self, path=self.older[0], older=self.older[1:])


_ALL: Final = (
    ApiResource(kind="Pod", path="/api/v1/pods"),
    ApiResource(kind="Node", path="/api/v1/nodes"),
    ApiResource(kind="Namespace", path="/api/v1/namespaces"),
    ApiResource(
        kind="PodDisruptionBudget",
        path="/apis/policy/v1/poddisruptionbudgets",
        older=("/apis/policy/v1beta1/poddisruptionbudgets",),
    ),
    ApiResource(kind="PriorityClass", path="/apis/scheduling.k8s.io/v1/priorityclasses"),
    ApiResource(kind="PersistentVolume", path="/api/v1/persistentvolumes"),
    ApiResource(kind="PersistentVolumeClaim", path="/api/v1/persistentvolumeclaims"),
    ApiResource(kind="StorageClass", path="/apis/storage.k8s.io/v1/storageclasses"),
    ApiResource(
        kind="CSINode",
        path="/apis/storage.k8s.io/v1/csinodes",
        older=("/apis/storage.k8s.io/v1beta1/csinodes",),
    ),
    # Without the rights to these a cluster is followed all the same, and that is said.
    ApiResource(
        kind="CSIDriver",
        path="/apis/storage.k8s.io/v1/csidrivers",
        older=("/apis/storage.k8s.io/v1beta1/csidrivers",),
        required=False,
    ),
    ApiResource(
        kind="CSIStorageCapacity",
        path="/apis/storage.k8s.io/v1/csistoragecapacities",
        older=("/apis/storage.k8s.io/v1beta1/csistoragecapacities",),
        required=False,
    ),
    ApiResource(
        kind="ResourceClaim",
        path="/apis/resource.k8s.io/v1/resourceclaims",
        older=(
            "/apis/resource.k8s.io/v1beta2/resourceclaims",
            "/apis/resource.k8s.io/v1beta1/resourceclaims",
        ),
        required=False,
    ),
    ApiResource(kind="Service", path="/api/v1/services"),
    ApiResource(kind="ReplicaSet", path="/apis/apps/v1/replicasets"),
    ApiResource(kind="StatefulSet", path="/apis/apps/v1/statefulsets"),
    ApiResource(kind="ReplicationController", path="/api/v1/replicationcontrollers"),
    ApiResource(
        kind="SchedulingPodGroup",
        path="/apis/scheduling.k8s.io/v1alpha3/podgroups",  # 1.37, whose fields 1.36 does not have
        older=("/apis/scheduling.k8s.io/v1alpha2/podgroups",),
        required=False,
    ),
    ApiResource(
        kind="Workload",
        path="/apis/scheduling.k8s.io/v1alpha3/workloads",
        older=(
            "/apis/scheduling.k8s.io/v1alpha2/workloads",
            "/apis/scheduling.k8s.io/v1alpha1/workloads",
        ),
        required=False,
    ),
)

EVENTS: Final = ApiResource(
    kind=EVENT,
    path="/apis/events.k8s.io/v1/events",
    field_selector="reason=Preempted",
    older=("/api/v1/events",),
)


def watched() -> tuple[ApiResource, ...]:
    """The kinds that the engine keeps, and the events about preemptions."""
    return (*(one for one in _ALL if one.kind in KINDS), EVENTS)
