"""What a plugin is, and which arguments it reads.

A plugin is opened once per session and registers functions under its name; the tiers of the rules
say in which order, and whether, they are consulted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from policy.batch.plugins.base import go_boolean
from policy.batch.volcano.framework.functions import HIERARCHY
from policy.batch.volcano.framework.session import Session

ArgumentKind: TypeAlias = type[bool] | type[int] | type[float] | type[str] | type[dict[str, object]]


class Arguments(dict[str, str]):
    """Arguments of a plugin as text; what could not be read as its kind was left out at loading."""

    def boolean(self, name: str, *, default: bool) -> bool:
        found = go_boolean(self.get(name, ""))
        return default if found is None else found

    def integer(self, name: str, *, default: int) -> int:
        return int(self.get(name, default))

    def number(self, name: str, *, default: float) -> float:
        return float(self.get(name, default))


class Plugin:
    """Base of all plugins; a plugin overrides what it needs."""

    name: ClassVar[str]  #: as rule files write it
    doc: ClassVar[str]  #: one sentence: what it decides
    #: argument -> kind of its value; a name that ends in `*` stands for all that begin so
    arguments: ClassVar[Mapping[str, ArgumentKind]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Reads the arguments; nothing of the session exists yet."""

    def open(self, session: Session) -> None:
        """Registers the plugin's functions and event handlers with the session."""

    def close(self, session: Session) -> None:
        """Says what is left to say when all actions are done."""

    def hierarchical(self, session: Session) -> bool:
        """Do the rules give the plugin `enableHierarchy`?"""
        return any(
            use.name == self.name and use.enabled(HIERARCHY)
            for tier in session.rules.tiers
            for use in tier
        )
