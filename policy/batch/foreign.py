"""Configuration files of kube-batch and Volcano, read as their schedulers read them.

Unknown plugins, flags and arguments are left out, each with a notice. An action that is not known
is refused, because a session without it would decide something else; only Volcano's own actions
are left out, with a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.batch.functions import FLAGS
from policy.batch.plugins.base import Plugin, unreadable_argument
from policy.batch.registry import ACTIONS
from policy.batch.settings import PluginUse
from policy.rules.documents import Branch, Item, Leaf, Place, Series, parse
from policy.rules.problems import RulesError
from policy.rules.shape import suggest
from policy.text.problems import Problem

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

_NO_EFFECT: Final = "it has no effect here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a configuration file asks for; `notices` tell what is left out."""

    name: str  #: of the ConfigMap around it; "" without one
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginUse, ...], ...]
    volcano: bool
    notices: tuple[Problem, ...]


def is_foreign(root: Branch) -> bool:
    """Is it a scheduler's own configuration, or a ConfigMap that holds one?"""
    return "actions" in root.entries or "tiers" in root.entries or _config_map(root) is not None


def read_configuration(root: Branch, plugins: Mapping[str, type[Plugin]]) -> Configuration:
    """Raises RulesError with every problem found."""
    return _Reader(plugins=plugins).read(root)


def _config_map(root: Branch) -> tuple[str, Leaf] | None:
    """The key and text of a scheduler configuration inside a ConfigMap."""
    kind, data = root.get("kind"), root.get("data")
    if not (isinstance(kind, Leaf) and kind.text == "ConfigMap" and isinstance(data, Branch)):
        return None
    texts = {key: item for key, item in data.entries.items() if isinstance(item, Leaf)}
    for key, item in texts.items():
        if key.endswith(".conf") or "tiers:" in item.text:
            return key, item
    return None


@dataclass(slots=True)
class _Reader:
    plugins: Mapping[str, type[Plugin]]
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    volcano: bool = False

    def read(self, root: Branch) -> Configuration:
        wrapped = _config_map(root)
        name = ""
        if wrapped is not None:
            key, leaf = wrapped
            self.volcano = key.startswith("volcano")
            metadata = root.get("metadata")
            named = metadata.get("name") if isinstance(metadata, Branch) else None
            name = named.text if isinstance(named, Leaf) else ""
            file = f"{leaf.place.source.file}[{key}]"
            root = parse(leaf.text, file, self.problems)
        self._keys(root, "", {"actions", "tiers"})
        item = root.get("actions")
        if item is None:
            advice = "write for example `actions: allocate, backfill`"
            self._complain(root.place, "actions", "`actions` is missing", advice)
        actions = () if item is None else self._actions(item)
        tiers = self._tiers(root.get("tiers"))
        if self.problems:
            raise RulesError(sorted(self.problems, key=position))
        return Configuration(
            name=name,
            actions=actions,
            tiers=tiers,
            volcano=self.volcano,
            notices=tuple(sorted(self.notices, key=position)),
        )

    def _complain(self, place: Place, path: str, message: str, advice: str | None = None) -> None:
        self.problems.append(place.problem(path, message, advice))

    def _notice(self, place: Place, path: str, message: str, advice: str = _NO_EFFECT) -> None:
        self.notices.append(place.problem(path, message, advice))

    # -- actions and tiers -------------------------------------------------------------------

    def _actions(self, item: Item) -> tuple[str, ...]:
        if isinstance(item, Leaf):
            words: list[tuple[Item, str]] = [(item, w.strip()) for w in item.text.split(",")]
        elif isinstance(item, Series):
            words = [(i, i.text.strip() if isinstance(i, Leaf) else "") for i in item.items]
        else:
            message = "`actions` must be names with commas between them"
            self._complain(item.place, "actions", message)
            return ()
        found = []
        for where, word in words:
            if word in ACTIONS:
                found.append(word)
            elif not word:
                self._complain(where.place, "actions", "an action without a name")
            elif word in VOLCANO_ACTIONS:
                self.volcano = True
                self._notice(where.place, "actions", f"action `{word}` of Volcano is left out")
            else:
                message = f"unknown action `{word}`"
                self._complain(where.place, "actions", message, suggest(word, sorted(ACTIONS)))
        if not found and not self.problems:
            self._complain(item.place, "actions", "no action is left", suggest("", sorted(ACTIONS)))
        return tuple(found)

    def _tiers(self, item: Item | None) -> tuple[tuple[PluginUse, ...], ...]:
        if item is None:
            return ()
        if not isinstance(item, Series):
            self._complain(item.place, "tiers", "`tiers` must be a list of tiers")
            return ()
        tiers = []
        for number, tier in enumerate(item.items):
            inner = f"tiers[{number}]"
            plugins = tier.get("plugins") if isinstance(tier, Branch) else None
            if not isinstance(tier, Branch) or not isinstance(plugins, Series):
                message = "a tier holds `plugins`, a list of plugins with their names"
                advice = "indent the plugins below `plugins:`"
                self._complain(tier.place, inner, message, advice)
                continue
            self._keys(tier, inner, {"plugins"})
            uses = [
                self._plugin(plugin, f"{inner}.plugins[{i}]")
                for i, plugin in enumerate(plugins.items)
            ]
            tiers.append(tuple(use for use in uses if use is not None))
        return tuple(tiers)

    def _plugin(self, item: Item, path: str) -> PluginUse | None:
        name = item.get("name") if isinstance(item, Branch) else None
        if not isinstance(item, Branch) or not isinstance(name, Leaf):
            self._complain(item.place, path, "a plugin needs a `name`", "write `- name: gang`")
            return None
        if name.text not in self.plugins:
            message = f"unknown plugin `{name.text}`"
            if name.text in VOLCANO_PLUGINS:
                self.volcano = True
                message = f"plugin `{name.text}` of Volcano is left out"
            self._notice(name.place, f"{path}.name", message)
            return None
        self._keys(item, path, {"name", "arguments", *FLAGS.values()})
        disabled = {
            flag
            for flag in FLAGS.values()
            if (value := item.get(flag)) is not None and not self._boolean(value, f"{path}.{flag}")
        }
        arguments = self._arguments(
            item.get("arguments"), f"{path}.arguments", self.plugins[name.text].arguments
        )
        return PluginUse(name=name.text, disabled=frozenset(disabled), arguments=arguments)

    def _arguments(
        self, item: Item | None, path: str, known: Mapping[str, bool | int]
    ) -> dict[str, str]:
        if item is None or (isinstance(item, Leaf) and item.plain and item.value is None):
            return {}
        if not isinstance(item, Branch):
            self._complain(item.place, path, f"`{path}` must be a mapping of keys to values")
            return {}
        given = {}
        for key, value in item.entries.items():
            inner = f"{path}.{key}"
            if key not in known:
                self._notice(item.keys[key], inner, f"unknown argument `{key}`")
            elif not isinstance(value, Leaf):
                self._complain(value.place, inner, f"`{key}` must be a single value")
            elif wanted := unreadable_argument(value.text, known[key]):
                shown = str(known[key]).lower()
                message = f"`{value.text}` is not {wanted}; the default `{shown}` counts"
                self._notice(value.place, inner, message)
            elif value.text:
                given[key] = value.text
        return given

    # -- shapes ------------------------------------------------------------------------------

    def _keys(self, branch: Branch, path: str, known: Iterable[str]) -> None:
        names = set(known)
        for key, place in branch.keys.items():
            if key in names:
                continue
            enable = "enable" + key.removeprefix("disable")
            renamed = key.startswith("disable") and enable in names
            advice = f"write `{enable}: false`" if renamed else _NO_EFFECT
            self._notice(place, f"{path}.{key}" if path else key, f"unknown key `{key}`", advice)

    def _boolean(self, item: Item, path: str) -> bool:
        value = item.value if isinstance(item, Leaf) and item.plain else None
        if not isinstance(value, bool):
            self._complain(item.place, path, f"`{path}` must be `true` or `false`")
            return True
        return value


def position(problem: Problem) -> tuple[str, int, int]:
    return problem.source, problem.line, problem.column
