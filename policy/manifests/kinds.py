"""Which kind an object is: by its `kind` and API group, or by its shape where it carries none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from policy.cluster.objects import KINDS

_CORE: Final = frozenset({""})
_STORAGE: Final = frozenset({"storage.k8s.io"})
_APPS: Final = frozenset({"apps", "extensions"})
_BATCH: Final = frozenset(
    {
        "scheduling.incubator.k8s.io",
        "scheduling.sigs.dev",
        "scheduling.sigs.k8s.io",
        "scheduling.volcano.sh",
        "scheduling.x-k8s.io",
    }
)
GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "Node": _CORE,
    "Pod": _CORE,
    "Namespace": _CORE,
    "PersistentVolume": _CORE,
    "PersistentVolumeClaim": _CORE,
    "PodDisruptionBudget": frozenset({"policy"}),
    "PriorityClass": frozenset({"scheduling.k8s.io"}),
    "CSINode": _STORAGE,
    "StorageClass": _STORAGE,
    "CSIDriver": _STORAGE,
    "CSIStorageCapacity": _STORAGE,
    "Service": _CORE,
    "ReplicationController": _CORE,
    "ReplicaSet": _APPS,
    "StatefulSet": _APPS,
    "ResourceClaim": frozenset({"resource.k8s.io"}),
    "PodGroup": _BATCH,
    "Queue": _BATCH,
    "SchedulingPodGroup": frozenset({"scheduling.k8s.io"}),
    "Workload": frozenset({"scheduling.k8s.io"}),
    "ResourceQuota": _CORE,
}
"""API groups of each used kind: a `Queue` of a message broker is none of ours."""

NO_KIND: Final = "(no kind)"

SCHEDULING: Final = "SchedulingPodGroup"
"""The kind under which a `PodGroup` of `scheduling.k8s.io` is kept."""


@lru_cache(1024)
def of(kind: str, api_version: str) -> str:
    """The kind under which an object is kept: the API group tells two kinds of one name apart."""
    group = api_version.rpartition("/")[0]
    return SCHEDULING if kind == "PodGroup" and group == "scheduling.k8s.io" else kind


@lru_cache(1024)
def used(kind: str, api_version: str) -> bool:
    """Whether the engine uses objects of this kind; an absent apiVersion is taken as fitting."""
    if kind == SCHEDULING or of(kind, api_version) not in KINDS:
        return False
    group, slash, _ = api_version.rpartition("/")
    return not api_version or (group if slash else "") in GROUPS[of(kind, api_version)]


def label(kind: str, api_version: str) -> str:
    """How a skipped object is counted: its kind, with the group where the kind alone misleads."""
    if kind in KINDS:
        return f"{kind} ({api_version})"
    return kind or NO_KIND


def by_shape(value: Mapping[str, Any]) -> str | None:
    """The kind of an object without one; NO_KIND: surely not a used one; None: cannot tell."""
    if "involvedObject" in value or "regarding" in value:
        return "Event"
    meta = value.get("metadata")
    if not isinstance(meta, Mapping):
        return NO_KIND
    spec, status = _mapping(value, "spec"), _mapping(value, "status")
    for kind, marks in _MARKS:
        if any(mark in part for part, mark in zip((spec, status), marks, strict=True) if mark):
            return kind
    if isinstance(value.get("value"), int) and "spec" not in value:
        return "PriorityClass"
    if _volume(spec):
        return _volume(spec)
    if set(spec) == {"finalizers"} or status.get("phase") in ("Active", "Terminating"):
        return "Namespace"
    if not spec and not status and not set(value) - {"metadata", "spec", "status", "apiVersion"}:
        return None
    return NO_KIND


# In this order: the first mark that is there decides. A mark is a field that every object of
# the kind has and that no other used kind has at that place.
_MARKS: Final = (
    ("Pod", ("containers", "")),
    ("Node", ("podCIDR", "nodeInfo")),
    ("Node", ("providerID", "allocatable")),
    ("PodDisruptionBudget", ("minAvailable", "disruptionsAllowed")),
    ("PodDisruptionBudget", ("maxUnavailable", "expectedPods")),
    ("PodGroup", ("minMember", "")),
    (SCHEDULING, ("schedulingPolicy", "")),
    ("CSINode", ("drivers", "")),
    ("ResourceQuota", ("hard", "")),
    ("Service", ("clusterIP", "")),
)


def _volume(spec: Mapping[str, Any]) -> str | None:
    if "accessModes" not in spec:
        return None
    if "capacity" in spec or "persistentVolumeReclaimPolicy" in spec:
        return "PersistentVolume"
    return "PersistentVolumeClaim"


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, Mapping) else {}


def capitalised(value: Mapping[str, Any]) -> str:
    """A field name as Go spells it inside (`Items`): the mark of a dump made before 1.9."""
    return next((key for key in ("Items", "Spec", "Status", "ObjectMeta") if key in value), "")
