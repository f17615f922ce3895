"""Equal parts of pods as one object: a cluster repeats few containers, labels and names.

A pod takes half the memory so, and whatever is computed of a part can be looked up by the part's
identity (`tables.PodColumn.parts`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from policy.cluster.objects import Pod

_ENCODE: Final = msgspec.json.Encoder().encode
_RARER: Final = (
    "init_containers",
    "tolerations",
    "affinity",
    "topology_spread_constraints",
    "node_selector",
)
"""Parts of specs that few pods have in the clusters that are large."""


class Sharing:
    """The parts that were met so far.

    Equal texts are equal parts; those whose keys are ordered otherwise stay apart.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._labels: dict[bytes, Any] = {}
        self._owners: dict[bytes, Any] = {}
        self._containers: dict[bytes, Any] = {}
        self._rarer: dict[tuple[str, bytes], Any] = {}

    def pod(self, pod: Pod) -> None:
        """Let a pod that was just decoded, and that is not in use elsewhere, use what is there."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        text, share = self._texts.setdefault, force_setattr
        if found := meta.namespace:
            share(meta, "namespace", text(found, found))
        if found := spec.node_name:
            share(spec, "node_name", text(found, found))
        if found := spec.priority_class_name:
            share(spec, "priority_class_name", text(found, found))
        if policy := spec.preemption_policy:
            share(spec, "preemption_policy", text(policy, policy))
        if found := spec.scheduler_name:
            share(spec, "scheduler_name", text(found, found))
        if found := status.phase:
            share(status, "phase", text(found, found))
        if found := status.qos_class:
            share(status, "qos_class", text(found, found))
        if (labels := meta.labels) is not None:
            share(meta, "labels", self._labels.setdefault(_ENCODE(labels), labels))
        if (owners := meta.owner_references) is not None:
            share(meta, "owner_references", self._owners.setdefault(_ENCODE(owners), owners))
        if (containers := spec.containers) is not None:
            known = self._containers.setdefault(_ENCODE(containers), containers)
            share(spec, "containers", known)
        if (
            spec.init_containers is None
            and spec.tolerations is None
            and spec.affinity is None
            and spec.topology_spread_constraints is None
            and spec.node_selector is None
        ):
            return  # nearly all
        for name in _RARER:
            part = getattr(spec, name)
            if part is not None:
                share(spec, name, self._rarer.setdefault((name, _ENCODE(part)), part))
