"""The two semantics of batch rules, and the words that rule files of each may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from policy.batch import functions, registry
from policy.batch.plugins.base import unreadable_argument
from policy.batch.volcano import arguments as of_volcano
from policy.batch.volcano import registry as volcano_registry
from policy.batch.volcano.framework import functions as volcano_functions
from policy.rules.documents import Item, Leaf

Known: TypeAlias = Mapping[str, Any]
"""Argument -> what is known of it: a default, or a kind."""


class Semantics(StrEnum):
    """Whose sessions the rules describe. Values are stored and never renamed."""

    KUBE_BATCH = "kube-batch"
    VOLCANO = "volcano"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """How an argument is read: as text, or why it is not."""

    text: str = ""
    #: what the value should be, where it is not
    wanted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Actions, plugins, flags and arguments of one semantics."""

    semantics: Semantics
    actions: Mapping[str, Known]  #: with the arguments that `configurations` may give
    plugins: Mapping[str, Known]
    flags: frozenset[str]
    off: frozenset[str] = frozenset()  #: flags that are off where nothing is said
    #: name -> what it is about
    not_modelled_actions: Mapping[str, str] = field(default_factory=dict)
    not_modelled_plugins: Mapping[str, str] = field(default_factory=dict)
    not_modelled_arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def scheduler(self) -> str:
        """`spec.schedulerName` of the pods, where the rules do not say otherwise."""
        return self.semantics.value

    def knows_argument(self, known: Known, name: str) -> bool:
        return of_volcano.kind_of(known, name) is not None if self._typed else name in known

    def read(self, known: Known, name: str, item: Item, *, quoted: bool = True) -> Argument:
        """The value of an argument that is known. quoted: numbers may be written as text."""
        if self._typed:
            kind = of_volcano.kind_of(known, name)
            text, wanted = of_volcano.read(kind, item, quoted=quoted)
            return Argument(text=text, wanted=wanted)
        if not isinstance(item, Leaf):
            return Argument(wanted="a single value")
        return Argument(text=item.text, wanted=unreadable_argument(item.text, known[name]))

    @property
    def _typed(self) -> bool:
        return self.semantics is Semantics.VOLCANO


KUBE_BATCH: Final = Vocabulary(
    semantics=Semantics.KUBE_BATCH,
    actions={name: {} for name in registry.ACTIONS},
    plugins={name: plugin.arguments for name, plugin in registry.PLUGINS.items()},
    flags=frozenset(functions.FLAGS.values()),
)

VOLCANO: Final = Vocabulary(
    semantics=Semantics.VOLCANO,
    actions={name: action.arguments for name, action in volcano_registry.ACTIONS.items()},
    plugins={name: plugin.arguments for name, plugin in volcano_registry.PLUGINS.items()},
    flags=volcano_functions.ALL_FLAGS,
    off=volcano_functions.OFF_BY_DEFAULT,
    not_modelled_actions=volcano_registry.NOT_MODELLED_ACTIONS,
    not_modelled_plugins=volcano_registry.NOT_MODELLED_PLUGINS,
    not_modelled_arguments=volcano_registry.NOT_MODELLED_ARGUMENTS,
)

VOCABULARIES: Final[Mapping[Semantics, Vocabulary]] = {
    found.semantics: found for found in (KUBE_BATCH, VOLCANO)
}
