"""balanced-allocation: nodes on which cpu and memory would be used to the same degree.

Source: NodeResourcesBalancedAllocation's Score (1.35).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Bools, Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.scoring.base import MAX, ScorerInfo
from policy.scoring.resource_use import Use, use_of

Floats: TypeAlias = NDArray[np.float64]


def score(incoming: Incoming, _: Parameters, nodes: Nodes) -> Ints | None:
    return balance([use_of(incoming, name, nodes, assume=False) for name in (CPU, MEMORY)])


def balance(uses: Sequence[Use]) -> Ints | None:
    """100 where the resources would be used to the same degree, less where they would not.

    uses: of cpu, memory and perhaps a further resource that the pod asks for.
    """
    # A pod that asks for nothing unbalances nothing; scoring it would heap such pods up.
    if all(use.asked == 0 for use in uses):
        return None
    parts = [np.minimum(use.used / np.maximum(use.room, 1), 1.0) for use in uses]
    known = [use.room > 0 for use in uses]
    if len(uses) == 2:
        # The standard deviation of two values is half their difference.
        apart = np.where(known[0] & known[1], np.abs(parts[0] - parts[1]) / 2, 0.0)
    else:
        apart = _deviation(parts, known)
    return ((1 - apart) * MAX).astype(np.int64)


def _deviation(parts: Sequence[Floats], known: Sequence[Bools]) -> Floats:
    """The standard deviation of the parts that a node has; 0 of fewer than two."""
    number = np.maximum(sum(k.astype(np.float64) for k in known), 1.0)
    mean = sum(np.where(k, p, 0.0) for p, k in zip(parts, known, strict=True)) / number
    squares = sum(
        np.where(k, (p - mean) * (p - mean), 0.0) for p, k in zip(parts, known, strict=True)
    )
    return np.asarray(np.sqrt(squares / number))


INFO = ScorerInfo(
    name="balanced-allocation",
    plugin="NodeResourcesBalancedAllocation",
    doc="Prefers nodes on which cpu and memory would be used to the same degree.",
    score=score,
)
