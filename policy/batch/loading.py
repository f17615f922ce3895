"""Reading batch rules: our own files, and the configuration files of kube-batch and Volcano.

Our own files are refused for whatever is unknown in them. A foreign file is read as its scheduler
reads it: unknown plugins, flags and arguments are left out and noted. An action that nobody here
knows is refused in both, because a session without it would decide something else; only Volcano's
own actions are left out of a Volcano file, with a notice.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policy.batch.reading import Reader, position
from policy.batch.rules import (
    FLAGS,
    OPTION_KEYS,
    RECORDED_NODES,
    BatchRules,
    Naming,
    Options,
    PluginUse,
)
from policy.cluster import canonical
from policy.rules.documents import Branch, Item, Leaf, from_mapping, parse
from policy.rules.problems import Problem, RulesError

if TYPE_CHECKING:
    from policy.batch.plugins.base import Plugin

API_VERSION: Final = "policy/v1"
KIND: Final = "BatchRules"
MAX_EXTENDS: Final = 10

_NAME: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_OWN_KIND: Final = re.compile(r"^kind: *BatchRules\b", re.MULTILINE)
_SUFFIXES: Final = (".yaml", ".yml", ".json", ".conf")


# -- files -----------------------------------------------------------------------------------


@cache
def shipped_batch_names() -> tuple[str, ...]:
    """Names of the shipped batch rules, sorted."""
    from policy.rules.loading import shipped_folder

    return tuple(
        sorted(
            file.name.removesuffix(".yaml")
            for file in shipped_folder().iterdir()
            if file.name.endswith(".yaml") and _OWN_KIND.search(file.read_text("utf-8"))
        )
    )


def is_batch(rules: str | Path) -> bool:
    """Whether a shipped name or a file is of `kind: BatchRules`; what is not there is not."""
    if isinstance(rules, str) and not _is_path(rules):
        return rules in shipped_batch_names()
    path = Path(rules)
    return path.is_file() and _OWN_KIND.search(_text(path)) is not None


def load_batch_rules(
    source: str | Path | Mapping[str, Any], plugins: Mapping[str, type[Plugin]] | None = None
) -> BatchRules:
    """The rules of a name, path, mapping or text; raises `RulesError`."""
    return _Rules(plugins=plugins).rules(_open(source, Path()))


def batch_rules_from_canonical(text: str) -> BatchRules:
    """The rules whose canonical text this is; raises `RulesError`."""
    try:
        value = canonical.parse(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _refusal("<canonical>", "not the canonical text of batch rules")
    return _Rules().rules(_open(value, Path()))


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
    from policy.rules.loading import shipped_folder

    if name not in shipped_batch_names():
        known = ", ".join(f"`{known}`" for known in shipped_batch_names())
        close = difflib.get_close_matches(name, shipped_batch_names(), n=1)
        advice = f"did you mean `{close[0]}`?" if close else f"shipped: {known}; a file needs `./`"
        raise _refusal(name, f"no shipped batch rules `{name}`", advice)
    problems: list[Problem] = []
    file = shipped_folder() / f"{name}.yaml"
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


# -- reading ---------------------------------------------------------------------------------


class _Rules(Reader):
    """One load of a file."""

    def rules(self, file: _File) -> BatchRules:
        self.problems += file.problems
        root = file.root
        if "actions" in root.entries or "tiers" in root.entries or _config_map(root) is not None:
            return self._foreign(root)
        return self._own(file)

    # -- our own files -----------------------------------------------------------------------

    def _own(self, file: _File) -> BatchRules:
        root = file.root
        kind = root.get("kind")
        if isinstance(kind, Leaf) and kind.text != KIND:
            message = f"`{kind.text}` is neither batch rules nor a scheduler configuration"
            advice = f"rules have `kind: {KIND}`, a configuration `actions:` and `tiers:`"
            self.complain(kind.place, "kind", message, advice)
            self.fail_if_any()
        spec = self._merged(file)
        self._word(root, "apiVersion", API_VERSION)
        self._word(root, "kind", KIND)
        self.keys(root, "", {"apiVersion", "kind", "metadata", "extends", "spec"})
        name, description = self._metadata(root)
        known = {"actions", "tiers", "naming", "options", "audit"}
        if isinstance(spec, Branch):
            self.keys(spec, "spec", known)
        for key in ("actions", "tiers"):
            if spec.get(key) is None:
                self.complain(root.place, f"spec.{key}", f"`spec.{key}` is missing")
        actions = self.actions(spec.get("actions"), "spec.actions")
        tiers = self.tiers(spec.get("tiers"), "spec.tiers")
        naming = self._naming(spec.get("naming"))
        options = self._options(spec.get("options"))
        recorded = self._recorded(spec.get("audit"))
        self.fail_if_any()
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
        spec = self.mapping(file.root.get("spec"), "spec") or Branch(file.root.place, {}, {})
        current, seen = file, {file.key}
        while (extends := current.root.get("extends")) is not None:
            if not isinstance(extends, Leaf) or not extends.text.strip():
                self.complain(extends.place, "extends", "`extends` must be a name or a path")
                break
            base = _open(extends.text, current.folder or Path())
            self.problems += base.problems
            if base.key in seen or len(seen) > MAX_EXTENDS:
                self.complain(extends.place, "extends", f"`{extends.text}` extends itself")
                break
            seen.add(base.key)
            current = base
            below = self.mapping(base.root.get("spec"), "spec")
            if below is not None:
                spec = _over(below, spec)
        return spec

    def _word(self, root: Branch, key: str, wanted: str) -> None:
        item = root.get(key)
        if item is None:
            self.complain(root.place, key, f"`{key}` is missing", f"write `{key}: {wanted}`")
        elif not isinstance(item, Leaf) or item.text != wanted:
            self.complain(item.place, key, f"`{key}` must be `{wanted}`")

    def _metadata(self, root: Branch) -> tuple[str, str]:
        metadata = self.mapping(root.get("metadata"), "metadata")
        if metadata is None:
            if root.get("metadata") is None:
                self.complain(root.place, "metadata", "`metadata` is missing")
            return "", ""
        self.keys(metadata, "metadata", {"name", "description"})
        item = metadata.get("name")
        name = item.text if isinstance(item, Leaf) else ""
        if not _NAME.fullmatch(name):
            place = metadata.place if item is None else item.place
            advice = "lower-case letters, digits, `-` and `.`"
            self.complain(place, "metadata.name", f"`{name}` is not a name", advice)
        description = metadata.get("description")
        return name, description.text if isinstance(description, Leaf) else ""

    def _naming(self, item: Item | None) -> Naming:
        found = self.mapping(item, "spec.naming")
        if found is None:
            return Naming()
        self.keys(found, "spec.naming", {"schedulerName", "defaultQueue", "priorityClasses"})
        given: dict[str, Any] = {}
        for key, field_name in (("schedulerName", "scheduler"), ("defaultQueue", "default_queue")):
            value = found.get(key)
            if isinstance(value, Leaf) and value.text.strip():
                given[field_name] = value.text
            elif value is not None:
                self.complain(value.place, f"spec.naming.{key}", f"`{key}` must be a name")
        value = found.get("priorityClasses")
        if value is not None:
            given["priority_classes"] = self.boolean(value, "spec.naming.priorityClasses")
        return Naming(**given)

    def _options(self, item: Item | None) -> Options:
        found = self.mapping(item, "spec.options")
        if found is None:
            return Options()
        self.keys(found, "spec.options", OPTION_KEYS)
        return Options(
            **{
                OPTION_KEYS[key]: self.boolean(value, f"spec.options.{key}")
                for key, value in found.entries.items()
                if key in OPTION_KEYS
            }
        )

    def _recorded(self, item: Item | None) -> int:
        found = self.mapping(item, "spec.audit")
        if found is None:
            return RECORDED_NODES
        self.keys(found, "spec.audit", {"nodes"})
        value = found.get("nodes")
        if value is None:
            return RECORDED_NODES
        number = value.value() if isinstance(value, Leaf) else None
        if type(number) is not int or number < 0:
            self.complain(value.place, "spec.audit.nodes", "`nodes` must be a number, 0 or more")
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
        self.keys(root, "", {"actions", "tiers"})
        item = root.get("actions")
        if item is None:
            advice = "write for example `actions: allocate, backfill`"
            self.complain(root.place, "actions", "`actions` is missing", advice)
        actions = self.actions(item, "actions")
        tiers = self.tiers(root.get("tiers"), "tiers")
        self.fail_if_any()
        return _built(
            name=name if _NAME.fullmatch(name) else "configuration",
            actions=actions,
            tiers=tiers,
            naming=Naming(scheduler="volcano") if self.volcano else Naming(),
            notices=tuple(sorted(self.notices, key=position)),
        )


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
    text = canonical.text(document)
    return BatchRules(
        name=name,
        digest=canonical.sha256(text.encode()),
        canonical=text,
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
