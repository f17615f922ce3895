"""All scorers by the name rule files use. A new scorer is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.scoring import (
    balanced_allocation,
    image_locality,
    least_allocated,
    most_allocated,
    node_affinity,
    pod_affinity,
    requested_to_capacity_ratio,
    taints,
    topology_spread,
)
from policy.scoring.base import ScorerInfo

SCORERS: Final[Mapping[str, ScorerInfo]] = MappingProxyType(
    {
        module.INFO.name: module.INFO
        for module in (
            taints,
            node_affinity,
            topology_spread,
            pod_affinity,
            least_allocated,
            most_allocated,
            requested_to_capacity_ratio,
            balanced_allocation,
            image_locality,
        )
    }
)
