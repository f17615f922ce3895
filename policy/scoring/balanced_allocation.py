"""balanced-allocation: nodes on which cpu and memory would be used to the same degree.

Source: NodeResourcesBalancedAllocation's Score (1.35; `change` 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.tables import Bools, Ints
from policy.filters.base import Incoming, Nodes, Parameter, Parameters
from policy.scoring.base import MAX, Scope, ScorerInfo
from policy.scoring.resource_use import ResourceUse, ResourceWeight, further, use_of

Floats: TypeAlias = NDArray[np.float64]

HALF: Final = MAX // 2


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints | None:
    counted = [name for name in (CPU, MEMORY) if parameters[name]]
    uses = [use_of(incoming, name, nodes, assume=False) for name in counted]
    uses += [use for use, _ in further(incoming, parameters["resources"], nodes).values()]
    return balance(uses, change=parameters["measure"] == "change")


def balance(uses: Sequence[ResourceUse], *, change: bool) -> Ints | None:
    """Values of nodes by what is in use of cpu, memory, and perhaps a resource that is asked for.

    change: how much more balanced a node becomes, in place of how balanced it is afterwards.
    """
    # A pod that asks for nothing unbalances nothing; scoring it would heap such pods up.
    if all(use.asked == 0 for use in uses):
        return None
    after = _balanced(uses)
    if not change:
        return after
    gain = after - _balanced([replace(use, used=use.used - use.asked) for use in uses])
    # Half of the range is for nodes that the pod balances better than they were; what lies
    # between two numbers is cut off towards 0.
    return HALF + np.trunc((HALF + gain) / 2).astype(np.int64)


def _balanced(uses: Sequence[ResourceUse]) -> Ints:
    """100 where the resources are used to the same degree, less where they are not."""
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
    scope=Scope.NODE,
    parameters={
        "measure": Parameter(
            doc="how balanced a node is `after` the pod is placed, or the `change` from before "
            "(1.36)",
            default="after",
            choices=("after", "change"),
            before="after",
        ),
        CPU: Parameter(doc="cpu counts", default=True, before=True),
        MEMORY: Parameter(doc="memory counts", default=True, before=True),
        "resources": Parameter(
            doc="further resources, which count for pods that ask for them; weights mean nothing",
            default=(),
            entry=ResourceWeight,
            before=(),
        ),
    },
)
