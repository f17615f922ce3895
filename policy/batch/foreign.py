"""Configuration files of kube-batch and Volcano, read as their schedulers read them.

Unknown plugins, flags and arguments are left out, each with a notice. An action that is not known
is refused, because a session without it would decide something else. What Volcano has and sessions
here do not model is left out with a notice, and named in the notes of every session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policy.batch.plugins.base import go_boolean
from policy.batch.semantics import KUBE_BATCH, VOLCANO, Known, Semantics, Vocabulary
from policy.batch.settings import PluginUse
from policy.batch.volcano.framework.functions import HIERARCHY
from policy.rules.documents import Branch, Item, Leaf, Place, Series, parse
from policy.rules.problems import RulesError
from policy.rules.shape import suggest
from policy.text.problems import Problem

_FORMER_ACTIONS: Final = frozenset({"elect", "reserve"})
"""Actions of older versions of Volcano; a newer one refuses a file that names them."""

_NOT_READ: Final = frozenset({"metrics"})
"""Keys of a Volcano configuration that say nothing about decisions."""

_NO_EFFECT: Final = "it has no effect here"
_INDENT: Final = "indent the plugins below `plugins:`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a configuration file asks for; `notices` tell what is left out."""

    name: str  #: of the ConfigMap around it; "" without one
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginUse, ...], ...]
    configurations: dict[str, dict[str, str]]  #: action -> arguments
    unmodelled: tuple[str, ...]  #: actions and plugins that no session here has
    notices: tuple[Problem, ...]


def is_foreign(root: Branch) -> bool:
    """Is it a scheduler's own configuration, or a ConfigMap that holds one?"""
    return "actions" in root.entries or "tiers" in root.entries or _config_map(root) is not None


def is_volcano(root: Branch) -> bool:
    """Is it a configuration of Volcano: by its name, or by words that kube-batch does not know?

    A file that both would read alike is kube-batch's.
    """
    key, root = _unwrapped(root)
    if key.startswith("volcano") or {"configurations", "metrics"} & root.entries.keys():
        return True
    if Path(root.place.source.file).name.startswith("volcano"):
        return True
    actions = root.get("actions")
    words = (
        {word.strip() for word in actions.text.split(",")} if isinstance(actions, Leaf) else set()
    )
    of_volcano = VOLCANO.actions.keys() | VOLCANO.not_modelled_actions.keys() | _FORMER_ACTIONS
    if {word.strip().lower() for word in words} & (of_volcano - KUBE_BATCH.actions.keys()):
        return True
    return any(_names_volcano(plugin) for plugin in _plugins(root))


def _plugins(root: Branch) -> Iterator[Branch]:
    tiers = root.get("tiers")
    for tier in tiers.items if isinstance(tiers, Series) else ():
        plugins = tier.get("plugins") if isinstance(tier, Branch) else None
        listed = plugins if isinstance(plugins, Series) else tiers
        for plugin in listed.items if isinstance(listed, Series) else ():
            if isinstance(plugin, Branch):
                yield plugin


def _names_volcano(plugin: Branch) -> bool:
    name = plugin.get("name")
    of_volcano = VOLCANO.plugins.keys() | VOLCANO.not_modelled_plugins.keys()
    if isinstance(name, Leaf) and name.text in of_volcano - KUBE_BATCH.plugins.keys():
        return True
    return bool(plugin.entries.keys() & (VOLCANO.flags - KUBE_BATCH.flags))


def _unwrapped(root: Branch) -> tuple[str, Branch]:
    """The key of the ConfigMap that holds the configuration, "" without one, and its content."""
    wrapped = _config_map(root)
    if wrapped is None:
        return "", root
    key, leaf = wrapped
    text, _, _ = leaf.text.partition("\n...\n")
    return key, parse(text + "\n", f"{leaf.place.source.file}[{key}]", [])


def read_configuration(root: Branch, vocabulary: Vocabulary) -> Configuration:
    """Raises RulesError with every problem found."""
    return _Reader(vocabulary=vocabulary).read(root)


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
    vocabulary: Vocabulary
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)

    def read(self, root: Branch) -> Configuration:
        wrapped = _config_map(root)
        name = ""
        if wrapped is not None:
            key, leaf = wrapped
            metadata = root.get("metadata")
            named = metadata.get("name") if isinstance(metadata, Branch) else None
            name = named.text if isinstance(named, Leaf) else ""
            file = f"{leaf.place.source.file}[{key}]"
            root = parse(self._first_document(leaf), file, self.problems)
        known = {"actions", "tiers"}
        if self._volcano:
            known |= {"configurations", *_NOT_READ}
        self._keys(root, "", known)
        item = root.get("actions")
        if item is None:
            advice = "write for example `actions: allocate, backfill`"
            self._complain(root.place, "actions", "`actions` is missing", advice)
        actions = () if item is None else self._actions(item)
        tiers = self._tiers(root.get("tiers"))
        configurations = self._configurations(root.get("configurations"))
        if self.problems:
            raise RulesError(sorted(self.problems, key=position))
        return Configuration(
            name=name,
            actions=actions,
            tiers=tiers,
            configurations=configurations,
            unmodelled=tuple(dict.fromkeys(self.unmodelled)),
            notices=tuple(sorted(self.notices, key=position)),
        )

    def _first_document(self, leaf: Leaf) -> str:
        """Schedulers read the first YAML document of a text, and no further."""
        document, end, rest = leaf.text.partition("\n...\n")
        if end and rest.strip():
            message = "the text after the line `...` is not read"
            self._notice(leaf.place, "data", message, "a scheduler reads the first document alone")
        return document + "\n" if end else document

    @property
    def _volcano(self) -> bool:
        return self.vocabulary.semantics is Semantics.VOLCANO

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
        known = self.vocabulary.actions
        found = []
        for where, word in words:
            if word in known:
                found.append(word)
            elif not word:
                self._complain(where.place, "actions", "an action without a name")
            elif self._volcano and word.lower() in self.vocabulary.not_modelled_actions:
                about = self.vocabulary.not_modelled_actions[word.lower()]
                self._unmodelled(where.place, "actions", f"action `{word}`", about)
            elif self._volcano and word in _FORMER_ACTIONS:
                message = f"action `{word}` of an older Volcano is left out"
                advice = "a newer one refuses the whole file for it"
                self._notice(where.place, "actions", message, advice)
            else:
                message = f"unknown action `{word}`"
                self._complain(where.place, "actions", message, suggest(word, sorted(known)))
        if not found and not self.problems:
            self._complain(item.place, "actions", "no action is left", suggest("", sorted(known)))
        return tuple(found)

    def _unmodelled(self, place: Place, path: str, what: str, about: str) -> None:
        """Notes what the file asks for and no session here does."""
        self.unmodelled.append(what.replace("`", ""))
        advice = f"sessions here do not model {about}: expect other results where it matters"
        self._notice(place, path, f"{what} of Volcano is left out", advice)

    def _configurations(self, item: Item | None) -> dict[str, dict[str, str]]:
        """Arguments of actions; those of actions that are left out are left out, too."""
        found: dict[str, dict[str, str]] = {}
        if not self._volcano or not isinstance(item, Series):
            return found
        for number, part in enumerate(item.items):
            path = f"configurations[{number}]"
            name = part.get("name") if isinstance(part, Branch) else None
            if not isinstance(part, Branch) or not isinstance(name, Leaf):
                self._notice(part.place, path, "a configuration without the `name` of an action")
                continue
            self._keys(part, path, {"name", "arguments"})
            known = self.vocabulary.actions.get(name.text)
            if known is None:
                self._notice(name.place, f"{path}.name", f"no action `{name.text}` to configure")
                continue
            given = part.get("arguments")
            found[name.text] = self._arguments(given, f"{path}.arguments", known)
        return found

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
            if self._volcano and isinstance(tier, Branch) and _stray(tier):
                # Written one step too far to the left: YAML reads a tier without plugins, and an
                # item that is no tier. Volcano takes both for nothing.
                self._notice(tier.place, inner, "a tier without plugins", _INDENT)
                continue
            if not isinstance(tier, Branch) or not isinstance(plugins, Series):
                message = "a tier holds `plugins`, a list of plugins with their names"
                self._complain(tier.place, inner, message, _INDENT)
                continue
            self._keys(tier, inner, {"plugins"})
            uses = [
                self._plugin(plugin, f"{inner}.plugins[{i}]")
                for i, plugin in enumerate(plugins.items)
            ]
            found = tuple(use for use in uses if use is not None)
            clash = clashing(found) if self._volcano else ""
            if clash:
                self._complain(tier.place, inner, clash, CLASH_ADVICE)
            tiers.append(found)
        return tuple(tiers)

    def _plugin(self, item: Item, path: str) -> PluginUse | None:
        name = item.get("name") if isinstance(item, Branch) else None
        if not isinstance(item, Branch) or not isinstance(name, Leaf):
            self._complain(item.place, path, "a plugin needs a `name`", "write `- name: gang`")
            return None
        known = self.vocabulary.plugins.get(name.text)
        if known is None:
            about = self.vocabulary.not_modelled_plugins.get(name.text)
            if about is not None:
                self._unmodelled(name.place, f"{path}.name", f"plugin `{name.text}`", about)
            else:
                self._notice(name.place, f"{path}.name", f"unknown plugin `{name.text}`")
                if self._volcano:
                    self.unmodelled.append(f"plugin {name.text}")
            return None
        self._keys(item, path, {"name", "arguments", *self.vocabulary.flags})
        disabled = set()
        for flag in self.vocabulary.flags:
            value = item.get(flag)
            on = flag not in self.vocabulary.off
            if value is not None:
                on = self._boolean(value, f"{path}.{flag}")
            if not on:
                disabled.add(flag)
        arguments = self._arguments(item.get("arguments"), f"{path}.arguments", known)
        return PluginUse(name=name.text, disabled=frozenset(disabled), arguments=arguments)

    def _arguments(self, item: Item | None, path: str, known: Known) -> dict[str, str]:
        if item is None or (isinstance(item, Leaf) and item.plain and item.value is None):
            return {}
        if not isinstance(item, Branch):
            self._complain(item.place, path, f"`{path}` must be a mapping of keys to values")
            return {}
        given = {}
        for key, value in item.entries.items():
            inner = f"{path}.{key}"
            if key in self.vocabulary.not_modelled_arguments and not self.vocabulary.knows_argument(
                known, key
            ):
                about = self.vocabulary.not_modelled_arguments[key]
                off = isinstance(value, Leaf) and go_boolean(value.text) is False
                if not off:
                    self._unmodelled(item.keys[key], inner, f"argument `{key}`", about)
                continue
            if not self.vocabulary.knows_argument(known, key):
                self._notice(item.keys[key], inner, f"unknown argument `{key}`")
                continue
            read = self.vocabulary.read(known, key, value, quoted=False)
            if not read.wanted:
                if read.text:
                    given[key] = read.text
            elif not isinstance(value, Leaf):
                self._complain(value.place, inner, f"`{key}` must be {read.wanted}")
            else:
                message = f"`{value.text}` is not {read.wanted}; the default counts"
                default = known.get(key)
                if isinstance(default, bool | int):
                    shown = str(default).lower()
                    message = f"`{value.text}` is not {read.wanted}; the default `{shown}` counts"
                self._notice(value.place, inner, message)
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


CLASH_ADVICE: Final = "put them into different tiers, or leave `enableHierarchy` out"


def clashing(uses: Iterable[PluginUse]) -> str:
    """What Volcano refuses in one tier; "" where nothing."""
    names = {use.name for use in uses}
    ordered = any(use.name == "drf" and use.enabled(HIERARCHY) for use in uses)
    if ordered and "proportion" in names:
        return "`drf` with `enableHierarchy` and `proportion` both order the queues of this tier"
    return ""


def _stray(tier: Branch) -> bool:
    """Is it a plugin where a tier should be, or a tier of which the plugins stand elsewhere?"""
    plugins = tier.get("plugins")
    empty = isinstance(plugins, Leaf) and plugins.plain and plugins.value is None
    return empty or ("plugins" not in tier.entries and "name" in tier.entries)
