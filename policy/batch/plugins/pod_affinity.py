"""Scores of inter-pod affinity, for nodeorder.

Source: InterPodAffinityPriority of Kubernetes 1.16. Preferred terms of the task that select a pod
count for every node in that pod's topology, and likewise the terms of pods that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from policy.batch.model import Task
from policy.batch.views import PluginView
from policy.cluster.objects import Pod, PodAffinity, PodAffinityTerm
from policy.cluster.tables import NOWHERE, Ints, LabelSet
from policy.filters.affinity_terms import AffinityTerm, compile_term
from policy.filters.base import label_matches, pods_matching

MAX = 10
REQUIRED_WEIGHT = 1
"""What a required term of a pod that is there counts."""


@dataclass(frozen=True, slots=True)
class _Weighted:
    """One term and what it counts for each node in the topology."""

    term: AffinityTerm
    weight: int


@dataclass(slots=True)
class _Carriers:
    """Tasks whose pods carry the same affinity in the same namespace."""

    tasks: list[int]
    terms: list[_Weighted]


class PodAffinityScores:
    """Scores of one session."""

    def __init__(self, session: PluginView) -> None:
        self._session = session
        self._nodes = session.snapshot.nodes
        self._rows = np.array([t.row for t in session.tasks], dtype=np.int64)
        #: whether a task's pod object names a node; those placed in this session do not
        self._named = np.array([bool(t.pod.spec.node_name) for t in session.tasks], dtype=np.bool_)
        self._groups = _group(session.tasks)

    def counts(self, task: Task) -> bool:
        """May any node have a score other than 0? Not where no pod says anything of others."""
        return bool(self._groups) or _asks(task.pod)

    def scores(self, task: Task, nodes: Ints) -> Ints | None:
        """0 to 10 for each of the nodes; None where nothing counts."""
        own = _preferred(task.pod)
        if not self.counts(task):
            return None
        scored = np.zeros(len(self._nodes), dtype=np.bool_)
        scored[nodes] = True
        place = self._session.nodes.place
        here = np.flatnonzero((place >= 0) & scored[place])
        # Where a pod is said to be, which is not always the node that holds it.
        where = np.where(self._named, place, self._stand_in())
        counts = np.zeros(len(self._nodes), dtype=np.int64)
        for weighted in own:
            self._spread(counts, weighted, where[here[self._selected(weighted.term, here)]])
        subject = LabelSet(
            namespace=task.pod.metadata.namespace or "default",
            labels=task.pod.metadata.labels or {},
        )
        present = np.zeros(len(self._session.tasks), dtype=np.bool_)
        present[here] = True
        for group in self._groups:
            holders = [i for i in group.tasks if present[i]]
            if not holders:
                continue
            for weighted in group.terms:
                if weighted.term.selects(subject, {}):
                    self._spread(counts, weighted, where[holders])
        return _normalised(counts[nodes])

    def _stand_in(self) -> int:
        """The node on which pods without a node in their object are taken to be.

        The first, by name, that holds such a pod.
        """
        place = self._session.nodes.place
        unnamed = place[(place >= 0) & ~self._named]
        return int(unnamed.min()) if unnamed.size else NOWHERE

    def _selected(self, term: AffinityTerm, tasks: Ints) -> np.ndarray:
        snapshot = self._session.snapshot
        key = ("affinity", True, (term,))
        matches = label_matches(
            snapshot, key, lambda labels: term.selects(labels, {}), within=term.selector
        )
        return pods_matching(snapshot, matches)[self._rows[tasks]]

    def _spread(self, counts: Ints, weighted: _Weighted, where: Ints) -> None:
        """Adds the term's weight to every node that shares the topology with a pod at `where`."""
        domain, domains = self._nodes.domains(weighted.term.topology_key)
        found = domain[where[where >= 0]]
        per_domain = np.bincount(found[found >= 0], minlength=domains + 1)
        per_domain[-1] = 0
        counts += weighted.weight * per_domain[domain]


def _normalised(counts: Ints) -> Ints:
    """Between the least and the most, of which one is at least 0 and the other at most 0."""
    low = min(0, int(counts.min(initial=0)))
    high = max(0, int(counts.max(initial=0)))
    if high == low:
        return np.zeros(counts.size, dtype=np.int64)
    return (float(MAX) * ((counts - low) / float(high - low))).astype(np.int64)


def _group(tasks: Sequence[Task]) -> list[_Carriers]:
    groups: dict[bytes, _Carriers] = {}
    for task in tasks:
        if not _asks(task.pod):
            continue
        key = msgspec.json.encode([task.pod.metadata.namespace, task.pod.spec.affinity])
        group = groups.get(key)
        if group is None:
            terms = [*_required(task.pod), *_preferred(task.pod)]
            group = groups[key] = _Carriers([], terms)
        group.tasks.append(task.index)
    return list(groups.values())


def _asks(pod: Pod) -> bool:
    """Does the pod say anything about other pods?"""
    affinity = pod.spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


def _required(pod: Pod) -> list[_Weighted]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return []
    terms = affinity.pod_affinity.required or ()
    return [_Weighted(_compiled(pod, term), REQUIRED_WEIGHT) for term in terms]


def _preferred(pod: Pod) -> list[_Weighted]:
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    return [
        *_of(pod, affinity.pod_affinity, sign=1),
        *_of(pod, affinity.pod_anti_affinity, sign=-1),
    ]


def _of(pod: Pod, affinity: PodAffinity | None, *, sign: int) -> list[_Weighted]:
    return [
        _Weighted(_compiled(pod, preferred.pod_affinity_term), sign * preferred.weight)
        for preferred in (affinity.preferred or () if affinity is not None else ())
    ]


def _compiled(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    # This generation knows no namespace selectors.
    plain = msgspec.structs.replace(term, namespace_selector=None)
    return compile_term(plain, namespace=pod.metadata.namespace or "default")
