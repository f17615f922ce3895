"""balanced-allocation: nodes on which cpu and memory would be used to the same degree.

Source: NodeResourcesBalancedAllocation's Score (1.35).
"""

from __future__ import annotations

import numpy as np

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.scoring.base import MAX, ScorerInfo
from policy.scoring.resource_use import use_of


def score(incoming: Incoming, _: Parameters, nodes: Nodes) -> Ints | None:
    uses = [use_of(incoming, name, nodes, assume=False) for name in (CPU, MEMORY)]
    # A pod that asks for nothing unbalances nothing; scoring it would heap such pods up.
    if all(use.asked == 0 for use in uses):
        return None
    cpu, memory = (np.minimum(use.used / np.maximum(use.room, 1), 1.0) for use in uses)
    # The standard deviation of two values is half their difference.
    apart = np.abs(cpu - memory) / 2
    both = (uses[0].room > 0) & (uses[1].room > 0)
    return np.where(both, (1 - apart) * MAX, MAX).astype(np.int64)


INFO = ScorerInfo(
    name="balanced-allocation",
    plugin="NodeResourcesBalancedAllocation",
    doc="Prefers nodes on which cpu and memory would be used to the same degree.",
    score=score,
)
