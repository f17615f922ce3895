"""What an API server adds at admission, as a pure function over a set of objects.

Source: Kubernetes' priority admission plugin and the defaulting of `core/v1`. A dump from a real
cluster holds all of it already; hand-written manifests and dumps of old clusters do not. A
missing start time stays missing: it cannot be known.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from policy.cluster import collector
from policy.cluster.objects import (
    NAMESPACED,
    ClusterObject,
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PriorityClass,
    Quantity,
    ResourceRequirements,
    SchedulingPodGroup,
    key_of,
)
from policy.manifests.admission import SYSTEM_CLASSES
from policy.manifests.collected import ReadFrom
from policy.manifests.problems import ManifestError
from policy.manifests.reader import read_dicts
from policy.text.problems import Problem

DEFAULT_SCHEDULER: Final = "default-scheduler"
DEFAULT_POLICY: Final = "PreemptLowerPriority"


def resolve(
    objects: Sequence[ClusterObject],
    *,
    known_classes: Iterable[PriorityClass] = (),
    places: Sequence[ReadFrom] | None = None,
) -> list[ClusterObject]:
    """The objects as an API server would have stored them, in the same order.

    `known_classes` are those of the cluster that the objects will join; classes among the objects
    take precedence. `places` (parallel to `objects`) say where an object was read, for errors.
    Raises ManifestError for a pod without a number whose priority class is unknown.
    """
    classes = _Classes.of(objects, known_classes)
    problems: list[Problem] = []
    resolved: list[ClusterObject] = []
    with collector.paused():
        for i, obj in enumerate(objects):
            if type(obj) is Pod:
                try:
                    obj = _pod(obj, classes)
                except _UnknownClassError as exc:
                    place = places[i] if places else ReadFrom("", 0)
                    problems.append(exc.problem(f"Pod {key_of(obj)}", place))
            elif type(obj) is SchedulingPodGroup:
                try:
                    obj = _pod_group(obj, classes)
                except _UnknownClassError as exc:
                    place = places[i] if places else ReadFrom("", 0)
                    problems.append(exc.problem(f"PodGroup {key_of(obj)}", place))
            elif type(obj).__name__ in NAMESPACED and not obj.metadata.namespace:
                obj = replace(obj, metadata=_in_default(obj.metadata))
            resolved.append(obj)
    if problems:
        raise ManifestError(problems)
    return resolved


def default_classes(
    objects: Iterable[ClusterObject], known_classes: Iterable[PriorityClass] = ()
) -> list[PriorityClass]:
    """The global default priority classes, the one that counts first. There should be one.

    Two can exist where both were made at the same moment; admission then takes the lower value.
    """
    return list(_Classes.of(objects, known_classes).defaults)


def _in_default(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, namespace="default")


def from_dicts(
    objects: Iterable[Mapping[str, Any]], *, admission: bool = True, whole: bool = False
) -> list[ClusterObject]:
    """Decoded objects as `read_dicts` reads them, resolved. Raises ManifestError."""
    found = read_dicts(objects, admission=admission, whole=whole)
    return resolve(found.objects, places=found.places)


# --- priority ------------------------------------------------------------------------------------


class _UnknownClassError(Exception):
    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = sorted(known)

    def problem(self, of: str, place: ReadFrom) -> Problem:
        close = difflib.get_close_matches(self.name, self.known, n=1)
        return Problem(
            source=place.source,
            document=place.document,
            object=of,
            field="spec.priorityClassName",
            message=f"unknown priority class `{self.name}`",
            help=f"did you mean `{close[0]}`?"
            if close
            else "import its PriorityClass too (`kubectl get priorityclasses -o json`),"
            " or give a number in `spec.priority`",
        )


@dataclass(frozen=True, slots=True)
class _Classes:
    by_name: Mapping[str, PriorityClass]
    defaults: Sequence[PriorityClass]

    @property
    def default(self) -> PriorityClass | None:
        return self.defaults[0] if self.defaults else None

    @classmethod
    def of(cls, objects: Iterable[ClusterObject], known: Iterable[PriorityClass]) -> _Classes:
        by_name = {
            name: PriorityClass(metadata=ObjectMeta(name=name), value=value)
            for name, value in SYSTEM_CLASSES.items()
        }
        by_name.update((c.metadata.name, c) for c in known)
        by_name.update((o.metadata.name, o) for o in objects if type(o) is PriorityClass)
        defaults = [c for c in by_name.values() if c.global_default]
        defaults.sort(key=lambda c: (c.value, c.metadata.name))
        return cls(by_name, defaults)


def _pod(pod: Pod, classes: _Classes) -> Pod:
    spec = _with_requests(_with_priority(pod.spec, classes))
    if not spec.scheduler_name:
        spec = replace(spec, scheduler_name=DEFAULT_SCHEDULER)
    if spec.host_network:
        spec = _with_host_ports(spec)
    meta = pod.metadata if pod.metadata.namespace else _in_default(pod.metadata)
    if spec is pod.spec and meta is pod.metadata:
        return pod
    return replace(pod, metadata=meta, spec=spec)


def _with_priority(spec: PodSpec, classes: _Classes) -> PodSpec:
    if spec.priority is not None and spec.preemption_policy:
        return spec
    name = spec.priority_class_name
    own = classes.by_name.get(name) if name else None
    if spec.priority is None:
        if name and own is None:
            raise _UnknownClassError(name, classes.by_name)
        if not name:
            own = classes.default
    priority = spec.priority
    if priority is None:
        priority = own.value if own is not None else 0
    policy = spec.preemption_policy or (own.preemption_policy if own is not None else None)
    return replace(
        spec,
        priority=priority,
        priority_class_name=name or (own.metadata.name if own is not None else ""),
        preemption_policy=policy or DEFAULT_POLICY,
    )


def _pod_group(group: SchedulingPodGroup, classes: _Classes) -> SchedulingPodGroup:
    """A group takes the number of its class alone: the preemption policy stays with the pods."""
    meta, spec = group.metadata, group.spec
    if not meta.namespace:
        group = replace(group, metadata=replace(meta, namespace="default"))
    if spec.priority is not None:
        return group
    name = spec.priority_class_name
    own = classes.by_name.get(name) if name else classes.default
    if name and own is None:
        raise _UnknownClassError(name, classes.by_name)
    if own is None:
        return group
    spec = replace(spec, priority=own.value, priority_class_name=own.metadata.name)
    return replace(group, spec=spec)


# --- requests and ports -------------------------------------------------------------------------


def _with_requests(spec: PodSpec) -> PodSpec:
    containers = _each(spec.containers, _with_limits_as_requests)
    init_containers = _each(spec.init_containers, _with_limits_as_requests)
    if containers is not spec.containers or init_containers is not spec.init_containers:
        spec = replace(spec, containers=containers, init_containers=init_containers)
    if spec.resources is not None and spec.resources.limits:
        spec = replace(spec, resources=_pod_level(spec, spec.resources, spec.resources.limits))
    return spec


def _each(
    containers: list[Container] | None, change: Callable[[Container], Container]
) -> list[Container] | None:
    """The changed list; the same list where nothing changed."""
    for container in containers or ():
        if change(container) is not container:
            return [change(one) for one in containers or ()]
    return containers


def _with_limits_as_requests(container: Container) -> Container:
    resources = container.resources
    if resources is None or not resources.limits:
        return container
    requests = resources.requests or {}
    if resources.limits.keys() <= requests.keys():
        return container
    full = {**resources.limits, **requests}
    return replace(container, resources=replace(resources, requests=full))


def _pod_level(
    spec: PodSpec, resources: ResourceRequirements, limits: Mapping[str, Quantity]
) -> ResourceRequirements:
    """Pod-level requests from pod-level limits, where no container asks for the resource."""
    asked = {
        name
        for container in [*(spec.containers or ()), *(spec.init_containers or ())]
        if container.resources is not None
        for name in container.resources.requests or ()
    }
    requests = dict(resources.requests or {})
    for name, limit in limits.items():
        if name not in requests and name not in asked and _pod_level_resource(name):
            requests[name] = limit
    return replace(resources, requests=requests) if requests else resources


def _pod_level_resource(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _with_host_ports(spec: PodSpec) -> PodSpec:
    """On the host's network every container port is a host port."""
    containers = _each(spec.containers, _on_host)
    init_containers = _each(spec.init_containers, _on_host)
    if containers is spec.containers and init_containers is spec.init_containers:
        return spec
    return replace(spec, containers=containers, init_containers=init_containers)


def _on_host(container: Container) -> Container:
    ports = container.ports
    if not ports or all(port.host_port for port in ports):
        return container
    return replace(
        container,
        ports=[p if p.host_port else replace(p, host_port=p.container_port) for p in ports],
    )
