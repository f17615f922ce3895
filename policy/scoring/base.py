"""What a scorer is: a value from 0 to 100 for every node on which the pod fits.

Values are integers. Where kube-scheduler computes in float64 before it cuts off the fraction, so
do the scorers: with quotients and products alone, IEEE 754 gives the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameter, Parameters, Value

MAX: Final = 100
"""The best value that a scorer gives."""


class Scope(StrEnum):
    """What a scorer's value of one node depends on."""

    NODE = "node"  # the pod, the node, and what its pods use of cpu and memory
    FITTING = "fitting"  # the pod, the node, and which other nodes fit
    PODS = "pods"  # anything in the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerInfo:
    """A scorer as the registry knows it."""

    name: str  #: as rule files write it
    plugin: str  #: kube-scheduler's name
    doc: str  #: what it prefers
    #: values of the nodes, parallel to them; None where the pod gives it nothing to go by
    #: and None in place of the function where an expression of the rule file gives them
    score: Callable[[Incoming, Parameters, Nodes], Ints | None] | None
    scope: Scope = Scope.PODS
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def defaults(self) -> dict[str, Value]:
        return {name: p.default for name, p in self.parameters.items()}


def normalised(counts: Ints, *, reverse: bool) -> Ints:
    """Counts (not negative) brought to 0..100, the largest to 100; reversed, to 0."""
    largest = int(counts.max(initial=0))
    scaled = counts * MAX // largest if largest else np.zeros_like(counts)
    return MAX - scaled if reverse else scaled
