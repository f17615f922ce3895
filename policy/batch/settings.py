"""The parts of batch rules that a session works with: plugins in their tiers, names, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUse:
    """A plugin at its place in a tier."""

    name: str
    disabled: frozenset[str] = frozenset()  #: flags that are off
    arguments: Mapping[str, str] = field(default_factory=dict)

    def enabled(self, flag: str) -> bool:
        return flag not in self.disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How pods, queues and priorities of the session are recognised."""

    scheduler: str = "kube-batch"  #: `spec.schedulerName` of the pods that it places
    default_queue: str = "default"
    priority_classes: bool = True  #: whether pod groups get the priority of their class


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What the original is known to get wrong; off in the compatible rule sets."""

    #: several victims together never take a gang below its minimum
    keep_gangs: bool = False
    #: a task that fits without victims is placed without victims
    fit_first: bool = False
    #: tasks of a gang that does not become ready give their nodes back
    roll_back: bool = False
    #: idle and released room counts towards what victims must make free
    count_room: bool = False


OPTION_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "keepGangs": "keep_gangs",
        "fitFirst": "fit_first",
        "rollBack": "roll_back",
        "countRoom": "count_room",
    }
)
"""Key in a rule file -> field of `BatchOptions`."""

RECORDED_NODES: Final = 3
