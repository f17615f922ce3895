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


class Sharing:
    """The parts that were met so far."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[str, bytes], Any] = {}

    def pod(self, pod: Pod) -> None:
        """Let a pod that was just decoded, and that is not in use elsewhere, use what is there."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        text = self._texts.setdefault
        if meta.namespace:
            force_setattr(meta, "namespace", text(meta.namespace, meta.namespace))
        if spec.node_name:
            force_setattr(spec, "node_name", text(spec.node_name, spec.node_name))
        if spec.priority_class_name:
            name = spec.priority_class_name
            force_setattr(spec, "priority_class_name", text(name, name))
        if spec.preemption_policy:
            name = spec.preemption_policy
            force_setattr(spec, "preemption_policy", text(name, name))
        if spec.scheduler_name:
            force_setattr(spec, "scheduler_name", text(spec.scheduler_name, spec.scheduler_name))
        if status.phase:
            force_setattr(status, "phase", text(status.phase, status.phase))
        if status.qos_class:
            force_setattr(status, "qos_class", text(status.qos_class, status.qos_class))
        if meta.labels is not None:
            self._share(meta, "labels", meta.labels)
        if meta.owner_references is not None:
            self._share(meta, "owner_references", meta.owner_references)
        if spec.containers is not None:
            self._share(spec, "containers", spec.containers)
        if spec.init_containers is not None:
            self._share(spec, "init_containers", spec.init_containers)
        if spec.tolerations is not None:
            self._share(spec, "tolerations", spec.tolerations)
        if spec.affinity is not None:
            self._share(spec, "affinity", spec.affinity)
        if spec.topology_spread_constraints is not None:
            constraints = spec.topology_spread_constraints
            self._share(spec, "topology_spread_constraints", constraints)
        if spec.node_selector is not None:
            self._share(spec, "node_selector", spec.node_selector)

    def _share(self, owner: Any, name: str, part: Any) -> None:
        # Equal texts are equal parts; those whose keys are ordered otherwise stay apart.
        force_setattr(owner, name, self._parts.setdefault((name, _ENCODE(part)), part))
