"""node-affinity: preferred node affinity, the weights of the terms that a node matches added up.

Source: NodeAffinity's Score (1.35).
"""

from __future__ import annotations

import numpy as np

from policy.cluster.selectors import RequiredNodes, compile_node_term
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.filters.node_affinity import matching_nodes
from policy.scoring.base import Scope, ScorerInfo, normalised


def score(incoming: Incoming, _: Parameters, nodes: Nodes) -> Ints | None:
    affinity = incoming.pod.spec.affinity
    preferred = affinity.node_affinity.preferred if affinity and affinity.node_affinity else None
    if not preferred:
        return None
    weights = np.zeros(nodes.size, dtype=np.int64)
    for wish in preferred:
        term = compile_node_term(wish.preference)
        if term is not None:
            only = RequiredNodes(selector=(), terms=(term,))
            weights += wish.weight * matching_nodes(incoming.snapshot.nodes, only)[nodes]
    return normalised(weights, reverse=False)


INFO = ScorerInfo(
    name="node-affinity",
    plugin="NodeAffinity",
    doc="Prefers nodes that match the pod's preferred node affinity, term by term.",
    score=score,
    scope=Scope.FITTING,
)
