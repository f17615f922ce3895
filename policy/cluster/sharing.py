"""Equal parts of pods as one object: a cluster repeats few containers, labels and names.

A pod takes half the memory so, and whatever is computed of a part can be looked up by the part's
identity (`tables.Column.part`).
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
        for owner, name, text in (
            (meta, "namespace", meta.namespace),
            (spec, "node_name", spec.node_name),
            (spec, "priority_class_name", spec.priority_class_name),
            (spec, "preemption_policy", spec.preemption_policy),
            (spec, "scheduler_name", spec.scheduler_name),
            (status, "phase", status.phase),
            (status, "qos_class", status.qos_class),
        ):
            if text:
                met = self._texts.setdefault(text, text)
                if met is not text:
                    force_setattr(owner, name, met)
        for owner, name, part in (
            (meta, "labels", meta.labels),
            (meta, "owner_references", meta.owner_references),
            (spec, "containers", spec.containers),
            (spec, "init_containers", spec.init_containers),
            (spec, "tolerations", spec.tolerations),
            (spec, "affinity", spec.affinity),
            (spec, "topology_spread_constraints", spec.topology_spread_constraints),
            (spec, "node_selector", spec.node_selector),
        ):
            if part is not None:
                # Equal texts are equal parts; those whose keys are ordered otherwise stay apart.
                found = self._parts.setdefault((name, _ENCODE(part)), part)
                if found is not part:
                    force_setattr(owner, name, found)
