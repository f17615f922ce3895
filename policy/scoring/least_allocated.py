"""least-allocated: nodes of which the largest part of cpu and memory stays free.

Source: NodeResourcesFit's LeastAllocated strategy (1.35).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameter, Parameters
from policy.scoring.base import MAX, Scope, ScorerInfo
from policy.scoring.resource_use import ResourceUse, ResourceWeight, weighed

WEIGHTS: Final = {
    CPU: Parameter(doc="weight of cpu in the mean; 0 leaves it out", default=1),
    MEMORY: Parameter(doc="weight of memory in the mean; 0 leaves it out", default=1),
    "resources": Parameter(
        doc="further resources with their weights, which count for pods that ask for them",
        default=(),
        entry=ResourceWeight,
        before=(),
    ),
}


def weighted_mean(incoming: Incoming, parameters: Parameters, nodes: Nodes, *, most: bool) -> Ints:
    """Mean over the resources of the part that is used (`most`) or free, 0..100.

    A resource of which a node has nothing is left out there.
    """
    uses, weights = weighed(incoming, parameters, nodes)
    return mean_part(uses, weights, most=most)


def mean_part(uses: Mapping[str, ResourceUse], weights: Mapping[str, int], *, most: bool) -> Ints:
    """As `weighted_mean`, of what is in use by resource."""
    total: Ints | int = 0
    divisor: Ints | int = 0
    for name, use in uses.items():
        # Pods without requests count for something, so a node may seem more than full.
        used = np.minimum(use.used, use.room)
        part = (used if most else use.room - used) * MAX // np.maximum(use.room, 1)
        known = use.room > 0
        total = total + np.where(known, part * weights[name], 0)
        divisor = divisor + np.where(known, weights[name], 0)
    return np.asarray(total // np.maximum(divisor, 1))


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints:
    return weighted_mean(incoming, parameters, nodes, most=False)


INFO = ScorerInfo(
    name="least-allocated",
    plugin="NodeResourcesFit",
    doc="Prefers nodes with the largest part of cpu and memory free: pods spread out.",
    score=score,
    scope=Scope.NODE,
    parameters=WEIGHTS,
)
