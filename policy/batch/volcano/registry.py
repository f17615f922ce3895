"""Volcano's plugins and actions by the name that rule files use, and those that are not here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.batch.volcano.actions.allocate import Allocate
from policy.batch.volcano.actions.backfill import Backfill
from policy.batch.volcano.actions.base import Action
from policy.batch.volcano.actions.enqueue import Enqueue
from policy.batch.volcano.actions.preempt import Preempt
from policy.batch.volcano.actions.reclaim import Reclaim
from policy.batch.volcano.actions.shuffle import Shuffle
from policy.batch.volcano.plugins.base import Plugin
from policy.batch.volcano.plugins.binpack import BinPack
from policy.batch.volcano.plugins.capacity import Capacity
from policy.batch.volcano.plugins.cdp import Cdp
from policy.batch.volcano.plugins.conformance import Conformance
from policy.batch.volcano.plugins.drf import Drf
from policy.batch.volcano.plugins.gang import Gang
from policy.batch.volcano.plugins.nodegroup import NodeGroup
from policy.batch.volcano.plugins.nodeorder import NodeOrder
from policy.batch.volcano.plugins.overcommit import Overcommit
from policy.batch.volcano.plugins.pdb import Pdb
from policy.batch.volcano.plugins.predicates import Predicates
from policy.batch.volcano.plugins.priority import Priority
from policy.batch.volcano.plugins.proportion import Proportion
from policy.batch.volcano.plugins.resource_strategy_fit import ResourceStrategyFit
from policy.batch.volcano.plugins.resourcequota import ResourceQuotas
from policy.batch.volcano.plugins.sla import Sla
from policy.batch.volcano.plugins.tdm import Tdm

PLUGINS: Final[Mapping[str, type[Plugin]]] = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (
            Priority,
            Gang,
            Conformance,
            Overcommit,
            Drf,
            Proportion,
            Capacity,
            Predicates,
            NodeOrder,
            BinPack,
            Sla,
            Cdp,
            Pdb,
            NodeGroup,
            Tdm,
            ResourceStrategyFit,
            ResourceQuotas,
        )
    }
)

ACTIONS: Final[Mapping[str, Action]] = MappingProxyType(
    {
        action.name: action
        for action in (Enqueue(), Allocate(), Backfill(), Preempt(), Reclaim(), Shuffle())
    }
)

NOT_MODELLED_ACTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gangpreempt": "preemption of and for whole gangs",
        "gangreclaim": "reclaiming of and for whole gangs",
    }
)
"""Actions of Volcano that sessions here do not run, and what they are."""

NOT_MODELLED_PLUGINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "capacity-card": "quotas of device cards",
        "deviceshare": "shared devices",
        "extender": "an external service",
        "network-topology-aware": "network topology",
        "numa-aware": "NUMA topology of nodes",
        "numaaware": "NUMA topology of nodes",
        "rescheduling": "eviction by measured load",
        "task-topology": "affinity between roles of a job",
        "usage": "measured load of nodes",
    }
)
"""Plugins of Volcano that sessions here do not consult, and what they are about."""


NOT_MODELLED_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "predicate.DynamicResourceAllocationEnable": "dynamic resource allocation",
        "capacity.DynamicResourceAllocationEnable": "dynamic resource allocation",
        "capacity.DRAConsumableCapacityEnable": "dynamic resource allocation",
        "predicate.GPUSharingEnable": "shared devices",
        "predicate.GPUNumberEnable": "shared devices",
        "sra": "affinity to scarce resources",
        "proportional": "proportions of resources kept free",
        "tdm.evict.period": "evicting at intervals: every session evicts",
        "max-queue-overcommit-factor": "overcommitting by queue",
    }
)
"""Arguments of modelled plugins that ask for what sessions here do not do."""
