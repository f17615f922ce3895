"""Values that have the right type and cannot be computed with: quantities, times, ranges.

Ranges of whole numbers are part of the types (`Int32`, `Port`); here is what a type cannot say.
`admission` checks what an API server would refuse although it could be computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from policy.cluster import quantities, times
from policy.cluster.objects import (
    NAMESPACED,
    ClusterObject,
    Condition,
    Container,
    ContainerStatus,
    CSIStorageCapacity,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Quantity,
    ResourceRequirements,
)
from policy.manifests.fields import Mismatch, child, out_of_range

MOST: Final = 2**53 - 1
"""Largest amount of a pod or node in its base unit (thousandths of a core, bytes, devices).

Records keep amounts as numbers of canonical JSON, which are exact up to here, and sums over the
pods of a node stay within int64.
"""

_Found = list[Mismatch]


def problems(obj: ClusterObject) -> list[Mismatch]:
    """Everything that is wrong with the values of one object; empty where it can be used."""
    found: _Found = []
    _metadata(obj.metadata, found, namespaced=type(obj).__name__ in NAMESPACED)
    check = _CHECKS.get(type(obj))
    if check is not None:
        check(obj, found)
    return found


def _metadata(meta: ObjectMeta, found: _Found, *, namespaced: bool) -> None:
    if not meta.name:
        found.append(Mismatch("metadata.name", "missing", "every object needs a name"))
    elif "/" in meta.name:
        found.append(Mismatch("metadata.name", f"`{meta.name[:80]}` holds a `/`"))
    if namespaced and "/" in meta.namespace:
        found.append(Mismatch("metadata.namespace", f"`{meta.namespace[:80]}` holds a `/`"))
    if meta.creation_timestamp:
        _time(meta.creation_timestamp, "metadata.creationTimestamp", found)
    if meta.deletion_timestamp:
        _time(meta.deletion_timestamp, "metadata.deletionTimestamp", found)


def _time(text: str | None, path: str, found: _Found) -> None:
    if text:
        try:
            times.parse(text)
        except times.TimeError as exc:
            found.append(Mismatch(path, str(exc), "write it as `2026-11-21T00:00:00Z`"))


def _conditions(conditions: Iterable[Condition], found: _Found) -> None:
    for i, condition in enumerate(conditions):
        if condition.last_transition_time:
            path = f"status.conditions[{i}].lastTransitionTime"
            _time(condition.last_transition_time, path, found)


# --- quantities ----------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def _flaw(quantity: Quantity, thousandths: bool, negative: bool, /) -> tuple[str, str] | None:
    """(message, help) of an amount that cannot be used.

    A cluster repeats few distinct quantities many times.
    """
    try:
        nanos = quantities.nano(quantity)
    except quantities.QuantityError as exc:
        return str(exc), "for example `500m`, `2`, `1536Mi`, `1G`"
    if nanos < 0 and not negative:
        return f"`{quantity}` is negative", ""
    unit = 1_000_000 if thousandths else 1_000_000_000
    if not -MOST * unit <= nanos <= MOST * unit:
        most = f"{MOST}m" if thousandths else f"{MOST}"
        return f"`{str(quantity)[:80]}` is out of range", f"at most {most}"
    return None


def _amounts(
    resources: Mapping[str, Quantity] | None,
    found: _Found,
    *where: str | int,
    negative: bool = False,
) -> None:
    if resources:
        for name, quantity in resources.items():
            flaw = _flaw(quantity, name == "cpu", negative)
            if flaw is not None:
                found.append(Mismatch(child(_path(where), name), *flaw))


def _path(where: Iterable[str | int]) -> str:
    """`("a", 0, "b")` as `a[0].b`; built only where something is wrong."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return text.removeprefix(".")


def _resources(resources: ResourceRequirements | None, found: _Found, *where: str | int) -> None:
    if resources is not None:
        _amounts(resources.requests, found, *where, "requests")
        _amounts(resources.limits, found, *where, "limits")


def _containers(containers: Iterable[Container] | None, found: _Found, path: str) -> None:
    for i, container in enumerate(containers or ()):
        if container.resources is not None:
            _resources(container.resources, found, path, i, "resources")


def _statuses(statuses: Iterable[ContainerStatus] | None, found: _Found, path: str) -> None:
    for i, status in enumerate(statuses or ()):
        _resources(status.resources, found, path, i, "resources")
        _amounts(status.allocated_resources, found, path, i, "allocatedResources")


# --- kinds ---------------------------------------------------------------------------------------


def _pod(pod: Pod, found: _Found) -> None:
    spec, status = pod.spec, pod.status
    _containers(spec.containers, found, "spec.containers")
    if spec.init_containers:
        _containers(spec.init_containers, found, "spec.initContainers")
    if spec.overhead:
        _amounts(spec.overhead, found, "spec.overhead")
    if spec.resources is not None:
        _resources(spec.resources, found, "spec.resources")
    grace = spec.termination_grace_period_seconds
    if grace is not None and grace > times.LONGEST_GRACE_SECONDS:
        path = "spec.terminationGracePeriodSeconds"
        found.append(out_of_range(grace, path, least=0, most=times.LONGEST_GRACE_SECONDS))
    if status.start_time:
        _time(status.start_time, "status.startTime", found)
    if status.conditions:
        _conditions(status.conditions, found)
    if status.container_statuses:
        _statuses(status.container_statuses, found, "status.containerStatuses")
    if status.init_container_statuses:
        _statuses(status.init_container_statuses, found, "status.initContainerStatuses")
    if status.resources is not None:
        _resources(status.resources, found, "status.resources")
    if status.allocated_resources:
        _amounts(status.allocated_resources, found, "status.allocatedResources")


def _node(node: Node, found: _Found) -> None:
    # A kubelet that reserves more than there is reports a negative allocatable.
    _amounts(node.status.allocatable, found, "status.allocatable", negative=True)
    _amounts(node.status.capacity, found, "status.capacity", negative=True)
    _conditions(node.status.conditions or (), found)


def _budget(budget: PodDisruptionBudget, found: _Found) -> None:
    for pod, since in (budget.status.disrupted_pods or {}).items():
        _time(since, child("status.disruptedPods", pod), found)


def _volume(volume: PersistentVolume, found: _Found) -> None:
    _amounts(volume.spec.capacity, found, "spec.capacity")


def _claim(claim: PersistentVolumeClaim, found: _Found) -> None:
    if claim.spec.resources is not None:
        _amounts(claim.spec.resources.requests, found, "spec.resources.requests")


def _capacity(capacity: CSIStorageCapacity, found: _Found) -> None:
    limits = {"capacity": capacity.capacity, "maximumVolumeSize": capacity.maximum_volume_size}
    _amounts({name: value for name, value in limits.items() if value is not None}, found)


_CHECKS: Final[dict[type[ClusterObject], Callable[[Any, _Found], None]]] = {
    Pod: _pod,
    Node: _node,
    PodDisruptionBudget: _budget,
    PersistentVolume: _volume,
    PersistentVolumeClaim: _claim,
    CSIStorageCapacity: _capacity,
}
