"""Pods that are alike: what replicas have in common is checked once, and kept once.

A cluster of a hundred thousand pods has some thousand templates. What `checks` and `admission` look
at in a pod is either its own (names, times, annotations), and looked at for every pod, or the same
for all replicas, and then known to be good by its text. Nothing is reported here: a pod that is not
known to be good is checked in full.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from policy.cluster import times
from policy.cluster.names import is_dns_label, is_repeated_subdomain, is_subdomain
from policy.cluster.objects import Pod
from policy.manifests import admission
from policy.manifests.fields import Mismatch

_ENCODE: Final = msgspec.json.Encoder().encode
_MOST: Final = 50_000
"""Templates that are remembered; of the pods of others everything is checked."""


class Alike:
    """The templates that were found to be good, each with the first pod of it."""

    def __init__(self) -> None:
        self._good: dict[bytes, Pod] = {}

    def add(self, template: bytes, pod: Pod) -> None:
        """Nothing is wrong with this pod of the template."""
        if len(self._good) < _MOST:
            self._good[template] = pod

    def is_good(self, pod: Pod, template: bytes) -> bool:
        """Whether the checks would find nothing; False also where that is not known.

        A good pod, which must be new, takes over the parts of the first one of its template.
        """
        first = self._good.get(template)
        if first is None or not _own_is_good(pod):
            return False
        _take_over(pod, first)
        return True


def _take_over(pod: Pod, first: Pod) -> None:
    """Let the pod use the parts of another one that are equal, instead of its own."""
    meta, spec, of_meta, of_spec = pod.metadata, pod.spec, first.metadata, first.spec
    if meta.labels is not None:
        force_setattr(meta, "labels", of_meta.labels)
    if meta.owner_references is not None:
        force_setattr(meta, "owner_references", of_meta.owner_references)
    if spec.containers is not None:
        force_setattr(spec, "containers", of_spec.containers)
    if spec.init_containers is not None:
        force_setattr(spec, "init_containers", of_spec.init_containers)
    if spec.affinity is not None:
        force_setattr(spec, "affinity", of_spec.affinity)
    if spec.tolerations is not None:
        force_setattr(spec, "tolerations", of_spec.tolerations)


def template_of(pod: Pod) -> bytes:
    """All that is checked about a pod and not by `_own_is_good`; equal for equal replicas."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return _ENCODE(
        (
            meta.labels,
            meta.owner_references,
            spec.priority_class_name,
            spec.preemption_policy,
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.termination_grace_period_seconds,
            status.container_statuses,
            status.init_container_statuses,
            status.resources,
            status.allocated_resources,
        )
    )


def _own_is_good(pod: Pod) -> bool:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    created, start = meta.creation_timestamp, status.start_time
    return (
        is_subdomain(meta.name)
        and (not meta.namespace or is_dns_label(meta.namespace))
        and (not spec.node_name or is_repeated_subdomain(spec.node_name))
        and (not status.nominated_node_name or is_repeated_subdomain(status.nominated_node_name))
        and (not meta.annotations or _annotations_are_good(meta.annotations))
        and (not created or _is_time(created))
        and (not meta.deletion_timestamp or _is_time(meta.deletion_timestamp))
        and (not start or start == created or _is_time(start))
        and (
            not status.conditions
            or all(
                not condition.last_transition_time or _is_time(condition.last_transition_time)
                for condition in status.conditions
            )
        )
    )


def _annotations_are_good(annotations: Mapping[str, str]) -> bool:
    found: list[Mismatch] = []
    admission.check_annotations(annotations, found)
    return not found


_USUAL: Final = re.compile(
    r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
).fullmatch
"""What an API server writes, on a day that every month has."""


def _is_time(text: str) -> bool:
    if _USUAL(text):
        return True
    try:
        times.parse(text)
    except times.TimeError:
        return False
    return True
