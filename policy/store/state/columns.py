"""The typed columns beside a manifest: what people filter by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from policy.cluster import times
from policy.cluster.objects import (
    ClusterObject,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Queue,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceQuota,
    SchedulingPodGroup,
    Service,
    StatefulSet,
    StorageClass,
    Workload,
)
from policy.cluster.pod_groups import disruption_mode, min_count
from policy.cluster.quantities import QuantityError
from policy.cluster.requests import Requests, amounts, plain_requests, pod_requests
from policy.store.errors import InvalidValue

TableColumns: TypeAlias = dict[str, Any]
_NAMESPACE: Final = "default"


def owner_of(obj: Pod | ReplicaSet) -> str:
    """`Kind/name` of the controlling owner, "" without one."""
    for reference in obj.metadata.owner_references or ():
        if reference.controller:
            return f"{reference.kind}/{reference.name}"
    return ""


def _millis(text: str | None) -> int | None:
    return times.parse(text) if text else None


def _text(value: int | str | None) -> str | None:
    return None if value is None else str(value)


def _node(node: Node) -> TableColumns:
    allocatable = amounts(node.status.allocatable)
    return {
        "name": node.metadata.name,
        "cpu_milli": allocatable.get("cpu", 0),
        "memory_bytes": allocatable.get("memory", 0),
        "pod_capacity": allocatable.get("pods", 0),
        "unschedulable": node.spec.unschedulable,
    }


POD_COLUMNS: Final = (
    "namespace",
    "name",
    "uid",
    "node",
    "priority",
    "priority_class",
    "phase",
    "start_ms",
    "nominated_node",
    "terminating",
    "owner",
    "cpu_milli",
    "memory_bytes",
)


def _pod_values(pod: Pod, owner: str, requests: Requests) -> tuple[Any, ...]:
    """In the order of `POD_COLUMNS`."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return (
        meta.namespace or _NAMESPACE,
        meta.name,
        meta.uid,
        spec.node_name,
        spec.priority or 0,
        spec.priority_class_name,
        status.phase,
        _millis(status.start_time),
        status.nominated_node_name,
        bool(meta.deletion_timestamp),
        owner,
        requests.get("cpu", 0),
        requests.get("memory", 0),
    )


def _pod(pod: Pod) -> TableColumns:
    requests = pod_requests(pod, on_node=bool(pod.spec.node_name))
    return dict(zip(POD_COLUMNS, _pod_values(pod, owner_of(pod), requests), strict=True))


def _budget(budget: PodDisruptionBudget) -> TableColumns:
    return {
        "namespace": budget.metadata.namespace or _NAMESPACE,
        "name": budget.metadata.name,
        "min_available": _text(budget.spec.min_available),
        "max_unavailable": _text(budget.spec.max_unavailable),
        "disruptions_allowed": budget.status.disruptions_allowed,
    }


def _priority_class(of: PriorityClass) -> TableColumns:
    return {
        "name": of.metadata.name,
        "value": of.value,
        "global_default": of.global_default,
        "preemption_policy": of.preemption_policy or "",
    }


def _pod_group(group: PodGroup) -> TableColumns:
    return {
        "namespace": group.metadata.namespace or _NAMESPACE,
        "name": group.metadata.name,
        "min_member": group.spec.min_member,
        "queue": group.spec.queue,
        "priority_class": group.spec.priority_class_name,
        "phase": group.status.phase,
    }


def _scheduling_pod_group(group: SchedulingPodGroup) -> TableColumns:
    spec = group.spec
    return {
        "namespace": group.metadata.namespace or _NAMESPACE,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "min_count": min_count(group),
        "priority": spec.priority or 0,
        "priority_class": spec.priority_class_name,
        "disruption_mode": disruption_mode(group),
        "scheduled": any(
            c.type == "PodGroupScheduled" and c.status == "True"
            for c in group.status.conditions or ()
        ),
    }


def _workload(workload: Workload) -> TableColumns:
    spec = workload.spec
    return {
        "namespace": workload.metadata.namespace or _NAMESPACE,
        "name": workload.metadata.name,
        "template_count": len(spec.pod_groups or ()) + len(spec.pod_group_templates or ()),
    }


def _volume(volume: PersistentVolume) -> TableColumns:
    claim = volume.spec.claim_ref
    return {
        "name": volume.metadata.name,
        "claim": f"{claim.namespace}/{claim.name}" if claim is not None else "",
    }


def _claim(claim: PersistentVolumeClaim) -> TableColumns:
    return {
        "namespace": claim.metadata.namespace or _NAMESPACE,
        "name": claim.metadata.name,
        "volume": claim.spec.volume_name,
        "storage_class": claim.spec.storage_class_name or "",
    }


def _queue(queue: Queue) -> TableColumns:
    spec = queue.spec
    return {
        "name": queue.metadata.name,
        "weight": spec.weight,
        "priority": spec.priority,
        "parent": spec.parent,
        "reclaimable": spec.reclaimable is not False,
        "state": queue.status.state,
    }


def _quota(quota: ResourceQuota) -> TableColumns:
    return {
        "namespace": quota.metadata.namespace or _NAMESPACE,
        "name": quota.metadata.name,
    }


def _storage_class(of: StorageClass) -> TableColumns:
    return {
        "name": of.metadata.name,
        "provisioner": of.provisioner,
        "binding_mode": of.volume_binding_mode or "Immediate",
    }


def _capacity(capacity: CSIStorageCapacity) -> TableColumns:
    return {**_within(capacity), "storage_class": capacity.storage_class_name}


def _replica_set(replica_set: ReplicaSet) -> TableColumns:
    return {**_within(replica_set), "owner": owner_of(replica_set)}


def _resource_claim(claim: ResourceClaim) -> TableColumns:
    return {**_within(claim), "allocated": claim.status.allocation is not None}


def _within(
    obj: Service
    | ReplicationController
    | ReplicaSet
    | StatefulSet
    | CSIStorageCapacity
    | ResourceClaim,
) -> TableColumns:
    return {"namespace": obj.metadata.namespace or _NAMESPACE, "name": obj.metadata.name}


def _name_only(obj: Namespace | CSINode | CSIDriver) -> TableColumns:
    return {"name": obj.metadata.name}


_COLUMNS: Final[Mapping[str, Callable[[Any], TableColumns]]] = {
    "Node": _node,
    "Pod": _pod,
    "PodDisruptionBudget": _budget,
    "PriorityClass": _priority_class,
    "Namespace": _name_only,
    "PodGroup": _pod_group,
    "Queue": _queue,
    "SchedulingPodGroup": _scheduling_pod_group,
    "Workload": _workload,
    "ResourceQuota": _quota,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "CSINode": _name_only,
    "StorageClass": _storage_class,
    "CSIDriver": _name_only,
    "CSIStorageCapacity": _capacity,
    "Service": _within,
    "ReplicationController": _within,
    "ReplicaSet": _replica_set,
    "StatefulSet": _within,
    "ResourceClaim": _resource_claim,
}


def columns_of(kind: str, key: str, obj: ClusterObject) -> TableColumns:
    """Values of the typed columns. Raises StoreError for a quantity or time that is none."""
    try:
        return _COLUMNS[kind](obj)
    except (QuantityError, times.TimeError) as exc:
        raise _unusable(kind, key, exc) from exc


def _unusable(kind: str, key: str, error: Exception) -> InvalidValue:
    return InvalidValue(f"{kind} `{key}`: {error}")


class PodValues:
    """Values of many pods, with what was found out by the identity of the parts they share.

    The pods live meanwhile.
    """

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self._requests: dict[int, Requests] = {}

    def of(self, key: str, pod: Pod) -> tuple[Any, ...]:
        """In the order of `POD_COLUMNS`. Raises StoreError as `columns_of` does."""
        references, containers = id(pod.metadata.owner_references), id(pod.spec.containers)
        try:
            owner = self._owners.get(references)
            if owner is None:
                owner = self._owners[references] = owner_of(pod)
            plain = plain_requests(pod)
            requests = self._requests.get(containers) if plain else None
            if requests is None:
                requests = pod_requests(pod, on_node=bool(pod.spec.node_name))
                if plain:
                    self._requests[containers] = requests
            return _pod_values(pod, owner, requests)
        except (QuantityError, times.TimeError) as exc:
            raise _unusable("Pod", key, exc) from exc
