"""Reading batch rules: our own files, and the configuration files of kube-batch and Volcano.

Our own files are refused for whatever is unknown in them. A foreign file is read as its scheduler
reads it: unknown plugins, flags and arguments are left out and noted. An action that nobody here
knows is refused in both, because a session without it would decide something else; only Volcano's
own actions are left out of a Volcano file, with a notice.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from policy.cluster.selectors import go_integer
from policy.rules.batch import (
    FLAGS,
    OPTION_KEYS,
    RECORDED_NODES,
    BatchRules,
    Naming,
    Options,
    PluginUse,
)
from policy.rules.canonical import canonical_json, digest_of
from policy.rules.documents import Branch, Item, Leaf, Place, Series, from_mapping, parse
from policy.rules.problems import Problem, RulesError

API_VERSION: Final = "policy/v1"
KIND: Final = "BatchRules"
MAX_EXTENDS: Final = 10

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
_NAME: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_OWN_KIND: Final = re.compile(r"^kind: *BatchRules\b", re.MULTILINE)
_SUFFIXES: Final = (".yaml", ".yml", ".json", ".conf")


# -- files -----------------------------------------------------------------------------------


@cache
def shipped_batch_names() -> tuple[str, ...]:
    """Names of the shipped batch rules, sorted."""
    from policy.rules.loading import _shipped as shipped_files

    return tuple(
        name
        for name, file in sorted(shipped_files().items())
        if _OWN_KIND.search(file.read_text("utf-8"))
    )


def load_batch_rules(source: str | Path | Mapping[str, Any]) -> BatchRules:
    """The rules of a name, path, mapping or text; raises `RulesError`."""
    return _Reading().rules(_open(source, Path()))


def batch_rules_from_canonical(text: str) -> BatchRules:
    """The rules whose canonical text this is; raises `RulesError`."""
    try:
        value = json.loads(text)
        canonical = isinstance(value, dict) and canonical_json(value) == text
    except (ValueError, AssertionError, RecursionError):
        canonical = False
    if not canonical:
        raise _refusal("<canonical>", "not the canonical text of batch rules")
    return _Reading().rules(_open(value, Path()))


@dataclass(frozen=True, slots=True)
class _File:
    key: str  #: the same for the same file
    root: Branch
    folder: Path | None
    problems: tuple[Problem, ...]


def _open(source: str | Path | Mapping[str, Any], folder: Path | None) -> _File:
    problems: list[Problem] = []
    if isinstance(source, Mapping):
        return _File("", from_mapping(source, "<mapping>", problems), folder, tuple(problems))
    if isinstance(source, str) and "\n" in source:
        return _File("", parse(source, "<text>", problems), folder, tuple(problems))
    if isinstance(source, Path) or _is_path(source):
        path = Path(source) if folder is None else folder / source
        text = _text(path)
        root = parse(text, str(path), problems)
        return _File(str(path.resolve()), root, path.parent, tuple(problems))
    return _open_named(source)


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.endswith(_SUFFIXES)


def _open_named(name: str) -> _File:
    from policy.rules.loading import _shipped as shipped_files

    if name not in shipped_batch_names():
        known = ", ".join(f"`{known}`" for known in shipped_batch_names())
        close = difflib.get_close_matches(name, shipped_batch_names(), n=1)
        advice = f"did you mean `{close[0]}`?" if close else f"shipped: {known}; a file needs `./`"
        raise _refusal(name, f"no shipped batch rules `{name}`", advice)
    problems: list[Problem] = []
    file = shipped_files()[name]
    root = parse(file.read_text("utf-8"), f"rules/{file.name}", problems)
    return _File(f"shipped:{name}", root, None, tuple(problems))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as exc:
        raise _refusal(str(path), "no such file") from exc
    except IsADirectoryError as exc:
        raise _refusal(str(path), "is a folder, not a rule file") from exc
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise _refusal(str(path), f"cannot be read: {reason}") from exc
    except UnicodeDecodeError as exc:
        raise _refusal(str(path), f"not UTF-8: byte {exc.start + 1}") from exc


def _refusal(file: str, message: str, advice: str | None = None) -> RulesError:
    return RulesError([Problem(file=file, line=0, column=0, path="", message=message, help=advice)])


# -- what is known ---------------------------------------------------------------------------


def _known_plugins() -> Mapping[str, Mapping[str, bool | int]]:
    """Plugins with their arguments and the defaults of these."""
    # The one step up: the names that rules may use are those that the engine has.
    from policy.batch.registry import PLUGINS

    return {name: plugin.arguments for name, plugin in PLUGINS.items()}


def _known_actions() -> Iterable[str]:
    from policy.batch.registry import ACTIONS

    return ACTIONS


def _advice(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known: " + ", ".join(f"`{name}`" for name in names)


# -- reading ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """One load: collects problems, and notices about what a foreign file does not get."""

    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    strict: bool = True
    volcano: bool = False

    def rules(self, file: _File) -> BatchRules:
        self.problems += file.problems
        root = file.root
        if "actions" in root.entries or "tiers" in root.entries or _config_map(root) is not None:
            return self._foreign(root)
        return self._own(file)

    def _fail_if_any(self) -> None:
        if self.problems:
            raise RulesError(sorted(self.problems, key=_position))

    def _complain(self, place: Place, path: str, message: str, advice: str | None = None) -> None:
        self.problems.append(place.problem(path, message, advice))

    def _unknown(self, place: Place, path: str, message: str, advice: str | None = None) -> None:
        """An error in a file of ours, a notice in a foreign one."""
        found = place.problem(path, message, advice if self.strict else "it has no effect here")
        (self.problems if self.strict else self.notices).append(found)

    # -- our own files -----------------------------------------------------------------------

    def _own(self, file: _File) -> BatchRules:
        root = file.root
        kind = root.get("kind")
        if isinstance(kind, Leaf) and kind.text != KIND:
            message = f"`{kind.text}` is neither batch rules nor a scheduler configuration"
            advice = f"rules have `kind: {KIND}`, a configuration `actions:` and `tiers:`"
            self._complain(kind.place, "kind", message, advice)
            self._fail_if_any()
        spec = self._merged(file)
        self._word(root, "apiVersion", API_VERSION)
        self._word(root, "kind", KIND)
        self._keys(root, "", {"apiVersion", "kind", "metadata", "extends", "spec"})
        name, description = self._metadata(root)
        known = {"actions", "tiers", "naming", "options", "audit"}
        if isinstance(spec, Branch):
            self._keys(spec, "spec", known)
        for key in ("actions", "tiers"):
            if spec.get(key) is None:
                self._complain(root.place, f"spec.{key}", f"`spec.{key}` is missing")
        actions = self._actions(spec.get("actions"), "spec.actions")
        tiers = self._tiers(spec.get("tiers"), "spec.tiers")
        naming = self._naming(spec.get("naming"))
        options = self._options(spec.get("options"))
        recorded = self._recorded(spec.get("audit"))
        self._fail_if_any()
        return _built(
            name=name,
            description=description,
            actions=actions,
            tiers=tiers,
            naming=naming,
            options=options,
            recorded_nodes=recorded,
        )

    def _merged(self, file: _File) -> Branch:
        """`spec` with that of the file that it extends below: each key replaces, options add."""
        spec = self._mapping(file.root.get("spec"), "spec") or Branch(file.root.place, {}, {})
        current, seen = file, {file.key}
        while (extends := current.root.get("extends")) is not None:
            if not isinstance(extends, Leaf) or not extends.text.strip():
                self._complain(extends.place, "extends", "`extends` must be a name or a path")
                break
            base = _open(extends.text, current.folder or Path())
            self.problems += base.problems
            if base.key in seen or len(seen) > MAX_EXTENDS:
                self._complain(extends.place, "extends", f"`{extends.text}` extends itself")
                break
            seen.add(base.key)
            current = base
            below = self._mapping(base.root.get("spec"), "spec")
            if below is not None:
                spec = _over(below, spec)
        return spec

    def _word(self, root: Branch, key: str, wanted: str) -> None:
        item = root.get(key)
        if item is None:
            self._complain(root.place, key, f"`{key}` is missing", f"write `{key}: {wanted}`")
        elif not isinstance(item, Leaf) or item.text != wanted:
            self._complain(item.place, key, f"`{key}` must be `{wanted}`")

    def _metadata(self, root: Branch) -> tuple[str, str]:
        metadata = self._mapping(root.get("metadata"), "metadata")
        if metadata is None:
            if root.get("metadata") is None:
                self._complain(root.place, "metadata", "`metadata` is missing")
            return "", ""
        self._keys(metadata, "metadata", {"name", "description"})
        item = metadata.get("name")
        name = item.text if isinstance(item, Leaf) else ""
        if not _NAME.fullmatch(name):
            place = metadata.place if item is None else item.place
            advice = "lower-case letters, digits, `-` and `.`"
            self._complain(place, "metadata.name", f"`{name}` is not a name", advice)
        description = metadata.get("description")
        return name, description.text if isinstance(description, Leaf) else ""

    def _naming(self, item: Item | None) -> Naming:
        found = self._mapping(item, "spec.naming")
        if found is None:
            return Naming()
        self._keys(found, "spec.naming", {"schedulerName", "defaultQueue", "priorityClasses"})
        given: dict[str, Any] = {}
        for key, field_name in (("schedulerName", "scheduler"), ("defaultQueue", "default_queue")):
            value = found.get(key)
            if isinstance(value, Leaf) and value.text.strip():
                given[field_name] = value.text
            elif value is not None:
                self._complain(value.place, f"spec.naming.{key}", f"`{key}` must be a name")
        value = found.get("priorityClasses")
        if value is not None:
            given["priority_classes"] = self._boolean(value, "spec.naming.priorityClasses")
        return Naming(**given)

    def _options(self, item: Item | None) -> Options:
        found = self._mapping(item, "spec.options")
        if found is None:
            return Options()
        self._keys(found, "spec.options", OPTION_KEYS)
        return Options(
            **{
                OPTION_KEYS[key]: self._boolean(value, f"spec.options.{key}")
                for key, value in found.entries.items()
                if key in OPTION_KEYS
            }
        )

    def _recorded(self, item: Item | None) -> int:
        found = self._mapping(item, "spec.audit")
        if found is None:
            return RECORDED_NODES
        self._keys(found, "spec.audit", {"nodes"})
        value = found.get("nodes")
        if value is None:
            return RECORDED_NODES
        number = value.value() if isinstance(value, Leaf) else None
        if type(number) is not int or number < 0:
            self._complain(value.place, "spec.audit.nodes", "`nodes` must be a number, 0 or more")
            return RECORDED_NODES
        return number

    # -- foreign files -----------------------------------------------------------------------

    def _foreign(self, root: Branch) -> BatchRules:
        self.strict = False
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
        actions = self._actions(item, "actions")
        tiers = self._tiers(root.get("tiers"), "tiers")
        self._fail_if_any()
        return _built(
            name=name if _NAME.fullmatch(name) else "configuration",
            actions=actions,
            tiers=tiers,
            naming=Naming(scheduler="volcano") if self.volcano else Naming(),
            notices=tuple(sorted(self.notices, key=_position)),
        )

    # -- actions and tiers -------------------------------------------------------------------

    def _actions(self, item: Item | None, path: str) -> tuple[str, ...]:
        if item is None:
            return ()
        if isinstance(item, Leaf):
            words: list[tuple[Item, str]] = [(item, w.strip()) for w in item.text.split(",")]
        elif isinstance(item, Series):
            words = [(i, i.text.strip() if isinstance(i, Leaf) else "") for i in item.items]
        else:
            self._complain(item.place, path, f"`{path}` must be names with commas between them")
            return ()
        known = set(_known_actions())
        found = []
        for where, word in words:
            if word in known:
                found.append(word)
            elif not word:
                self._complain(where.place, path, "an action without a name")
            elif not self.strict and word in VOLCANO_ACTIONS:
                self.volcano = True
                message = f"action `{word}` of Volcano is left out"
                self._unknown(where.place, path, message)
            else:
                message = f"unknown action `{word}`"
                self._complain(where.place, path, message, _advice(word, known))
        if not found and not self.problems:
            self._complain(item.place, path, "no action is left", _advice("", known))
        return tuple(found)

    def _tiers(self, item: Item | None, path: str) -> tuple[tuple[PluginUse, ...], ...]:
        if item is None:
            return ()
        if not isinstance(item, Series):
            self._complain(item.place, path, f"`{path}` must be a list of tiers")
            return ()
        tiers = []
        for number, tier in enumerate(item.items):
            inner = f"{path}[{number}]"
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
        known = _known_plugins()
        if name.text not in known:
            message = f"unknown plugin `{name.text}`"
            if not self.strict and name.text in VOLCANO_PLUGINS:
                self.volcano = True
                message = f"plugin `{name.text}` of Volcano is left out"
            self._unknown(name.place, f"{path}.name", message, _advice(name.text, known))
            return None
        self._keys(item, path, {"name", "arguments", *FLAGS})
        disabled = set()
        for flag in FLAGS:
            value = item.get(flag)
            if value is not None and not self._boolean(value, f"{path}.{flag}"):
                disabled.add(flag)
        arguments = self._arguments(item.get("arguments"), f"{path}.arguments", known[name.text])
        return PluginUse(name=name.text, disabled=frozenset(disabled), arguments=arguments)

    def _arguments(
        self, item: Item | None, path: str, known: Mapping[str, bool | int]
    ) -> dict[str, str]:
        found = self._mapping(item, path)
        if found is None:
            return {}
        given = {}
        for key, value in found.entries.items():
            inner = f"{path}.{key}"
            if key not in known:
                message = f"unknown argument `{key}`"
                self._unknown(found.keys[key], inner, message, _advice(key, known))
            elif not isinstance(value, Leaf):
                self._complain(value.place, inner, f"`{key}` must be a single value")
            else:
                self._check_argument(value, inner, known[key])
                given[key] = value.text
        return given

    def _check_argument(self, value: Leaf, path: str, default: bool | int) -> None:
        if not value.text:
            return
        if isinstance(default, bool):
            readable = value.text in _TRUE | _FALSE
            wanted = "`true` or `false`"
        else:
            readable = go_integer(value.text) is not None
            wanted = "a whole number"
        if not readable:
            shown = str(default).lower()
            message = f"`{value.text}` is not {wanted}; the default `{shown}` counts"
            self._unknown(value.place, path, message, f"write {wanted}")

    # -- shapes ------------------------------------------------------------------------------

    def _mapping(self, item: Item | None, path: str) -> Branch | None:
        if item is None or (isinstance(item, Leaf) and item.plain and item.value() is None):
            return None
        if not isinstance(item, Branch):
            self._complain(item.place, path, f"`{path}` must be a mapping of keys to values")
            return None
        return item

    def _keys(self, branch: Branch, path: str, known: Iterable[str]) -> None:
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
                self._unknown(place, inner, message, _advice(key, names))

    def _boolean(self, item: Item, path: str) -> bool:
        value = item.value() if isinstance(item, Leaf) and item.plain else None
        if not isinstance(value, bool):
            self._complain(item.place, path, f"`{path}` must be `true` or `false`")
            return True
        return value


def _position(problem: Problem) -> tuple[str, int, int]:
    return problem.file, problem.line, problem.column


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


def _over(below: Branch, above: Branch) -> Branch:
    entries, keys = dict(below.entries), dict(below.keys)
    for key, item in above.entries.items():
        base = entries.get(key)
        if key in {"options", "naming"} and isinstance(item, Branch) and isinstance(base, Branch):
            entries[key] = Branch(
                item.place, {**base.entries, **item.entries}, {**base.keys, **item.keys}
            )
        else:
            entries[key] = item
        keys[key] = above.keys[key]
    return Branch(above.place, entries, keys)


# -- building --------------------------------------------------------------------------------


def _built(
    *,
    name: str,
    actions: tuple[str, ...],
    tiers: tuple[tuple[PluginUse, ...], ...],
    naming: Naming,
    options: Options | None = None,
    recorded_nodes: int = RECORDED_NODES,
    description: str = "",
    notices: tuple[Problem, ...] = (),
) -> BatchRules:
    options = options or Options()
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "actions": list(actions),
            "tiers": [{"plugins": [_plugin_document(use) for use in tier]} for tier in tiers],
            "naming": {
                "schedulerName": naming.scheduler,
                "defaultQueue": naming.default_queue,
                "priorityClasses": naming.priority_classes,
            },
            "options": {key: getattr(options, attr) for key, attr in OPTION_KEYS.items()},
            "audit": {"nodes": recorded_nodes},
        },
    }
    canonical = canonical_json(document)
    return BatchRules(
        name=name,
        digest=digest_of(canonical),
        canonical=canonical,
        actions=actions,
        tiers=tiers,
        naming=naming,
        options=options,
        recorded_nodes=recorded_nodes,
        description=description,
        notices=notices,
    )


def _plugin_document(use: PluginUse) -> dict[str, Any]:
    return {
        "name": use.name,
        **{flag: use.enabled(flag) for flag in FLAGS},
        "arguments": dict(use.arguments),
    }
