"""topology-spread: `DoNotSchedule` constraints.

Eviction resolves a skew; it cannot give a node a topology label.

Load: one column per constraint, the number of matching pods in the node's domain. Victims all leave
one node, so only that node's domain changes during its dry run, and the smallest of the *other*
domains is a constant per node.

Source: PodTopologySpread's PreFilter, AddPod, RemovePod and Filter (1.35).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.cluster.objects import TopologySpreadConstraint
from policy.cluster.selectors import (
    DO_NOT_SCHEDULE,
    Selector,
    compile_selector,
    first_untolerated,
    required_nodes,
)
from policy.cluster.tables import TERMINATING, Bools, Ints
from policy.filters.base import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Filter,
    FilterInfo,
    Incoming,
    LinearFilter,
    Nodes,
    Parameter,
    Parameters,
    Verdicts,
    label_matches,
    pods_matching,
)
from policy.filters.node_affinity import matching_nodes

SKEW = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
#: the scheduler's smallest count where there is no domain at all: nothing can then be skewed
_NO_DOMAIN = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Constraint:
    """One constraint with everything about it that stays the same for the whole cycle."""

    max_skew: int
    selector: Selector
    domain: Ints  #: (nodes,) NOWHERE without the label
    labelled: Bools  #: (nodes,)
    counts: Bools  #: (nodes,) nodes whose pods are counted
    in_domains: Bools  #: (nodes,) nodes whose domain holds a counted node
    own: int  #: 1 where the incoming pod itself matches
    base: Ints  #: (nodes,) matching pods in each node's domain
    others_min: Ints  #: (nodes,) smallest count among the other domains
    fixed_min: int | None  #: 0 where there are fewer domains than minDomains
    matches: Bools  #: (pods,) pods that a removal or addition counts


def _selector(constraint: TopologySpreadConstraint, incoming: Incoming) -> Selector:
    keys = constraint.match_label_keys or ()
    labels = {k: incoming.labels[k] for k in keys if k in incoming.labels}
    return compile_selector(constraint.label_selector).with_labels(labels)


def _included(
    constraint: TopologySpreadConstraint, incoming: Incoming, parameters: Parameters
) -> Bools:
    """Nodes that the constraint's node inclusion policies let in; shape (nodes,)."""
    nodes = incoming.snapshot.nodes
    included = np.ones(len(nodes), dtype=np.bool_)
    honoured = not parameters["nodeInclusionPolicies"]
    if honoured or (constraint.node_affinity_policy or "Honor") == "Honor":
        included &= matching_nodes(nodes, required_nodes(incoming.pod))
    if not honoured and constraint.node_taints_policy == "Honor":
        tolerations = incoming.pod.spec.tolerations or ()
        included &= nodes.coded("taints", lambda n: tuple(n.spec.taints or ())).where(
            lambda taints: first_untolerated(taints, tolerations, effects=DO_NOT_SCHEDULE) is None
        )
    return included


def _compile(
    constraint: TopologySpreadConstraint,
    incoming: Incoming,
    parameters: Parameters,
    all_keys: Bools,
) -> _Constraint:
    snapshot = incoming.snapshot
    selector = _selector(constraint, incoming)
    domain, domains = snapshot.nodes.domains(constraint.topology_key)
    labelled = domain >= 0
    counts = all_keys & _included(constraint, incoming, parameters)
    namespace = incoming.namespace
    of_namespace = pods_matching(
        snapshot,
        label_matches(
            snapshot,
            ("spread", namespace, selector),
            lambda s: s.namespace == namespace and selector.matches(s.labels),
            within=selector,
        ),
    )
    totals = np.zeros(domains, dtype=np.int64)
    present = np.unique(domain[counts])
    # Before the inclusion policies, a domain that is counted was counted on all of its nodes, also
    # on those that the pod's node affinity keeps it from.
    counted = counts if parameters["nodeInclusionPolicies"] else np.isin(domain, present)
    # Counting skips terminating pods, and (not in 1.20) an empty selector; removing a pod
    # does not.
    if not selector.empty or parameters["emptySelector"] == "everything":
        rows = np.flatnonzero(of_namespace & (snapshot.node >= 0) & ~snapshot.column(TERMINATING))
        rows = rows[counted[snapshot.node[rows]]]
        np.add.at(totals, domain[snapshot.node[rows]], 1)
    min_domains = constraint.min_domains if parameters["minDomains"] else None
    base = np.zeros(len(snapshot.nodes), dtype=np.int64)
    base[labelled] = totals[domain[labelled]]
    # A node outside the inclusion policies is not counted in; its domain may be, by other nodes.
    in_domains = labelled & np.isin(domain, present)
    base[~in_domains] = 0
    return _Constraint(
        max_skew=constraint.max_skew,
        selector=selector,
        domain=domain,
        labelled=labelled,
        counts=counts,
        in_domains=in_domains,
        own=int(selector.matches(incoming.labels)),
        base=base,
        others_min=_min_of_others(totals, present, domain),
        fixed_min=0 if min_domains is not None and present.size < min_domains else None,
        matches=of_namespace,
    )


def _min_of_others(totals: Ints, present: Ints, domain: Ints) -> Ints:
    """Per node, the smallest count among the counted domains other than its own."""
    smallest = np.full(domain.size, _NO_DOMAIN, dtype=np.int64)
    if present.size:
        ordered = present[np.argsort(totals[present], kind="stable")]
        smallest[:] = totals[ordered[0]]
        own = domain == ordered[0]
        smallest[own] = totals[ordered[1]] if ordered.size > 1 else _NO_DOMAIN
    return smallest


class TopologySpread(LinearFilter):
    def __init__(self, incoming: Incoming, constraints: tuple[_Constraint, ...]) -> None:
        self._snapshot = incoming.snapshot
        self._constraints = constraints
        self.width = len(constraints)

    def base(self) -> Ints:
        return np.stack([c.base for c in self._constraints], axis=1)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.stack(
            [(c.matches[rows] & c.counts[nodes]).astype(np.int64) for c in self._constraints],
            axis=1,
        )

    def _skewed(self, constraint: _Constraint, load: Ints, nodes: Nodes) -> Bools:
        if constraint.fixed_min is not None:
            smallest: Ints | int = constraint.fixed_min
        else:
            own = np.where(constraint.in_domains[nodes], load, _NO_DOMAIN)
            smallest = np.minimum(constraint.others_min[nodes], own)
        return np.asarray(load + constraint.own - smallest > constraint.max_skew)

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        passes = np.ones(nodes.size, dtype=np.bool_)
        for i, constraint in enumerate(self._constraints):
            passes &= constraint.labelled[nodes] & ~self._skewed(constraint, load[:, i], nodes)
        return passes

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        codes = np.zeros(nodes.size, dtype=np.int8)
        reasons = np.zeros(nodes.size, dtype=np.int32)
        for i in reversed(range(self.width)):
            constraint = self._constraints[i]
            labelled = constraint.labelled[nodes]
            skewed = labelled & self._skewed(constraint, load[:, i], nodes)
            codes[skewed], reasons[skewed] = UNSCHEDULABLE, 1
            codes[~labelled], reasons[~labelled] = UNRESOLVABLE, 2
        return Verdicts(codes=codes, reasons=reasons, texts=((), (SKEW,), (NO_LABEL,)))


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    wanted = [
        c
        for c in incoming.pod.spec.topology_spread_constraints or ()
        if c.when_unsatisfiable == "DoNotSchedule"
    ]
    if not wanted:
        return None
    nodes = incoming.snapshot.nodes
    all_keys = np.ones(len(nodes), dtype=np.bool_)
    for constraint in wanted:
        all_keys &= nodes.domains(constraint.topology_key)[0] >= 0
    return TopologySpread(
        incoming, tuple(_compile(c, incoming, parameters, all_keys) for c in wanted)
    )


INFO = FilterInfo(
    name="topology-spread",
    plugin="PodTopologySpread",
    doc="topologySpreadConstraints with DoNotSchedule. Eviction resolves a skew, never a missing "
    "topology label.",
    build=build,
    parameters={
        "minDomains": Parameter(doc="minDomains counts (1.24 and later)", default=True),
        "emptySelector": Parameter(
            doc="what `{}` counts: nothing (later generations) or everything (1.20)",
            default="nothing",
            choices=("nothing", "everything"),
        ),
        "nodeInclusionPolicies": Parameter(
            doc="nodeAffinityPolicy and nodeTaintsPolicy count (1.26 and later); before, node "
            "affinity was always honoured and taints never",
            default=True,
        ),
    },
)
