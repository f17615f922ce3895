"""most-allocated: nodes of which the largest part of cpu and memory is in use.

Source: NodeResourcesFit's MostAllocated strategy (1.35).
"""

from __future__ import annotations

from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.scoring.base import Scope, ScorerInfo
from policy.scoring.least_allocated import WEIGHTS, weighted_mean


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints:
    return weighted_mean(incoming, parameters, nodes, most=True)


INFO = ScorerInfo(
    name="most-allocated",
    plugin="NodeResourcesFit",
    doc="Prefers nodes with the largest part of cpu and memory in use: pods are packed.",
    score=score,
    scope=Scope.NODE,
    parameters=WEIGHTS,
)
