"""What a plugin is, and how its arguments are read.

A plugin is opened once per session and registers functions under its name; the tiers of the rule
set say in which order, and whether, they are consulted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from policy.batch.views import PluginView
from policy.cluster.selectors import go_integer

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def go_boolean(text: str) -> bool | None:
    """`strconv.ParseBool`; None where it fails."""
    return True if text in _TRUE else False if text in _FALSE else None


def unreadable_argument(text: str, default: bool | int) -> str:
    """What an argument should be where its text cannot be read as that; "" where it can.

    An empty text leaves the default, and so does what the original cannot read.
    """
    if isinstance(default, bool):
        return "" if not text or go_boolean(text) is not None else "`true` or `false`"
    return "" if not text or go_integer(text) is not None else "a whole number"


class Arguments(dict[str, str]):
    """Arguments of a plugin as they stand in the rule file."""

    def boolean(self, name: str, *, default: bool) -> bool:
        found = go_boolean(self.get(name, ""))
        return default if found is None else found

    def integer(self, name: str, *, default: int) -> int:
        found = go_integer(self.get(name, ""))
        return default if found is None else found


class Plugin:
    """Base of all plugins; a plugin overrides what it needs."""

    name: ClassVar[str]  #: as rule files write it
    doc: ClassVar[str]  #: one sentence: what it decides
    #: argument -> (bool or int, default): what rule files may give
    arguments: ClassVar[Mapping[str, bool | int]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Reads the arguments; nothing of the session exists yet."""

    def open(self, session: PluginView) -> None:
        """Registers the plugin's functions and event handlers with the session."""

    def close(self, session: PluginView) -> None:
        """Says what is left to say when all actions are done."""
