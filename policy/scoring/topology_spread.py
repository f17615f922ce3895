"""topology-spread: `ScheduleAnyway` constraints; nodes whose domains hold few matching pods.

Pods without constraints of their own have those of the cluster: the system's, or a list.

Source: PodTopologySpread's PreScore, Score and NormalizeScore (1.35).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from typing import Final

import numpy as np

from policy.cluster.objects import TopologySpreadConstraint
from policy.cluster.selectors import (
    DO_NOT_SCHEDULE,
    compile_selector,
    first_untolerated,
    required_nodes,
)
from policy.cluster.tables import TERMINATING, Bools, Ints
from policy.filters import default_spread
from policy.filters.base import (
    Incoming,
    Nodes,
    Parameter,
    Parameters,
    label_matches,
    pods_matching,
)
from policy.filters.default_spread import CONTROLLERS, DEFAULT_CONSTRAINTS, SYSTEM
from policy.filters.node_affinity import matching_nodes
from policy.scoring.base import MAX, ScorerInfo

HOSTNAME: Final = "kubernetes.io/hostname"
_EXACT: Final = Context(prec=40)


@cache
def domain_weight(domains: int) -> float:
    """ln(domains + 2): counts of a topology with many domains are small, and weigh more.

    Correctly rounded from forty digits, so that no mathematics library can differ.
    """
    return float(Decimal(domains + 2).ln(_EXACT))


def _matching(incoming: Incoming, constraint: TopologySpreadConstraint) -> Ints:
    """Rows of pods that the constraint counts on their nodes."""
    snapshot, namespace = incoming.snapshot, incoming.namespace
    keys = constraint.match_label_keys or ()
    own = {k: incoming.labels[k] for k in keys if k in incoming.labels}
    selector = compile_selector(constraint.label_selector).with_labels(own)
    if selector.empty:
        return np.zeros(0, dtype=np.int64)
    matches = label_matches(
        snapshot,
        ("spread", namespace, selector),
        lambda s: s.namespace == namespace and selector.matches(s.labels),
        within=selector,
    )
    return np.flatnonzero(pods_matching(snapshot, matches) & ~snapshot.column(TERMINATING))


def _included(incoming: Incoming, constraint: TopologySpreadConstraint, *, policies: bool) -> Bools:
    """Nodes whose pods count, as the constraint's inclusion policies say; shape (nodes,)."""
    nodes = incoming.snapshot.nodes
    included = np.ones(len(nodes), dtype=np.bool_)
    if not policies or constraint.node_affinity_policy in {None, "Honor"}:
        included &= matching_nodes(nodes, required_nodes(incoming.pod))
    if policies and constraint.node_taints_policy == "Honor":
        tolerations = incoming.pod.spec.tolerations or ()
        included &= nodes.coded("taints", lambda n: tuple(n.spec.taints or ())).where(
            lambda taints: first_untolerated(taints, tolerations, effects=DO_NOT_SCHEDULE) is None
        )
    return included


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Count:
    """What one constraint counts, domain by domain."""

    max_skew: int
    #: (nodes,) whose pods are counted together; of a host alone, whatever its label says. Nodes
    #: without the label are the last one
    domain: Ints
    domains: int
    pods: Ints  #: rows of pods that count where they are, and on which nodes
    nodes: Bools  #: (nodes,)
    host: bool
    labelled: Bools  #: (nodes,)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Spread:
    """The constraints by which the incoming pod is spread."""

    counts: tuple[Count, ...]
    labelled: Bools  #: (nodes,) nodes that get a value

    def equals(self, other: Spread) -> bool:
        """Does it make the same of equal counts?"""
        return (
            [(c.max_skew, c.host) for c in self.counts]
            == [(c.max_skew, c.host) for c in other.counts]
            and np.array_equal(self.labelled, other.labelled)
            and all(
                np.array_equal(a.labelled, b.labelled)
                for a, b in zip(self.counts, other.counts, strict=True)
            )
        )

    def score(self, totals: Sequence[Ints], nodes: Nodes) -> Ints:
        """totals: pods of each count, (domains,)."""
        known = self.labelled[nodes]
        raw = np.zeros(nodes.size, dtype=np.float64)
        for count, of_domain in zip(self.counts, totals, strict=True):
            domain = count.domain[nodes]
            if count.host:
                weight = domain_weight(int(known.sum()))
            else:
                there = np.zeros(count.domains, dtype=np.bool_)
                there[domain[known]] = True
                weight = domain_weight(int(np.count_nonzero(there)))
            # maxSkew waters the differences down: the larger, the less they matter.
            spread = of_domain[domain] * weight + (count.max_skew - 1)
            raw += np.where(count.labelled[nodes], spread, 0.0)
        return _normalised(_rounded(raw), known)


def spread(incoming: Incoming, parameters: Parameters) -> Spread | None:
    """How the pod is spread; None where nothing says so."""
    system = parameters["defaultingType"] == "system"
    wanted = default_spread.constraints(
        incoming,
        SYSTEM if system else default_spread.listed(parameters["defaultConstraints"]),
        "ScheduleAnyway",
        controllers=parameters["controllers"],
    )
    if not wanted:
        return None
    table = incoming.snapshot.nodes
    domains = [table.domains(c.topology_key) for c in wanted]
    # With the system's constraints a node without a zone is still spread over by its name.
    partly = system and not incoming.pod.spec.topology_spread_constraints
    labelled = np.logical_and.reduce([(domain >= 0) | partly for domain, _ in domains])
    policies = parameters["nodeInclusionPolicies"]
    counts = []
    for constraint, (domain, size) in zip(wanted, domains, strict=True):
        # A host is a domain of its own: its pods count whatever the policies say.
        host = constraint.topology_key == HOSTNAME
        counted = np.ones(len(table), dtype=np.bool_)
        if not host:
            counted = labelled & _included(incoming, constraint, policies=policies)
        counts.append(
            Count(
                max_skew=constraint.max_skew,
                domain=np.arange(len(table)) if host else domain % (size + 1),
                domains=len(table) if host else size + 1,
                pods=_matching(incoming, constraint),
                nodes=counted,
                host=host,
                labelled=domain >= 0,
            )
        )
    return Spread(counts=tuple(counts), labelled=labelled)


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints | None:
    found = spread(incoming, parameters)
    if found is None:
        return None
    where = incoming.snapshot.node
    totals = []
    for count in found.counts:
        node = where[count.pods[where[count.pods] >= 0]]
        totals.append(np.bincount(count.domain[node[count.nodes[node]]], minlength=count.domains))
    return found.score(totals, nodes)


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Ints:
    """To the nearest integer, halves up, for values that are not negative."""
    whole = np.floor(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)


def _normalised(raw: Ints, known: Bools) -> Ints:
    """Few pods give 100, nodes without the topology labels 0."""
    if not known.any():
        return np.zeros_like(raw)
    largest, smallest = int(raw[known].max()), int(raw[known].min())
    if largest == 0:
        return np.where(known, MAX, 0).astype(np.int64)
    return np.where(known, MAX * (largest + smallest - raw) // largest, 0)


INFO = ScorerInfo(
    name="topology-spread",
    plugin="PodTopologySpread",
    doc="Prefers nodes whose topology domains hold few pods that the pod's ScheduleAnyway "
    "constraints select, or that its services and controller select where it has none.",
    score=score,
    parameters={
        "nodeInclusionPolicies": Parameter(
            doc="nodeAffinityPolicy and nodeTaintsPolicy count (1.26 and later); before, node "
            "affinity was always honoured and taints never",
            default=True,
        ),
        "defaultingType": Parameter(
            doc="constraints of pods that have none: the system's (hostname with maxSkew 3 and "
            "zone with maxSkew 5, where nodes without one of the labels count all the same), or "
            "those of `defaultConstraints`",
            default="system",
            choices=("system", "list"),
            before="list",
        ),
        "defaultConstraints": DEFAULT_CONSTRAINTS,
        "controllers": CONTROLLERS,
    },
)
