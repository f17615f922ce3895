"""All filters by the name rule files use. A new filter is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.filters import (
    declared_features,
    general,
    node_affinity,
    node_conditions,
    node_name,
    node_ports,
    node_unschedulable,
    pod_affinity,
    resource_claims,
    resources,
    taints,
    topology_spread,
    volume_binding,
    volume_limits,
    volume_restrictions,
    volume_zone,
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
            volume_restrictions,
            volume_limits,
            volume_binding,
            volume_zone,
            topology_spread,
            pod_affinity,
            resource_claims,
            node_conditions,
            declared_features,
        )
    }
)
