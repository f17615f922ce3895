"""Pods that are alike: what replicas have in common is checked once.

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

from policy.cluster import times
from policy.cluster.names import is_dns_label, is_repeated_subdomain, is_subdomain
from policy.cluster.objects import Pod
from policy.manifests import admission
from policy.manifests.fields import Mismatch

_ENCODE: Final = msgspec.json.Encoder().encode
_MOST: Final = 50_000
"""Templates that are remembered; of the pods of others everything is checked."""


class Alike:
    """The templates that were found to be good."""

    def __init__(self) -> None:
        self._good: set[bytes] = set()

    def add(self, template: bytes) -> None:
        """Nothing is wrong with a pod of this template."""
        if len(self._good) < _MOST:
            self._good.add(template)

    def is_good(self, pod: Pod, template: bytes) -> bool:
        """Whether the checks would find nothing; False also where that is not known."""
        return template in self._good and _own_is_good(pod)


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
    return (
        is_subdomain(meta.name)
        and (not meta.namespace or is_dns_label(meta.namespace))
        and (not spec.node_name or is_repeated_subdomain(spec.node_name))
        and (not status.nominated_node_name or is_repeated_subdomain(status.nominated_node_name))
        and (not meta.annotations or _annotations_are_good(meta.annotations))
        and _is_time(meta.creation_timestamp)
        and _is_time(meta.deletion_timestamp)
        and (status.start_time == meta.creation_timestamp or _is_time(status.start_time))
        and (
            not status.conditions
            or all(_is_time(condition.last_transition_time) for condition in status.conditions)
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


def _is_time(text: str | None) -> bool:
    """Whether it is a time, or not there."""
    if not text or _USUAL(text):
        return True
    try:
        times.parse(text)
    except times.TimeError:
        return False
    return True
