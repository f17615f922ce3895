"""topology-spread: `DoNotSchedule` constraints.

Eviction resolves a skew; it cannot give a node a topology label.

Load: one column per constraint, the number of matching pods in the node's domain. Victims all leave
one node, so only that node's domain changes during its dry run, and the smallest of the *other*
domains is a constant per node.

Source: PodTopologySpread's PreFilter, AddPod, RemovePod and Filter (1.35).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from policy.filters import default_spread
from policy.filters.base import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    FilterInfo,
    Incoming,
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
from policy.filters.default_spread import CONTROLLERS, DEFAULT_CONSTRAINTS
from policy.filters.node_affinity import matching_nodes

SKEW = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
#: the scheduler's smallest count where there is no domain at all: nothing can then be skewed
_NO_DOMAIN = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Constraint:
    """One constraint with everything about it that stays the same for the whole cycle."""

    max_skew: int
    min_domains: int | None
    selector: Selector
    topology_key: str
    domain: Ints  #: (nodes,) NOWHERE without the label
    domains: int
    labelled: Bools  #: (nodes,)
    counts: Bools  #: (nodes,) nodes whose pods are counted
    present: Ints  #: domains that hold a counted node
    counted: Bools  #: (nodes,) nodes whose pods are counted at first; see `_compile`
    own: int  #: 1 where the incoming pod itself matches
    matches: Bools  #: (pods,) pods that a removal or addition counts


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Column:
    """A constraint with the counts that it is judged by: its own, or those of its topology key."""

    constraint: _Constraint
    sharing: tuple[_Constraint, ...]  #: constraints whose pods the counts hold; itself at least
    in_domains: Bools  #: (nodes,) nodes whose domain holds a counted node
    counting: tuple[tuple[Bools, Bools], ...]  #: (pods,) and (nodes,) that are counted at first
    present: Ints  #: domains that hold a counted node
    base: Ints  #: (nodes,) matching pods in each node's domain
    others_min: Ints  #: (nodes,) smallest count among the other domains
    fixed_min: int | None  #: 0 where there are fewer domains than minDomains

    def recounted(self, totals: Ints) -> _Column:
        """The column with other counts; (domains,)."""
        domain = self.constraint.domain
        base = np.zeros(domain.size, dtype=np.int64)
        base[self.in_domains] = totals[domain[self.in_domains]]
        others_min = _min_of_others(totals, self.present, domain)
        return replace(self, base=base, others_min=others_min)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SpreadCount:
    """A constraint as a count: where the skew is too large, and against which smallest count."""

    count: TopologyCount
    present: Ints  #: domains of which the smallest count is taken
    fixed_min: int | None  #: smallest count, where it does not depend on pods
    most: int  #: pods above the smallest count with which one more may come

    def smallest(self, totals: Ints) -> tuple[int, int]:
        """The smallest count, and how many domains have it; totals: (domains,).

        0 domains: no change of counts changes it.
        """
        if self.fixed_min is not None:
            return self.fixed_min, 0
        if not self.present.size:
            return _NO_DOMAIN, 0
        counts = totals[self.present]
        smallest = counts.min()
        return int(smallest), int(np.count_nonzero(counts == smallest))


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
    present = np.unique(domain[counts])
    return _Constraint(
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains if parameters["minDomains"] else None,
        selector=selector,
        topology_key=constraint.topology_key,
        domain=domain,
        domains=domains,
        labelled=domain >= 0,
        counts=counts,
        present=present,
        # Before the inclusion policies, a domain that is counted was counted on all of its nodes,
        # also on those that the pod's node affinity keeps it from.
        counted=counts if parameters["nodeInclusionPolicies"] else np.isin(domain, present),
        own=int(selector.matches(incoming.labels)),
        matches=of_namespace,
    )


def _counted_pods(constraint: _Constraint, incoming: Incoming, parameters: Parameters) -> Bools:
    """Pods that count at first; shape (pods,)."""
    # Counting skips terminating pods, and (not in 1.20) an empty selector; removing a pod
    # does not.
    if constraint.selector.empty and parameters["emptySelector"] != "everything":
        return np.zeros(constraint.matches.size, dtype=np.bool_)
    return np.asarray(constraint.matches & ~incoming.snapshot.column(TERMINATING))


def _column(
    constraint: _Constraint,
    sharing: tuple[_Constraint, ...],
    incoming: Incoming,
    parameters: Parameters,
) -> _Column:
    snapshot, domain = incoming.snapshot, constraint.domain
    totals = np.zeros(constraint.domains, dtype=np.int64)
    present = np.zeros(0, dtype=np.int64)
    later = np.zeros(domain.size, dtype=np.bool_)
    counting = []
    for part in reversed(sharing):
        pods, nodes = _counted_pods(part, incoming, parameters), part.counted & ~later
        counting.append((pods, nodes))
        rows = np.flatnonzero(pods & (snapshot.node >= 0))
        rows = rows[nodes[snapshot.node[rows]]]
        np.add.at(totals, domain[snapshot.node[rows]], 1)
        present = np.union1d(present, part.present)
        if parameters["sameKey"] == "overwritten":
            later |= part.counted
    wanted = constraint.min_domains
    return _Column(
        constraint=constraint,
        sharing=sharing,
        # A node outside the inclusion policies is not counted in; its domain may be, by other
        # nodes.
        in_domains=constraint.labelled & np.isin(domain, present),
        counting=tuple(counting),
        present=present,
        base=domain,
        others_min=domain,
        fixed_min=0 if wanted is not None and present.size < wanted else None,
    ).recounted(totals)


def _min_of_others(totals: Ints, present: Ints, domain: Ints) -> Ints:
    """Per node, the smallest count among the counted domains other than its own."""
    smallest = np.full(domain.size, _NO_DOMAIN, dtype=np.int64)
    if present.size:
        ordered = present[np.argsort(totals[present], kind="stable")]
        smallest[:] = totals[ordered[0]]
        own = domain == ordered[0]
        smallest[own] = totals[ordered[1]] if ordered.size > 1 else _NO_DOMAIN
    return smallest


class TopologySpread(TopologyFilter):
    def __init__(self, incoming: Incoming, columns: tuple[_Column, ...]) -> None:
        self._incoming = incoming
        self._snapshot = incoming.snapshot
        self._columns = columns
        self.width = len(columns)

    def counts(self) -> list[SpreadCount]:
        """What each column counts."""
        return [
            SpreadCount(
                count=TopologyCount(
                    domain=column.constraint.domain,
                    domains=column.constraint.domains,
                    parts=column.counting,
                ),
                present=column.present,
                fixed_min=column.fixed_min,
                most=column.constraint.max_skew - column.constraint.own,
            )
            for column in self._columns
        ]

    def recounted(self, totals: Sequence[Ints]) -> TopologySpread:
        """The filter with other counts: for each column (domains,)."""
        columns = zip(self._columns, totals, strict=True)
        return TopologySpread(self._incoming, tuple(c.recounted(t) for c, t in columns))

    def base(self) -> Ints:
        return np.stack([c.base for c in self._columns], axis=1)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        demand = np.zeros((rows.size, self.width), dtype=np.int64)
        for i, column in enumerate(self._columns):
            for part in column.sharing:
                demand[:, i] += part.matches[rows] & part.counts[nodes]
        return demand

    def _skewed(self, column: _Column, load: Ints, nodes: Nodes) -> Bools:
        if column.fixed_min is not None:
            smallest: Ints | int = column.fixed_min
        else:
            own = np.where(column.in_domains[nodes], load, _NO_DOMAIN)
            smallest = np.minimum(column.others_min[nodes], own)
        constraint = column.constraint
        return np.asarray(load + constraint.own - smallest > constraint.max_skew)

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        passes = np.ones(nodes.size, dtype=np.bool_)
        for i, column in enumerate(self._columns):
            labelled = column.constraint.labelled[nodes]
            passes &= labelled & ~self._skewed(column, load[:, i], nodes)
        return passes

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        codes = np.zeros(nodes.size, dtype=np.int8)
        reasons = np.zeros(nodes.size, dtype=np.int32)
        for i in reversed(range(self.width)):
            column = self._columns[i]
            labelled = column.constraint.labelled[nodes]
            skewed = labelled & self._skewed(column, load[:, i], nodes)
            codes[skewed], reasons[skewed] = UNSCHEDULABLE, 1
            codes[~labelled], reasons[~labelled] = UNRESOLVABLE, 2
        return Verdicts(codes=codes, reasons=reasons, texts=((), (SKEW,), (NO_LABEL,)))

    def obstacles(self, node: int, staying: Bools) -> list[TopologyObstacle]:
        snapshot = self._snapshot
        gone = np.flatnonzero((snapshot.node == node) & ~staying)
        demand = self.demand(gone, np.full(gone.size, node, dtype=np.int64)).sum(axis=0)
        here = np.array([node], dtype=np.int64)
        found = []
        for i, column in enumerate(self._columns):
            constraint = column.constraint
            load = np.array([column.base[node] - demand[i]], dtype=np.int64)
            if not constraint.labelled[node] or not self._skewed(column, load, here)[0]:
                continue
            counted = np.flatnonzero(staying & (snapshot.node >= 0))
            where = snapshot.node[counted]
            counted = counted[
                np.logical_or.reduce(
                    [part.matches[counted] & part.counts[where] for part in column.sharing]
                )
                & (constraint.domain[where] == constraint.domain[node])
                & ~snapshot.column(TERMINATING)[counted]
            ]
            smallest = column.fixed_min
            found.append(
                TopologyObstacle(
                    kind="spread",
                    topology_key=constraint.topology_key,
                    pods=counted,
                    others_min=int(column.others_min[node]) if smallest is None else smallest,
                    max_skew=constraint.max_skew,
                )
            )
        return found


def build(incoming: Incoming, parameters: Parameters) -> TopologySpread | None:
    wanted = default_spread.constraints(
        incoming,
        default_spread.listed(parameters["defaultConstraints"]),
        "DoNotSchedule",
        controllers=parameters["controllers"],
    )
    if not wanted:
        return None
    nodes = incoming.snapshot.nodes
    all_keys = np.ones(len(nodes), dtype=np.bool_)
    for constraint in wanted:
        all_keys &= nodes.domains(constraint.topology_key)[0] >= 0
    constraints = [_compile(c, incoming, parameters, all_keys) for c in wanted]
    apart = parameters["sameKey"] == "apart"
    columns = []
    for own in constraints:
        of_key = tuple(c for c in constraints if c.topology_key == own.topology_key)
        columns.append(_column(own, (own,) if apart else of_key, incoming, parameters))
    return TopologySpread(incoming, tuple(columns))


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
        "sameKey": Parameter(
            doc="two constraints with one topology key are counted apart (1.33 and later); before, "
            "they shared one count per domain, in which the later constraint's pods overwrote the "
            "earlier one's at first (1.27 to 1.32) or were added to them (1.20), and each pod that "
            "came or went counted for both. An API server refuses such pods",
            default="apart",
            choices=("apart", "overwritten", "summed"),
        ),
        "defaultConstraints": DEFAULT_CONSTRAINTS,
        "controllers": CONTROLLERS,
    },
)
