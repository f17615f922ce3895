"""pod-affinity: required inter-pod affinity and anti-affinity.

Eviction cannot resolve the pod's own affinity; it resolves its own anti-affinity and that of pods
which are there already.

Load, in columns: for each own affinity term the number of pods in the node's topology domain that
match *all* own terms, then the number of such pods over all terms and domains; for each own
anti-affinity term the number of pods in the domain that it selects; last, the number of
anti-affinity terms of pods there that select the incoming pod and share a topology with the node.
Where own terms count together (1.16 without precomputed metadata, as kube-batch asks), they are one
term: a pod matters that all of them select and whose node shares all their labels at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np

from policy.cluster.marked import with_anti_affinity
from policy.cluster.objects import PodAffinityTerm
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import ANTI_AFFINITY, NOWHERE, Bools, Ints, LabelSet, TermSet
from policy.filters.affinity_terms import (
    AffinityTerm,
    compile_term,
    invalid_selector,
    required_terms,
    unrolled,
)
from policy.filters.base import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    FilterInfo,
    Incoming,
    Narrowing,
    Nodes,
    Parameter,
    Parameters,
    TopologyCount,
    TopologyFilter,
    TopologyObstacle,
    Verdicts,
    label_matches,
    pods_matching,
)
from policy.filters.messages import Messages

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
GENERAL = "node(s) didn't match pod affinity/anti-affinity"
_GENERAL_FIRST = (Messages.V1_14, Messages.V1_20)  #: versions that give it before the broken rule


class _Topology:
    """Counts per topology domain of one key, or of several keys at once."""

    def __init__(self, incoming: Incoming, keys: tuple[str, ...]) -> None:
        nodes = incoming.snapshot.nodes
        self._node = incoming.snapshot.node
        self.keys = keys
        self.domain, self.domains = nodes.domains(keys[0])
        for key in keys[1:]:
            domain, domains = nodes.domains(key)
            both = np.asarray((self.domain >= 0) & (domain >= 0))
            self.domain = np.where(both, self.domain * domains + domain, NOWHERE)
            self.domains *= domains

    def count(self, rows: Ints, weights: Ints | None = None) -> Ints:
        """Per node, the weight of pods `rows` in its domain; 0 without the label."""
        totals = np.zeros(self.domains + 1, dtype=np.int64)
        # Pods on nodes without the label fall into the last slot, which is then emptied.
        np.add.at(totals, self.domain[self._node[rows]], 1 if weights is None else weights)
        totals[-1] = 0
        return totals[self.domain]

    def among(self, pods: Bools, node: int) -> Ints:
        """Rows of those of the pods that share the node's domain."""
        if self.domain[node] < 0:
            return np.zeros(0, dtype=np.int64)
        rows = np.flatnonzero(pods)
        return np.asarray(rows[self.domain[self._node[rows]] == self.domain[node]])

    def has(self, nodes: Nodes) -> Bools:
        return np.asarray(self.domain[nodes] >= 0)

    def counting(self, pods: Ints | Bools, on: Bools | None = None) -> TopologyCount:
        """What each of the pods counts in its domain; on: the nodes on which it does."""
        return TopologyCount(domain=self.domain, domains=self.domains, parts=((pods, on),))


class PodAffinityFilter(TopologyFilter):
    def __init__(
        self,
        incoming: Incoming,
        *,
        affinity: Sequence[AffinityTerm],
        anti: Sequence[AffinityTerm],
        existing: Ints,
        existing_terms: dict[str, Ints],
        reasons: dict[str, tuple[str, ...]],
        anywhere_if_first: bool,
        existing_first: bool,
        together: bool,
    ) -> None:
        snapshot = incoming.snapshot
        self._snapshot = snapshot
        self._on_node = snapshot.node >= 0
        self._carriers = existing
        flight = incoming.in_flight
        self._carrying_nodes = None if flight is None else flight.with_anti_affinity
        self._reasons = reasons
        self.anywhere_if_first = anywhere_if_first
        self._existing_first = existing_first
        self._together = together
        affinity_groups = _grouped(affinity, together=together)
        anti_groups = _grouped(anti, together=together)
        keys = {_keys(g) for g in (*affinity_groups, *anti_groups)}
        topologies = {
            key: _Topology(incoming, key) for key in keys | {(key,) for key in existing_terms}
        }
        self._affinity = [topologies[_keys(g)] for g in affinity_groups]
        self._anti = [topologies[_keys(g)] for g in anti_groups]
        self._existing = {topologies[key,]: terms for key, terms in existing_terms.items()}
        nothing = np.zeros(len(snapshot.pods), dtype=np.bool_)
        self._matches_all = (
            pods_matching(snapshot, _selected(incoming, affinity, together=True))
            if affinity
            else nothing
        )
        self._matches_anti = [
            pods_matching(snapshot, _selected(incoming, group, together=False))
            for group in anti_groups
        ]
        self.self_match = bool(affinity) and _all_select(affinity, incoming.label_set)
        self._first_anti = len(self._affinity) + (1 if affinity else 0)
        self.width = self._first_anti + len(self._anti) + 1

    def base(self) -> Ints:
        snapshot = self._snapshot
        load = np.zeros((len(snapshot.nodes), self.width), dtype=np.int64)
        rows = np.flatnonzero(self._matches_all & self._on_node)
        total = 0
        for i, topology in enumerate(self._affinity):
            load[:, i] = topology.count(rows)
            total += int(topology.has(snapshot.node[rows].astype(np.int64)).sum())
        if self._affinity:
            load[:, len(self._affinity)] = rows.size if self._together else total
        for i, topology in enumerate(self._anti):
            rows = np.flatnonzero(self._matches_anti[i] & self._on_node)
            load[:, self._first_anti + i] = topology.count(rows)
        column = snapshot.column(ANTI_AFFINITY)
        carriers = self._carriers
        for topology, terms in self._existing.items():
            weights = terms[column[carriers]]
            load[:, -1] += topology.count(carriers[weights > 0], weights[weights > 0])
        return load

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        demand = np.zeros((rows.size, self.width), dtype=np.int64)
        matches = self._matches_all[rows]
        for i, topology in enumerate(self._affinity):
            demand[:, i] = matches & topology.has(nodes)
        if self._affinity:
            own = len(self._affinity)
            demand[:, own] = matches if self._together else demand[:, :own].sum(axis=1)
        for i, topology in enumerate(self._anti):
            demand[:, self._first_anti + i] = self._matches_anti[i][rows] & topology.has(nodes)
        column = self._snapshot.column(ANTI_AFFINITY)[rows]
        for topology, terms in self._existing.items():
            demand[:, -1] += np.where((column >= 0) & topology.has(nodes), terms[column], 0)
        return demand

    def wanted(self) -> tuple[list[TopologyCount], TopologyCount]:
        """Pods that own affinity wants: in each of its topologies, and all of them at once."""
        pods = self._matches_all
        on = [None] if self._together else [t.domain >= 0 for t in self._affinity]
        anywhere = TopologyCount(
            domain=np.zeros(len(self._snapshot.nodes), dtype=np.int64),
            domains=1,
            parts=tuple((pods, nodes) for nodes in on),
        )
        return [t.counting(pods) for t in self._affinity], anywhere

    def unwanted(self) -> tuple[list[TopologyCount], list[TopologyCount]]:
        """Pods that own anti-affinity keeps away from, and terms of pods that keep the pod away."""
        own = zip(self._anti, self._matches_anti, strict=True)
        column = self._snapshot.column(ANTI_AFFINITY)
        return (
            [topology.counting(pods) for topology, pods in own],
            [
                topology.counting(terms[column], self._carrying_nodes)
                for topology, terms in self._existing.items()
            ],
        )

    def _parts(self, load: Ints, nodes: Nodes) -> tuple[Bools, Bools, Bools]:
        """Affinity, own anti-affinity and others' anti-affinity satisfied; shape (n,) each."""
        own = len(self._affinity)
        affinity = np.ones(nodes.size, dtype=np.bool_)
        if own:
            labelled = np.ones(nodes.size, dtype=np.bool_)
            for topology in self._affinity:
                labelled &= topology.has(nodes)
            affinity = np.asarray(labelled & (load[:, :own] > 0).all(axis=1))
            if self.self_match:
                # The first pod of a group that wants its own kind may go anywhere: otherwise
                # none of them could ever start.
                first = load[:, own] == 0
                affinity |= first if self.anywhere_if_first else first & labelled
        anti = np.asarray(~(load[:, self._first_anti : self.width - 1] > 0).any(axis=1))
        return affinity, anti, np.asarray(load[:, -1] <= 0)

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        affinity, anti, existing = self._parts(load, nodes)
        return affinity & anti & existing

    def ceiling(self, nodes: Nodes) -> Ints | None:
        # Own affinity wants pods to be there; the two kinds of anti-affinity want none.
        return None if self._affinity else np.zeros((nodes.size, self.width), dtype=np.int64)

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        affinity, anti, existing = self._parts(load, nodes)
        codes = np.zeros(nodes.size, dtype=np.int8)
        reasons = np.zeros(nodes.size, dtype=np.int32)
        order = [("existing", existing), ("anti", anti), ("affinity", affinity)]
        if self._existing_first:
            order.append(order.pop(0))
        texts: list[tuple[str, ...]] = [()]
        # The last one written is the first one that the scheduler checks.
        for name, satisfied in order:
            texts.append(self._reasons[name])
            codes[~satisfied] = UNRESOLVABLE if name == "affinity" else UNSCHEDULABLE
            reasons[~satisfied] = len(texts) - 1
        return Verdicts(codes=codes, reasons=reasons, texts=tuple(texts))

    def obstacles(self, node: int, staying: Bools) -> list[TopologyObstacle]:
        here = staying & self._on_node
        found = []
        for topology in self._affinity:
            if not topology.among(self._matches_all & here, node).size and not (
                self.self_match and not (self._matches_all & here).any()
            ):
                leaving = topology.among(self._matches_all & self._on_node & ~staying, node)
                key = ",".join(topology.keys)
                found.append(TopologyObstacle(kind="affinity", topology_key=key, pods=leaving))
        own = zip(self._anti, self._matches_anti, strict=True)
        column = self._snapshot.column(ANTI_AFFINITY)
        others = (
            (topology, (column >= 0) & (terms[column] > 0))
            for topology, terms in self._existing.items()
        )
        for topology, matches in own:
            rows = topology.among(matches & here, node)
            key = ",".join(topology.keys)
            found.append(TopologyObstacle(kind="anti-affinity", topology_key=key, pods=rows))
        for topology, matches in others:
            rows = topology.among(matches & here, node)
            key = ",".join(topology.keys)
            found.append(
                TopologyObstacle(kind="existing-anti-affinity", topology_key=key, pods=rows)
            )
        return [one for one in found if one.kind == "affinity" or one.pods.size]


def _grouped(terms: Sequence[AffinityTerm], *, together: bool) -> list[tuple[AffinityTerm, ...]]:
    """The terms that are judged as one."""
    if together:
        return [tuple(terms)] if terms else []
    return [(term,) for term in terms]


def _keys(terms: Sequence[AffinityTerm]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.topology_key for t in terms))


def _all_select(terms: Sequence[AffinityTerm], pod: LabelSet) -> bool:
    return all(t.selects(pod, {}) for t in terms)


def _selected(incoming: Incoming, terms: Sequence[AffinityTerm], *, together: bool) -> Bools:
    """Label sets that the incoming pod's terms select (they were unrolled: no namespace labels)."""
    key = ("affinity", together, tuple(terms))
    match = partial(_all_select, terms)
    return label_matches(incoming.snapshot, key, match, within=terms[0].selector)


def _compiled(snapshot: Snapshot, *, namespace_selectors: bool) -> list[tuple[AffinityTerm, ...]]:
    """Every set of anti-affinity terms of the pool, compiled once."""
    known: dict[bool, list[tuple[AffinityTerm, ...]]]
    known = snapshot.pools.tables.setdefault(ANTI_AFFINITY, {})
    compiled = known.setdefault(namespace_selectors, [])
    sets: Sequence[TermSet] = snapshot.pools.terms.values
    compiled.extend(
        tuple(
            compile_term(
                term if namespace_selectors else _without_selector(term), namespace=s.namespace
            )
            for term in s.terms
        )
        for s in sets[len(compiled) :]
    )
    return compiled


def _existing_terms(incoming: Incoming, *, namespace_selectors: bool) -> dict[str, Ints]:
    """Topology key -> per set of anti-affinity terms, how many of them select the incoming pod.

    Arrays have one slot more than term sets: index NOWHERE reads a 0.
    """
    snapshot = incoming.snapshot
    labels = snapshot.namespace_labels.get(incoming.namespace, {})
    found: dict[str, Ints] = {}
    sets = _compiled(snapshot, namespace_selectors=namespace_selectors)
    for i, terms in enumerate(sets):
        for compiled in terms:
            if compiled.selects(incoming.label_set, labels):
                counts = found.setdefault(
                    compiled.topology_key, np.zeros(len(sets) + 1, dtype=np.int64)
                )
                counts[i] += 1
    return found


def _without_selector(term: PodAffinityTerm) -> PodAffinityTerm:
    """The term as generations read it that know no namespace selectors."""
    return msgspec.structs.replace(term, namespace_selector=None)


def build(
    incoming: Incoming, parameters: Parameters, *, later: bool = False
) -> PodAffinityFilter | None:
    """later: terms matter of which pods that are not there yet may be carriers."""
    snapshot = incoming.snapshot
    keep = parameters["namespaceSelector"] == "kept"
    selectors = parameters["namespaceSelector"] != "ignored"
    own = [
        [
            unrolled(
                compile_term(
                    t if selectors else _without_selector(t), namespace=incoming.namespace
                ),
                snapshot.namespace_labels,
                keep_selector=keep,
            )
            for t in required_terms(incoming.pod, anti=anti)
        ]
        for anti in (False, True)
    ]
    existing_terms = _existing_terms(incoming, namespace_selectors=selectors)
    column = snapshot.column(ANTI_AFFINITY)
    carriers = with_anti_affinity(snapshot)
    if incoming.in_flight is not None and incoming.in_flight.with_anti_affinity is not None:
        carriers = carriers[incoming.in_flight.with_anti_affinity[snapshot.node[carriers]]]
    if later and not existing_terms and not own[0] and not own[1]:
        return None
    if not later and not own[0] and not own[1]:
        seen = any(
            _Topology(incoming, (key,))
            .has(snapshot.node[carriers].astype(np.int64))[terms[column[carriers]] > 0]
            .any()
            for key, terms in existing_terms.items()
        )
        # Where no running pod's terms matter the filter is skipped altogether, and terms of
        # nominated pods with it (1.26 and later).
        if not seen and (parameters["skip"] == "when-irrelevant" or not existing_terms):
            return None
    general = (GENERAL,) if incoming.messages in _GENERAL_FIRST else ()
    return PodAffinityFilter(
        incoming,
        affinity=own[0],
        anti=own[1],
        existing=carriers,
        existing_terms=existing_terms,
        reasons={
            "affinity": (*general, AFFINITY),
            "anti": (*general, ANTI),
            "existing": (*general, EXISTING),
        },
        anywhere_if_first=parameters["firstOfGroup"] == "any-node",
        existing_first=parameters["order"] == "existing-first",
        together=parameters["terms"] == "together",
    )


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    for anti in (False, True):
        terms = required_terms(incoming.pod, anti=anti)
        if invalid_selector(terms):
            shown = msgspec.json.encode(terms).decode()
            return Narrowing(rejected=(f"parsing pod: invalid affinity term in {shown}",))
    return None


INFO = FilterInfo(
    name="pod-affinity",
    plugin="InterPodAffinity",
    doc="Required inter-pod affinity (eviction cannot resolve it) and anti-affinity, own and of "
    "pods that are there (eviction resolves it).",
    build=build,
    narrow=narrow,
    parameters={
        "namespaceSelector": Parameter(
            doc="the incoming pod's namespace selectors become names of namespaces; afterwards "
            "they are `dropped`, or `kept` and asked about no labels (a quirk of 1.35); `ignored` "
            "where the generation knows none",
            default="kept",
            choices=("kept", "dropped", "ignored"),
        ),
        "skip": Parameter(
            doc="skip the filter where neither own terms nor running pods' terms matter, or never",
            default="when-irrelevant",
            choices=("when-irrelevant", "never"),
        ),
        "order": Parameter(
            doc="which rule is checked first: the pod's own, or that of pods there (1.14)",
            default="own-first",
            choices=("own-first", "existing-first"),
        ),
        "terms": Parameter(
            doc="whether the pod's own terms are judged each on its own or `together`, as one: "
            "a pod that all of them select, in all their topologies (kube-batch)",
            default="each",
            choices=("each", "together"),
        ),
        "firstOfGroup": Parameter(
            doc="where the first pod of a self-affine group may go: nodes that have the labels of "
            "its topologies, or any node (1.14)",
            default="nodes-with-topology-label",
            choices=("nodes-with-topology-label", "any-node"),
        ),
    },
)
