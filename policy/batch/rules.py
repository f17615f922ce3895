"""Rules of batch sessions: which actions run, and which plugins they ask, in which order.

A `kind: BatchRules` file is checked strictly. A configuration file of kube-batch or Volcano
(`actions:` and `tiers:`, also inside a ConfigMap) is read as its scheduler reads it; what is left
out or means nothing here is told in `BatchRules.notices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from policy.rules.problems import Problem

if TYPE_CHECKING:
    from policy.batch.plugins.base import Plugin

FLAGS: Final = (
    "enableJobOrder",
    "enableJobReady",
    "enableJobPipelined",
    "enableTaskOrder",
    "enablePreemptable",
    "enableReclaimable",
    "enableQueueOrder",
    "enablePredicate",
    "enableNodeOrder",
)
"""Switches of a plugin's functions; every one is on where it is not named."""


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
    """How pods, queues and priorities of the session are told from others."""

    scheduler: str = "kube-batch"  #: `spec.schedulerName` of the pods that it places
    default_queue: str = "default"
    priority_classes: bool = True  #: whether pod groups get the priority of their class


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
"""Key in a rule file -> field of `Options`."""

RECORDED_NODES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """The rules of a session: frozen and checked."""

    name: str
    digest: str  #: `sha256:` and the hash of `canonical`
    canonical: str = field(repr=False)
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginUse, ...], ...] = field(repr=False)
    naming: Naming = Naming()
    options: Options = Options()
    #: nodes of which the plugins' answers are kept where a task finds no victims
    recorded_nodes: int = RECORDED_NODES
    description: str = field(default="", compare=False, repr=False)
    #: what a foreign configuration asks for and does not get
    notices: tuple[Problem, ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.digest)

    @staticmethod
    def load(
        source: str | Path | Mapping[str, Any],
        *,
        plugins: Mapping[str, type[Plugin]] | None = None,
    ) -> BatchRules:
        """Read shipped rules by name, a file by path, a mapping, or the text of a file.

        Text is told from a path by its line break. plugins: those that the rules may name, in
        place of the registered ones. Raises `RulesError` with every problem found.
        """
        from policy.batch.loading import load_batch_rules

        return load_batch_rules(source, plugins)

    @staticmethod
    def from_canonical(text: str) -> BatchRules:
        """The rules whose `canonical` this is; raises `RulesError`."""
        from policy.batch.loading import batch_rules_from_canonical

        return batch_rules_from_canonical(text)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the shipped batch rules, sorted."""
        from policy.batch.loading import shipped_batch_names

        return shipped_batch_names()
