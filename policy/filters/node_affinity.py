"""node-affinity: nodeSelector and required node affinity. Eviction cannot help."""

from __future__ import annotations

from functools import partial
from operator import eq

import numpy as np

from policy.cluster.selectors import (
    NodeTerm,
    RequiredNodes,
    Requirement,
    required_node_names,
    required_nodes,
)
from policy.cluster.tables import Bools, NodeTable
from policy.filters.base import (
    UNRESOLVABLE,
    Filter,
    FilterInfo,
    Incoming,
    Narrowing,
    Parameter,
    Parameters,
    StaticFilter,
    Verdicts,
)
from policy.filters.messages import Messages, text_of

NO_MATCH = {
    Messages.V1_14: "node(s) didn't match node selector",
    Messages.V1_20: "node(s) didn't match Pod's node affinity",
    Messages.V1_27: "node(s) didn't match Pod's node affinity/selector",
}
CONFLICT = "pod affinity terms conflict"


def _requirement(nodes: NodeTable, requirement: Requirement) -> Bools:
    return nodes.label(requirement.key).where(requirement.matches_value)


def _term(nodes: NodeTable, term: NodeTerm) -> Bools:
    matches = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.labels:
        matches &= _requirement(nodes, requirement)
    for requirement in term.names:
        matches &= np.array([requirement.matches_value(n) for n in nodes.names], dtype=np.bool_)
    return matches


def matching_nodes(nodes: NodeTable, required: RequiredNodes) -> Bools:
    """Which nodes satisfy nodeSelector and required affinity; shape (nodes,)."""
    matches = np.ones(len(nodes), dtype=np.bool_)
    for key, value in required.selector:
        matches &= nodes.label(key).where(partial(eq, value))
    if required.terms is not None:
        any_term = np.zeros(len(nodes), dtype=np.bool_)
        for term in required.terms:
            any_term |= _term(nodes, term)
        matches &= any_term
    return matches


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    required = required_nodes(incoming.pod)
    if required.unconstrained:
        return None
    matches = matching_nodes(incoming.snapshot.nodes, required)
    codes = np.where(matches, 0, UNRESOLVABLE).astype(np.int8)
    return StaticFilter(Verdicts.single(codes, text_of(NO_MATCH, incoming.messages)))


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    policy = parameters["nodeNames"]
    if policy == "not-narrowed":
        return None
    names = required_node_names(incoming.pod)
    if names is None:
        return None
    if not names:
        return Narrowing(rejected=(CONFLICT,))
    unknown = sorted(names - incoming.snapshot.nodes.index.keys())
    if unknown and policy == "dry-run":
        return Narrowing(error=f'nodeinfo not found for node name "{unknown[0]}"')
    return Narrowing(names=names, outside=policy)


INFO = FilterInfo(
    name="node-affinity",
    plugin="NodeAffinity",
    doc="nodeSelector and required node affinity, all operators. Eviction cannot resolve it.",
    build=build,
    narrow=narrow,
    parameters={
        "nodeNames": Parameter(
            doc="what becomes of nodes outside required matchFields on metadata.name: "
            "unresolvable (1.32 and later), skipped (1.28.10, 1.29.5, 1.30 and 1.31: unresolvable "
            "too, but without a status), dry-run (1.24 to 1.28.9 and 1.29.4: they have no status "
            "and are tried, and a name without a node fails the cycle), not-narrowed (earlier)",
            default="unresolvable",
            choices=("unresolvable", "skipped", "dry-run", "not-narrowed"),
        ),
    },
)
