"""Values that have the right type and still make no sense: quantities, times, names, ranges.

Label syntax is not checked: real dumps and test clusters hold labels that an API server would
refuse, and matching them is well defined all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from policy.cluster import quantities, times
from policy.cluster.objects import (
    NAMESPACED,
    ClusterObject,
    Container,
    ContainerStatus,
    CSINode,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodSpec,
    PriorityClass,
    Quantity,
    Queue,
    ResourceRequirements,
)
from policy.manifests.fields import Mismatch, child

_INT32: Final = range(-(2**31), 2**31)
_PORTS: Final = range(65536)


def problems(obj: ClusterObject) -> list[Mismatch]:
    """Everything that is wrong with the values of one object; empty where it can be used."""
    found = list(_metadata(obj.metadata, namespaced=type(obj).__name__ in NAMESPACED))
    check = _CHECKS.get(type(obj))
    if check is not None:
        found.extend(check(obj))
    return found


def _metadata(meta: ObjectMeta, *, namespaced: bool) -> Iterator[Mismatch]:
    if not meta.name:
        yield Mismatch("metadata.name", "missing", "every object needs a name")
    elif "/" in meta.name:
        yield Mismatch("metadata.name", f"`{meta.name[:80]}` holds a `/`")
    if namespaced and "/" in meta.namespace:
        yield Mismatch("metadata.namespace", f"`{meta.namespace[:80]}` holds a `/`")
    yield from _time(meta.creation_timestamp, "metadata.creationTimestamp")
    yield from _time(meta.deletion_timestamp, "metadata.deletionTimestamp")


def _time(text: str | None, path: str) -> Iterator[Mismatch]:
    if text:
        try:
            times.parse(text)
        except times.TimeError as exc:
            yield Mismatch(path, str(exc), "write it as `2026-11-21T00:00:00Z`")


def _whole(value: int | None, allowed: range, path: str) -> Iterator[Mismatch]:
    if value is not None and value not in allowed:
        yield Mismatch(
            path, f"`{value}` is out of range", f"from {allowed.start} to {allowed.stop - 1}"
        )


@lru_cache(maxsize=65536)
def _verdict(quantity: Quantity) -> tuple[int, str]:
    """(thousandths, error): a cluster repeats few distinct quantities many times."""
    try:
        return quantities.milli(quantity), ""
    except quantities.QuantityError as exc:
        return 0, str(exc)


def _amounts(
    resources: Mapping[str, Quantity] | None, path: str, *, negative: bool = False
) -> Iterator[Mismatch]:
    for name, quantity in (resources or {}).items():
        value, error = _verdict(quantity)
        if error:
            yield Mismatch(child(path, name), error, "for example `500m`, `2`, `1536Mi`, `1G`")
        elif value < 0 and not negative:
            yield Mismatch(child(path, name), f"`{quantity}` is negative")


def _resources(resources: ResourceRequirements | None, path: str) -> Iterator[Mismatch]:
    if resources is not None:
        if resources.requests:
            yield from _amounts(resources.requests, f"{path}.requests")
        if resources.limits:
            yield from _amounts(resources.limits, f"{path}.limits")


def _containers(containers: Iterable[Container] | None, path: str) -> Iterator[Mismatch]:
    for i, container in enumerate(containers or ()):
        if container.resources is not None:
            yield from _resources(container.resources, f"{path}[{i}].resources")
        for j, port in enumerate(container.ports or ()):
            yield from _whole(port.container_port, _PORTS, f"{path}[{i}].ports[{j}].containerPort")
            yield from _whole(port.host_port, _PORTS, f"{path}[{i}].ports[{j}].hostPort")


def _statuses(statuses: Iterable[ContainerStatus] | None, path: str) -> Iterator[Mismatch]:
    for i, status in enumerate(statuses or ()):
        if status.resources is not None:
            yield from _resources(status.resources, f"{path}[{i}].resources")
        if status.allocated_resources:
            yield from _amounts(status.allocated_resources, f"{path}[{i}].allocatedResources")


def _pod_spec(spec: PodSpec) -> Iterator[Mismatch]:
    yield from _whole(spec.priority, _INT32, "spec.priority")
    if spec.preemption_policy not in (None, "", "Never", "PreemptLowerPriority"):
        yield Mismatch(
            "spec.preemptionPolicy",
            f"`{spec.preemption_policy}` is not a preemption policy",
            "`PreemptLowerPriority` or `Never`",
        )
    yield from _containers(spec.containers, "spec.containers")
    yield from _containers(spec.init_containers, "spec.initContainers")
    yield from _amounts(spec.overhead, "spec.overhead")
    yield from _resources(spec.resources, "spec.resources")
    for i, constraint in enumerate(spec.topology_spread_constraints or ()):
        path = f"spec.topologySpreadConstraints[{i}]"
        yield from _whole(constraint.max_skew, _INT32, f"{path}.maxSkew")
        yield from _whole(constraint.min_domains, _INT32, f"{path}.minDomains")


def _pod(pod: Pod) -> Iterator[Mismatch]:
    yield from _pod_spec(pod.spec)
    status = pod.status
    yield from _time(status.start_time, "status.startTime")
    for i, condition in enumerate(status.conditions or ()):
        yield from _time(
            condition.last_transition_time, f"status.conditions[{i}].lastTransitionTime"
        )
    yield from _statuses(status.container_statuses, "status.containerStatuses")
    yield from _statuses(status.init_container_statuses, "status.initContainerStatuses")
    yield from _resources(status.resources, "status.resources")
    yield from _amounts(status.allocated_resources, "status.allocatedResources")


def _node(node: Node) -> Iterator[Mismatch]:
    # A kubelet that reserves more than there is reports a negative allocatable.
    yield from _amounts(node.status.allocatable, "status.allocatable", negative=True)
    yield from _amounts(node.status.capacity, "status.capacity", negative=True)
    for i, condition in enumerate(node.status.conditions or ()):
        yield from _time(
            condition.last_transition_time, f"status.conditions[{i}].lastTransitionTime"
        )


def _budget(budget: PodDisruptionBudget) -> Iterator[Mismatch]:
    status = budget.status
    yield from _whole(status.disruptions_allowed, _INT32, "status.disruptionsAllowed")
    for pod, since in (status.disrupted_pods or {}).items():
        yield from _time(since, child("status.disruptedPods", pod))


def _priority_class(priority_class: PriorityClass) -> Iterator[Mismatch]:
    yield from _whole(priority_class.value, _INT32, "value")
    if priority_class.preemption_policy not in (None, "", "Never", "PreemptLowerPriority"):
        yield Mismatch(
            "preemptionPolicy",
            f"`{priority_class.preemption_policy}` is not a preemption policy",
            "`PreemptLowerPriority` or `Never`",
        )


def _pod_group(group: PodGroup) -> Iterator[Mismatch]:
    yield from _whole(group.spec.min_member, _INT32, "spec.minMember")


def _queue(queue: Queue) -> Iterator[Mismatch]:
    yield from _whole(queue.spec.weight, _INT32, "spec.weight")


def _csi_node(node: CSINode) -> Iterator[Mismatch]:
    for i, driver in enumerate(node.spec.drivers or ()):
        if driver.allocatable is not None:
            path = f"spec.drivers[{i}].allocatable.count"
            yield from _whole(driver.allocatable.count, _INT32, path)


_CHECKS: Final[dict[type[ClusterObject], Callable[[Any], Iterator[Mismatch]]]] = {
    Pod: _pod,
    Node: _node,
    PodDisruptionBudget: _budget,
    PriorityClass: _priority_class,
    PodGroup: _pod_group,
    Queue: _queue,
    CSINode: _csi_node,
}
