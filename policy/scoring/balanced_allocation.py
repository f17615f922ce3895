"""balanced-allocation: nodes on which cpu and memory would be used to the same degree.

Source: NodeResourcesBalancedAllocation's Score (1.35; `change` 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameter, Parameters
from policy.scoring.base import MAX, Scope, ScorerInfo
from policy.scoring.resource_use import use_of

HALF: Final = MAX // 2


def _balance(used: Sequence[Ints], room: Sequence[Ints]) -> Ints:
    """0..100 per node: the nearer the used parts of cpu and memory, the higher."""
    cpu, memory = (np.minimum(u / np.maximum(r, 1), 1.0) for u, r in zip(used, room, strict=True))
    # The standard deviation of two values is half their difference.
    apart = np.abs(cpu - memory) / 2
    both = (room[0] > 0) & (room[1] > 0)
    return np.where(both, (1 - apart) * MAX, MAX).astype(np.int64)


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints | None:
    uses = [use_of(incoming, name, nodes, assume=False) for name in (CPU, MEMORY)]
    # A pod that asks for nothing unbalances nothing; scoring it would heap such pods up.
    if all(use.asked == 0 for use in uses):
        return None
    room = [use.room for use in uses]
    after = _balance([use.used for use in uses], room)
    if parameters["measure"] == "after":
        return after
    change = after - _balance([use.used - use.asked for use in uses], room)
    # Half of the range is for nodes that the pod balances better than they were; what lies
    # between two numbers is cut off towards 0.
    return HALF + np.trunc((HALF + change) / 2).astype(np.int64)


INFO = ScorerInfo(
    name="balanced-allocation",
    plugin="NodeResourcesBalancedAllocation",
    doc="Prefers nodes on which cpu and memory would be used to the same degree.",
    score=score,
    scope=Scope.NODE,
    parameters={
        "measure": Parameter(
            doc="how balanced a node is `after` the pod is placed, or the `change` from before "
            "(1.36)",
            default="after",
            choices=("after", "change"),
            before="after",
        ),
    },
)
