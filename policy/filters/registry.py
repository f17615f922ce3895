"""All filters by the name rule files use. A new filter is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.filters import (
    general,
    node_affinity,
    node_name,
    node_ports,
    node_unschedulable,
    pod_affinity,
    resources,
    taints,
    topology_spread,
)
from policy.filters.base import FilterInfo

FILTERS: Final[Mapping[str, FilterInfo]] = MappingProxyType(
    {
        module.INFO.name: module.INFO
        for module in (
            node_unschedulable,
            node_name,
            taints,
            node_affinity,
            node_ports,
            general,
            resources,
            topology_spread,
            pod_affinity,
        )
    }
)
