"""The parts of batch rules: actions, tiers, plugins and their arguments, checked one by one.

In a file of ours everything unknown is a problem; in a foreign one most of it is a notice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.batch.functions import FLAGS
from policy.batch.plugins.base import Plugin
from policy.batch.registry import ACTIONS, PLUGINS
from policy.batch.settings import PluginUse
from policy.cluster.selectors import go_integer
from policy.rules.documents import Branch, Item, Leaf, Place, Series
from policy.rules.problems import Problem, RulesError

VOLCANO_ACTIONS: Final = frozenset(
    {"enqueue", "elect", "reserve", "shuffle", "gangPreempt", "gangReclaim"}
)
"""Actions that Volcano has beside kube-batch's four."""

VOLCANO_PLUGINS: Final = frozenset(
    {"binpack", "capacity", "capacity-card", "cdp", "deviceshare", "extender", "nodegroup"}
    | {"network-topology-aware", "numaaware", "numa-aware", "overcommit", "pdb", "rescheduling"}
    | {"reservation", "resource-strategy-fit", "resourcequota", "sla", "task-topology", "tdm"}
    | {"usage"}
)
"""Plugins that Volcano has beside kube-batch's seven."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})

# -- what is known ---------------------------------------------------------------------------


def advice_for(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known: " + ", ".join(f"`{name}`" for name in names)


# -- reading ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Reader:
    """Reads the parts that our files and foreign ones share; collects problems and notices."""

    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    strict: bool = True
    volcano: bool = False
    #: plugins that the rules may name; None: the registered ones
    plugins: Mapping[str, type[Plugin]] | None = None

    def fail_if_any(self) -> None:
        if self.problems:
            raise RulesError(sorted(self.problems, key=position))

    def complain(self, place: Place, path: str, message: str, advice: str | None = None) -> None:
        self.problems.append(place.problem(path, message, advice))

    def unknown(self, place: Place, path: str, message: str, advice: str | None = None) -> None:
        """An error in a file of ours, a notice in a foreign one."""
        found = place.problem(path, message, advice if self.strict else "it has no effect here")
        (self.problems if self.strict else self.notices).append(found)

    # -- actions and tiers -------------------------------------------------------------------

    def actions(self, item: Item | None, path: str) -> tuple[str, ...]:
        if item is None:
            return ()
        if isinstance(item, Leaf):
            words: list[tuple[Item, str]] = [(item, w.strip()) for w in item.text.split(",")]
        elif isinstance(item, Series):
            words = [(i, i.text.strip() if isinstance(i, Leaf) else "") for i in item.items]
        else:
            self.complain(item.place, path, f"`{path}` must be names with commas between them")
            return ()
        known = set(ACTIONS)
        found = []
        for where, word in words:
            if word in known:
                found.append(word)
            elif not word:
                self.complain(where.place, path, "an action without a name")
            elif not self.strict and word in VOLCANO_ACTIONS:
                self.volcano = True
                message = f"action `{word}` of Volcano is left out"
                self.unknown(where.place, path, message)
            else:
                message = f"unknown action `{word}`"
                self.complain(where.place, path, message, advice_for(word, known))
        if not found and not self.problems:
            self.complain(item.place, path, "no action is left", advice_for("", known))
        return tuple(found)

    def tiers(self, item: Item | None, path: str) -> tuple[tuple[PluginUse, ...], ...]:
        if item is None:
            return ()
        if not isinstance(item, Series):
            self.complain(item.place, path, f"`{path}` must be a list of tiers")
            return ()
        tiers = []
        for number, tier in enumerate(item.items):
            inner = f"{path}[{number}]"
            plugins = tier.get("plugins") if isinstance(tier, Branch) else None
            if not isinstance(tier, Branch) or not isinstance(plugins, Series):
                message = "a tier holds `plugins`, a list of plugins with their names"
                advice = "indent the plugins below `plugins:`"
                self.complain(tier.place, inner, message, advice)
                continue
            self.keys(tier, inner, {"plugins"})
            uses = [
                self._plugin(plugin, f"{inner}.plugins[{i}]")
                for i, plugin in enumerate(plugins.items)
            ]
            tiers.append(tuple(use for use in uses if use is not None))
        return tuple(tiers)

    def _plugin(self, item: Item, path: str) -> PluginUse | None:
        name = item.get("name") if isinstance(item, Branch) else None
        if not isinstance(item, Branch) or not isinstance(name, Leaf):
            self.complain(item.place, path, "a plugin needs a `name`", "write `- name: gang`")
            return None
        known = PLUGINS if self.plugins is None else self.plugins
        if name.text not in known:
            message = f"unknown plugin `{name.text}`"
            if not self.strict and name.text in VOLCANO_PLUGINS:
                self.volcano = True
                message = f"plugin `{name.text}` of Volcano is left out"
            self.unknown(name.place, f"{path}.name", message, advice_for(name.text, known))
            return None
        self.keys(item, path, {"name", "arguments", *FLAGS.values()})
        disabled = set()
        for flag in FLAGS.values():
            value = item.get(flag)
            if value is not None and not self.boolean(value, f"{path}.{flag}"):
                disabled.add(flag)
        arguments = self._arguments(
            item.get("arguments"), f"{path}.arguments", known[name.text].arguments
        )
        return PluginUse(name=name.text, disabled=frozenset(disabled), arguments=arguments)

    def _arguments(
        self, item: Item | None, path: str, known: Mapping[str, bool | int]
    ) -> dict[str, str]:
        found = self.mapping(item, path)
        if found is None:
            return {}
        given = {}
        for key, value in found.entries.items():
            inner = f"{path}.{key}"
            if key not in known:
                message = f"unknown argument `{key}`"
                self.unknown(found.keys[key], inner, message, advice_for(key, known))
            elif not isinstance(value, Leaf):
                self.complain(value.place, inner, f"`{key}` must be a single value")
            elif self._readable(value, inner, known[key]):
                given[key] = value.text
        return given

    def _readable(self, value: Leaf, path: str, default: bool | int) -> bool:
        """Is it of the argument's type? What is not, and an empty value, leave the default."""
        if not value.text:
            return False
        if isinstance(default, bool):
            readable = value.text in _TRUE | _FALSE
            wanted = "`true` or `false`"
        else:
            readable = go_integer(value.text) is not None
            wanted = "a whole number"
        if not readable:
            shown = str(default).lower()
            message = f"`{value.text}` is not {wanted}; the default `{shown}` counts"
            self.unknown(value.place, path, message, f"write {wanted}")
        return readable

    # -- shapes ------------------------------------------------------------------------------

    def mapping(self, item: Item | None, path: str) -> Branch | None:
        if item is None or (isinstance(item, Leaf) and item.plain and item.value() is None):
            return None
        if not isinstance(item, Branch):
            self.complain(item.place, path, f"`{path}` must be a mapping of keys to values")
            return None
        return item

    def keys(self, branch: Branch, path: str, known: Iterable[str]) -> None:
        names = set(known)
        for key, place in branch.keys.items():
            if key in names:
                continue
            inner = f"{path}.{key}" if path else key
            message = f"unknown key `{key}`"
            enable = "enable" + key.removeprefix("disable")
            if key.startswith("disable") and enable in names:
                found = place.problem(inner, message, f"write `{enable}: false`")
                (self.problems if self.strict else self.notices).append(found)
            else:
                self.unknown(place, inner, message, advice_for(key, names))

    def boolean(self, item: Item, path: str) -> bool:
        value = item.value() if isinstance(item, Leaf) and item.plain else None
        if not isinstance(value, bool):
            self.complain(item.place, path, f"`{path}` must be `true` or `false`")
            return True
        return value


def position(problem: Problem) -> tuple[str, int, int]:
    return problem.file, problem.line, problem.column
