"""Rules of batch sessions: which actions run, and which plugins they ask, in which order.

A `kind: BatchRules` file is checked strictly. A configuration file of kube-batch or Volcano
(`actions:` and `tiers:`, also inside a ConfigMap) is read as its scheduler reads it; what is left
out or means nothing here is listed in `BatchRules.notices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policy.batch.settings import RECORDED_NODES, BatchOptions, Naming, PluginUse
from policy.rules.files import BATCH_RULES, shipped_names
from policy.text.problems import Problem

if TYPE_CHECKING:
    from policy.batch.loading import AnyPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """The rules of a session: frozen and checked."""

    name: str
    digest: str  #: `sha256:` and the hash of `canonical`
    canonical: str = field(repr=False)
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginUse, ...], ...] = field(repr=False)
    semantics: str = "kube-batch"  #: whose sessions they are; see `policy.batch.semantics`
    naming: Naming = field(default_factory=Naming)
    #: action -> arguments
    configurations: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    #: what a configuration asks for that no session here does
    unmodelled: tuple[str, ...] = field(default=(), repr=False)
    options: BatchOptions = field(default_factory=BatchOptions)
    #: nodes of which the plugins' answers are kept where a task finds no victims
    recorded_nodes: int = RECORDED_NODES
    description: str = field(default="", compare=False, repr=False)
    #: what a foreign configuration asks for and does not get
    notices: tuple[Problem, ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def divides(self) -> bool:
        """Does a plugin divide the cluster among its queues, or has none been left out?"""
        used = {use.name for tier in self.tiers for use in tier}
        return bool(used & {"proportion", "capacity"}) or not any(
            name.startswith("plugin ") for name in self.unmodelled
        )

    @staticmethod
    def load(
        source: str | Path | Mapping[str, Any],
        *,
        plugins: Mapping[str, type[AnyPlugin]] | None = None,
        within: Path | None = None,
    ) -> BatchRules:
        """Read shipped rules by name, a file by path, a mapping, or the text of a file.

        Text differs from a path by its line break. plugins: those that the rules may name, in
        place of the registered ones. within: a folder outside of which no file is read, symbolic
        links followed. Raises `RulesError` with every problem found.
        """
        from policy.batch.loading import load_batch_rules

        return load_batch_rules(source, plugins, within=within)

    @staticmethod
    def from_canonical(text: str) -> BatchRules:
        """The rules whose `canonical` this is; raises `RulesError`."""
        from policy.batch.loading import batch_rules_from_canonical

        return batch_rules_from_canonical(text)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the shipped batch rules, sorted."""
        return shipped_names(BATCH_RULES)
