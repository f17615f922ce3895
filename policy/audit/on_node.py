"""What is on a node, in the order in which it is kept, and what would go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from policy.cluster import times
from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.requests import pod_requests
from policy.cluster.snapshot import Snapshot
from policy.preemption.columns import FrozenHistory, Lazy, victim_variables
from policy.preemption.importance import Importance
from policy.rules import RuleSet
from policy.rules.ruleset import ImportanceKey
from policy.store import Store
from policy.store.read.nominated import NominatedPod

ORDER: Final = "kube-1.36"
"""The shipped rule set whose order it is: that of kube-scheduler since 1.20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOnNode:
    """A pod with what it holds."""

    pod: str
    priority: int
    priority_class: str
    started_ms: int | None
    cpu_milli: int
    memory_bytes: int
    phase: str
    leaving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """A node of one cluster, in the newest state."""

    cluster: str
    node: Node | None  #: None where pods are on it, and it is gone
    objects: tuple[Pod, ...]  #: the most important first
    pods: tuple[PodOnNode, ...]  #: the same
    first_to_go: str  #: the least important one that is not leaving already; "" for none
    nominated: tuple[NominatedPod, ...]


def on_node(store: Store, name: str, *, now_ms: int) -> list[NodeNow]:
    """The node of that name in every cluster that has it, or pods on it, or pods that wait for it.

    now_ms: a pod that has not started counts as starting then.
    """
    here = store.state.on_node(name)
    waiting = store.read.nominated_to(name)
    found = []
    for cluster in sorted({*here, *(one.cluster for one in waiting)}):
        node, pods = here.get(cluster, (None, []))
        ordered = by_importance(pods, now_ms=now_ms)
        told = tuple(_told(pod) for pod in ordered)
        found.append(
            NodeNow(
                cluster=cluster,
                node=node,
                objects=tuple(ordered),
                pods=told,
                first_to_go=next((one.pod for one in reversed(told) if not one.leaving), ""),
                nominated=tuple(one for one in waiting if one.cluster == cluster),
            )
        )
    return found


def by_importance(pods: Sequence[Pod], *, now_ms: int) -> list[Pod]:
    """The pods as kube-scheduler's rules order them, the most important first."""
    if not pods:
        return []
    # Nothing is decided or recorded on this snapshot: it needs no digest.
    snapshot = Snapshot.from_objects(pods, now_ms=now_ms, state_digest="")
    variables = Lazy(*victim_variables(snapshot))
    importance = Importance(snapshot, _keys(), variables, FrozenHistory({}))
    rows = np.arange(len(snapshot.pods), dtype=np.int64)
    order = np.lexsort(tuple(reversed(importance.keys(rows))))
    by_key = {key_of(pod): pod for pod in pods}
    return [by_key[snapshot.keys[row]] for row in order.tolist()]


@cache
def _keys() -> tuple[ImportanceKey, ...]:
    return RuleSet.load(ORDER).victims.importance


def _told(pod: Pod) -> PodOnNode:
    holds = pod_requests(pod, on_node=True)
    started_ms = times.parse_optional(pod.status.start_time)
    return PodOnNode(
        pod=key_of(pod),
        priority=pod.spec.priority or 0,
        priority_class=pod.spec.priority_class_name,
        started_ms=None if started_ms == times.MISSING else started_ms,
        cpu_milli=holds.get("cpu", 0),
        memory_bytes=holds.get("memory", 0),
        phase=pod.status.phase,
        leaving=pod.metadata.deletion_timestamp is not None,
    )
