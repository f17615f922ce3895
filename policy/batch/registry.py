"""All plugins and actions by the name that rule files use. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.batch.actions.allocate import Allocate
from policy.batch.actions.backfill import Backfill
from policy.batch.actions.base import Action
from policy.batch.actions.preempt import Preempt
from policy.batch.actions.reclaim import Reclaim
from policy.batch.plugins.base import Plugin
from policy.batch.plugins.conformance import Conformance
from policy.batch.plugins.drf import Drf
from policy.batch.plugins.gang import Gang
from policy.batch.plugins.nodeorder import NodeOrder
from policy.batch.plugins.predicates import Predicates
from policy.batch.plugins.priority import Priority
from policy.batch.plugins.proportion import Proportion

PLUGINS: Final[Mapping[str, type[Plugin]]] = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (Priority, Gang, Conformance, Drf, Proportion, Predicates, NodeOrder)
    }
)

ACTIONS: Final[Mapping[str, Action]] = MappingProxyType(
    {action.name: action for action in (Allocate(), Backfill(), Preempt(), Reclaim())}
)
