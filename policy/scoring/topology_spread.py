"""topology-spread: `ScheduleAnyway` constraints; nodes whose domains hold few matching pods.

Pods without constraints of their own have those of the cluster: the system's, or a list.

Source: PodTopologySpread's PreScore, Score and NormalizeScore (1.35).
"""

from __future__ import annotations

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
    """Rows of pods on nodes that the constraint counts."""
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
    counted = pods_matching(snapshot, matches) & (snapshot.node >= 0)
    return np.flatnonzero(counted & ~snapshot.column(TERMINATING))


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


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints | None:
    system = parameters["defaultingType"] == "system"
    wanted = default_spread.constraints(
        incoming,
        SYSTEM if system else default_spread.listed(parameters["defaultConstraints"]),
        "ScheduleAnyway",
        controllers=parameters["controllers"],
    )
    if not wanted:
        return None
    snapshot = incoming.snapshot
    table = snapshot.nodes
    domains = [table.domains(c.topology_key) for c in wanted]
    # With the system's constraints a node without a zone is still spread over by its name.
    partly = system and not incoming.pod.spec.topology_spread_constraints
    labelled = np.logical_and.reduce([(domain >= 0) | partly for domain, _ in domains])
    known = labelled[nodes]
    raw = np.zeros(nodes.size, dtype=np.float64)
    for constraint, (domain, size) in zip(wanted, domains, strict=True):
        node = snapshot.node[_matching(incoming, constraint)]
        if constraint.topology_key == HOSTNAME:
            # A host is a domain of its own: its pods count whatever the policies say.
            counts = np.bincount(node, minlength=len(table))[nodes]
            weight = domain_weight(int(known.sum()))
        else:
            policies = parameters["nodeInclusionPolicies"]
            counted = labelled & _included(incoming, constraint, policies=policies)
            # Nodes without the label are a domain together, which nothing is counted for.
            totals = np.bincount(domain[node[counted[node]]] % (size + 1), minlength=size + 1)
            counts = totals[domain[nodes]]
            weight = domain_weight(np.unique(domain[nodes[known]]).size)
        # maxSkew waters the differences down: the larger, the less they matter.
        has = domain[nodes] >= 0
        raw += np.where(has, counts * weight + (constraint.max_skew - 1), 0.0)
    return _normalised(_rounded(raw), known)


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
