"""pod-affinity: preferred affinity and anti-affinity between pods, both ways.

The incoming pod's preferred terms draw it to (or away from) pods that are there, and theirs draw
it to (or away from) them; the required affinity of pods that are there draws it, too.

Source: InterPodAffinity's PreScore, Score and NormalizeScore (1.35).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import numpy as np

from policy.cluster.objects import Pod, PodAffinityTerm, WeightedPodAffinityTerm
from policy.cluster.tables import NOWHERE, Bools, Ints, LabelSet, PodColumn, Pools
from policy.filters.affinity_terms import AffinityTerm, compile_term, unrolled
from policy.filters.base import (
    Incoming,
    Nodes,
    Parameter,
    Parameters,
    label_matches,
    pods_matching,
)
from policy.scoring.base import MAX, ScorerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A term with the weight by which it draws; negative where it drives away."""

    term: AffinityTerm
    weight: int
    required: bool  #: its weight is a parameter


def _weighted(
    terms: list[WeightedPodAffinityTerm] | None, *, namespace: str, sign: int
) -> list[Pull]:
    return [
        Pull(
            term=compile_term(w.pod_affinity_term, namespace=namespace),
            weight=sign * w.weight,
            required=False,
        )
        for w in terms or ()
    ]


def preferred_pulls(pod: Pod) -> list[Pull]:
    """The pod's preferred terms, drawing and driving."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    namespace = pod.metadata.namespace or "default"
    to, away = affinity.pod_affinity, affinity.pod_anti_affinity
    return [
        *_weighted(to.preferred if to else None, namespace=namespace, sign=1),
        *_weighted(away.preferred if away else None, namespace=namespace, sign=-1),
    ]


def _required_pulls(terms: list[PodAffinityTerm] | None, *, namespace: str) -> list[Pull]:
    return [
        Pull(term=compile_term(t, namespace=namespace), weight=0, required=True)
        for t in terms or ()
    ]


def _pulls_id(pod: Pod, pools: Pools) -> int:
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NOWHERE
    to, away = affinity.pod_affinity, affinity.pod_anti_affinity
    parts = (to, away.preferred if away else None)
    namespace = pod.metadata.namespace or "default"
    key = (namespace, msgspec.json.encode(parts))
    pool = pools.named("affinity pulls")
    found = pool.ids.get(key)
    if found is not None:
        return found
    required = _required_pulls(to.required if to else None, namespace=namespace)
    pulls = (*required, *preferred_pulls(pod))
    return pool.intern(key, pulls)


PULLS: Final = PodColumn("affinity_pulls", np.int32, _pulls_id)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Draw:
    """Pods that draw the incoming pod to their domains of one topology."""

    topology_key: str
    rows: Ints
    weights: Ints  #: parallel to `rows`
    nodes: Bools | None = None  #: (nodes,) where they do so; None: wherever they are


def _selects(term: AffinityTerm, pod: LabelSet) -> bool:
    return term.selects(pod, {})


def _own(
    incoming: Incoming, pulls: list[Pull], there: Bools, *, keep_selector: bool
) -> Iterator[Draw]:
    """Pods that the incoming pod's terms select pull it."""
    snapshot = incoming.snapshot
    for pull in pulls:
        term = unrolled(pull.term, snapshot.namespace_labels, keep_selector=keep_selector)
        matches = label_matches(
            snapshot, ("preferred", term), partial(_selects, term), within=term.selector
        )
        rows = np.flatnonzero(pods_matching(snapshot, matches) & there)
        weights = np.full(rows.size, pull.weight, dtype=np.int64)
        yield Draw(topology_key=term.topology_key, rows=rows, weights=weights)


def _of_others(
    incoming: Incoming, there: Bools, *, required_weight: int, every_node: bool
) -> Iterator[Draw]:
    """Pods whose terms select the incoming pod pull it.

    every_node: nodes are looked through that the list of nodes with affinity does not name, too.
    """
    snapshot = incoming.snapshot
    column = snapshot.column(PULLS)
    sets = snapshot.pools.named("affinity pulls").values
    labels = snapshot.namespace_labels.get(incoming.namespace, {})
    weights: dict[str, Ints] = {}
    selects: dict[str, Bools] = {}
    for i, pulls in enumerate(sets):
        for pull in pulls:
            weight = required_weight if pull.required else pull.weight
            if weight and pull.term.selects(incoming.label_set, labels):
                key = pull.term.topology_key
                weights.setdefault(key, np.zeros(len(sets), dtype=np.int64))[i] += weight
                selects.setdefault(key, np.zeros(len(sets), dtype=np.bool_))[i] = True
    carriers = np.flatnonzero((column >= 0) & there)
    flight = incoming.in_flight
    nodes = None if flight is None or every_node else flight.with_affinity
    for key, of_set in weights.items():
        rows = carriers[selects[key][column[carriers]]]
        yield Draw(topology_key=key, rows=rows, weights=of_set[column[rows]], nodes=nodes)


def draws(incoming: Incoming, parameters: Parameters, there: Bools) -> Iterator[Draw]:
    """What draws the pod, of the pods that are `there`; (pods,)."""
    pulls = preferred_pulls(incoming.pod)
    if not pulls and parameters["ignoreTermsOfOthers"]:
        return
    yield from _own(incoming, pulls, there, keep_selector=parameters["namespaceSelector"] == "kept")
    yield from _of_others(
        incoming,
        there,
        required_weight=parameters["requiredWeight"],
        every_node=bool(pulls),
    )


def scaled(raw: Ints) -> Ints:
    """Sums of weights as values; (n,)."""
    smallest, largest = int(raw.min()), int(raw.max())
    if largest == smallest:
        return np.zeros_like(raw)
    return (MAX * ((raw - smallest) / (largest - smallest))).astype(np.int64)


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints | None:
    snapshot = incoming.snapshot
    totals: dict[str, Ints] = {}
    for draw in draws(incoming, parameters, snapshot.node >= 0):
        domain, domains = snapshot.nodes.domains(draw.topology_key)
        node = snapshot.node[draw.rows]
        at = domain[node]
        pulls = at >= 0
        if draw.nodes is not None:
            pulls &= draw.nodes[node]
        if pulls.any():
            of_key = totals.setdefault(draw.topology_key, np.zeros(domains, dtype=np.int64))
            np.add.at(of_key, at[pulls], draw.weights[pulls])
    if not totals:
        return None
    raw = np.zeros(nodes.size, dtype=np.int64)
    for key, of_key in totals.items():
        domain = snapshot.nodes.domains(key)[0][nodes]
        raw += np.where(domain >= 0, of_key[domain], 0)
    return scaled(raw)


INFO = ScorerInfo(
    name="pod-affinity",
    plugin="InterPodAffinity",
    doc="Prefers nodes near pods that the pod's preferred affinity names, or whose affinity names "
    "the pod, and far from those that anti-affinity names.",
    score=score,
    parameters={
        "requiredWeight": Parameter(
            doc="weight of the required affinity of pods that are there (hardPodAffinityWeight)",
            default=1,
        ),
        "ignoreTermsOfOthers": Parameter(
            doc="a pod without preferred terms of its own is not scored "
            "(ignorePreferredTermsOfExistingPods)",
            default=False,
        ),
        "namespaceSelector": Parameter(
            doc="the incoming pod's namespace selectors become names of namespaces; afterwards "
            "they are `dropped`, or `kept` and asked about no labels (a quirk of 1.35)",
            default="kept",
            choices=("kept", "dropped"),
        ),
    },
)
