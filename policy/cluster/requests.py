"""Resource requests of a pod, exactly as a scheduler of a given generation adds them up.

Sources: component-helpers `resource.PodRequests` (1.35), scheduler `calculateResource` of 1.14 to
1.28. Sums are exact (nano units) and rounded up once, at the end: cpu to milli, the rest to units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from policy.cluster import quantities
from policy.cluster.objects import (
    Container,
    ContainerStatus,
    Pod,
    Quantity,
    ResourceRequirements,
)

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL: Final = "ephemeral-storage"
PODS: Final = "pods"

Requests = dict[str, int]
"""Resource name -> milli cpu, bytes or units; zero requests that were named are kept."""


class RequestRules(NamedTuple):
    """What counts, by generation. The defaults are those of 1.36.

    A tuple, because it is the key of many look-ups, which hash and compare it.
    """

    sidecars: bool = True  #: restartable init containers add to the sum (1.29)
    pod_level: bool = True  #: `spec.resources` replaces the sum (1.34)
    pod_level_resize: bool = True  #: of pods on nodes, the larger of it and the status (1.36)
    resize: bool = True  #: the larger of spec and status for pods on nodes (1.33)
    overhead: bool = True  #: `spec.overhead` (1.16)
    running_init: bool = True  #: init containers of pods that are already on a node (1.15)


CURRENT: Final = RequestRules()


def is_scalar(name: str) -> bool:
    """Is this a resource that the scheduler counts beside cpu, memory and ephemeral storage?

    Extended resources (a domain other than kubernetes.io), hugepages, `kubernetes.io/` names and
    attachable volumes; everything else is dropped.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    if "/" not in name:
        return False
    return "kubernetes.io/" in name or not name.startswith("requests.")


@lru_cache(maxsize=4096)
def counted(name: str) -> bool:
    """Does the scheduler count a resource of that name at all?"""
    return name in {CPU, MEMORY, EPHEMERAL} or is_scalar(name)


def to_base_units(*, name: str, nano: int) -> int:
    return quantities.nano_to_milli(nano) if name == CPU else quantities.nano_to_units(nano)


@lru_cache(maxsize=65536)
def _rounded(name: str, quantity: Quantity, /) -> int:
    """One quantity alone in base units; a cluster repeats few distinct ones many times."""
    return to_base_units(name=name, nano=quantities.nano(quantity))


def _add(total: dict[str, int], requests: Mapping[str, int]) -> None:
    for name, value in requests.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], requests: Mapping[str, int]) -> None:
    for name, value in requests.items():
        if name not in total or total[name] < value:
            total[name] = value


def _nano(requests: Mapping[str, Quantity] | None) -> dict[str, int]:
    if not requests:
        return {}
    nano = quantities.nano
    return {name: nano(q) for name, q in requests.items()}


def _spec_requests(container: Container) -> dict[str, int]:
    return _nano(container.resources.requests) if container.resources else {}


def _resize_infeasible(pod: Pod) -> bool:
    return any(
        c.type == "PodResizePending" and c.reason == "Infeasible"
        for c in pod.status.conditions or ()
    )


def _actual_requests(
    container: Container, statuses: Mapping[str, ContainerStatus], *, infeasible: bool
) -> dict[str, int]:
    """A running container may hold more than its spec says while it is being resized."""
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return _spec_requests(container)
    total = {} if infeasible else _spec_requests(container)
    _raise_to(total, _nano(status.resources.requests))
    _raise_to(total, _nano(status.allocated_resources))
    return total


def _by_name(*groups: Iterable[ContainerStatus] | None) -> dict[str, ContainerStatus]:
    return {status.name: status for group in groups for status in group or ()}


def _pod_level_requests(pod: Pod, *, resize: bool) -> dict[str, int]:
    """What the pod asks for as a whole; empty where it names no resource that counts there.

    resize: where the status tells, the largest of spec (left out where the resize is infeasible),
    status and allocation counts for cpu and memory; 0 where none of them names it.
    """
    asked = pod.spec.resources.requests if pod.spec.resources is not None else None
    whole = {
        name: value
        for name, value in _nano(asked).items()
        if name in {CPU, MEMORY} or name.startswith("hugepages-")
    }
    status = pod.status
    if resize and status.resources is not None:
        told = [_nano(status.resources.requests), _nano(status.allocated_resources)]
        told += [] if _resize_infeasible(pod) else [whole]
        for name in whole.keys() & {CPU, MEMORY}:
            whole[name] = max(found.get(name, 0) for found in told)
    return whole


def pod_requests(pod: Pod, *, on_node: bool, rules: RequestRules = CURRENT) -> Requests:
    """What the pod asks for.

    `on_node`: as the scheduler counts a pod that occupies a node; otherwise as it counts the pod
    that it is placing. Raises QuantityError.
    """
    spec = pod.spec
    use_status = on_node and rules.resize and bool(pod.status.container_statuses)
    statuses: Mapping[str, ContainerStatus] = {}
    infeasible = False
    if use_status:
        statuses = _by_name(pod.status.container_statuses, pod.status.init_container_statuses)
        infeasible = _resize_infeasible(pod)

    plain = not (use_status or spec.init_containers or spec.overhead or spec.resources)
    if plain and spec.containers and len(spec.containers) == 1:
        resources = spec.containers[0].resources
        requests = (resources.requests if resources else None) or {}
        return {name: _rounded(name, q) for name, q in requests.items() if counted(name)}

    total: dict[str, int] = {}
    for container in spec.containers or ():
        if use_status:
            _add(total, _actual_requests(container, statuses, infeasible=infeasible))
        else:
            _add(total, _spec_requests(container))

    if spec.init_containers and (rules.running_init or not on_node):
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}
        for container in spec.init_containers:
            if rules.sidecars and container.restart_policy == "Always":
                own = (
                    _actual_requests(container, statuses, infeasible=infeasible)
                    if use_status
                    else _spec_requests(container)
                )
                _add(total, own)
                _add(sidecars, own)
                _raise_to(peak, sidecars)
            else:
                own = _spec_requests(container)
                _add(own, sidecars)
                _raise_to(peak, own)
        _raise_to(total, peak)

    if rules.pod_level:
        resize = on_node and rules.resize and rules.pod_level_resize
        total |= _pod_level_requests(pod, resize=resize)
    if rules.overhead and spec.overhead:
        _add(total, _nano(spec.overhead))
    return {n: to_base_units(name=n, nano=v) for n, v in total.items() if counted(n)}


def plain_requests(pod: Pod) -> bool:
    """Do the requests depend on the pod's containers alone?"""
    spec = pod.spec
    return not (
        spec.init_containers or spec.overhead or spec.resources or pod.status.container_statuses
    )


def amounts(resources: Mapping[str, Quantity] | None) -> Requests:
    """Base units of a resource list (a node's allocatable), `pods` included."""
    return {
        name: _rounded(name, q)
        for name, q in (resources or {}).items()
        if counted(name) or name == PODS
    }


def pod_limits(pod: Pod) -> Requests:
    """The limits of a pod in base units.

    The sum of its containers', or the largest of one init container; pod-level limits replace it.
    """
    total: dict[str, int] = {}
    for container in pod.spec.containers or ():
        _add(total, _nano(container.resources.limits) if container.resources else {})
    for container in pod.spec.init_containers or ():
        limits = _nano(container.resources.limits) if container.resources else {}
        if container.restart_policy == "Always":
            _add(total, limits)
        else:
            _raise_to(total, limits)
    if pod.spec.resources is not None:
        total.update(_nano(pod.spec.resources.limits))
    return {name: to_base_units(name=name, nano=nano) for name, nano in total.items()}


def qos_class(pod: Pod) -> str:
    """The pod's QoS class: what its status says, else as an API server computes it.

    Only cpu and memory count. Guaranteed: every container, init containers included, has limits
    for both and requests equal to them; BestEffort: none has a request or a limit. Where the pod
    has resources of its own (pod-level), these stand for its containers'.
    """
    if pod.status.qos_class:
        return pod.status.qos_class
    if pod.spec.resources is not None:
        parts = [pod.spec.resources]
    else:
        every = [*(pod.spec.containers or ()), *(pod.spec.init_containers or ())]
        parts = [c.resources or ResourceRequirements() for c in every]
    guaranteed, some = True, False
    for part in parts:
        limits = {n: q for n, q in _nano(part.limits).items() if n in _OF_QOS and q}
        requests = {n: q for n, q in _nano(part.requests).items() if n in _OF_QOS and q}
        some = some or bool(limits or requests)
        # Where only a limit is given, the request equals it.
        if limits.keys() != _OF_QOS or any(limits.get(n) != q for n, q in requests.items()):
            guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


_OF_QOS: Final = frozenset({CPU, MEMORY})
