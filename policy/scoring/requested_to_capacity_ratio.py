"""requested-to-capacity-ratio: nodes by how much of them is in use, along a line of one's own.

Source: NodeResourcesFit's RequestedToCapacityRatio strategy (1.35).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import numpy as np

from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameter, Parameters
from policy.scoring.base import MAX, ScorerInfo
from policy.scoring.least_allocated import WEIGHTS
from policy.scoring.resource_use import weighed
from policy.typed import prepared

_SCALE: Final = 10
"""Points of a shape have scores to 10, nodes to 100."""


class Point(msgspec.Struct, frozen=True):
    """One point of the line: a part in use, in percent, and its score."""

    utilization: Annotated[int, msgspec.Meta(ge=0, le=100)]
    score: Annotated[int, msgspec.Meta(ge=0, le=10)]


def _along(shape: Sequence[Point], utilization: Ints) -> Ints:
    """Scores 0..100 of utilizations in percent, on straight lines between the points."""
    scores = np.full(utilization.shape, shape[-1].score * _SCALE, dtype=np.int64)
    for i in reversed(range(len(shape))):
        point = shape[i]
        here = utilization <= point.utilization
        if i == 0:
            scores[here] = point.score * _SCALE
            continue
        before = shape[i - 1]
        rise = (point.score - before.score) * _SCALE * (utilization - before.utilization)
        run = max(1, point.utilization - before.utilization)
        # Cut off towards zero, also on lines that fall.
        scores[here] = (before.score * _SCALE + np.sign(rise) * (np.abs(rise) // run))[here]
    return scores


def score(incoming: Incoming, parameters: Parameters, nodes: Nodes) -> Ints:
    shape = msgspec.convert(parameters["shape"], prepared(list[Point]))
    total = np.zeros(nodes.size, dtype=np.int64)
    weights = np.zeros(nodes.size, dtype=np.int64)
    if not shape:
        return total
    uses, by_name = weighed(incoming, parameters, nodes)
    for name, use in uses.items():
        weight = by_name[name]
        percent = np.minimum(use.used, use.room) * MAX // np.maximum(use.room, 1)
        found = _along(shape, percent)
        # Of a resource that gives nothing, the weight does not count either.
        counts = (use.room > 0) & (found > 0)
        total += np.where(counts, found * weight, 0)
        weights += np.where(counts, weight, 0)
    return (2 * total + weights) // np.maximum(2 * weights, 1)


INFO = ScorerInfo(
    name="requested-to-capacity-ratio",
    plugin="NodeResourcesFit",
    doc="Prefers nodes by the part of their resources in use, along the points of `shape`.",
    score=score,
    parameters={
        **WEIGHTS,
        "shape": Parameter(
            doc="points in rising order of utilization (percent) with their scores (0 to 10)",
            default=({"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}),
            entry=Point,
        ),
    },
)
