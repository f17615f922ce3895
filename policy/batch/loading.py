"""Reading batch rules: our own files, and the configuration files of kube-batch and Volcano.

Our own files pass through the same loader as other rule files (`policy.rules`): they may extend
one another, and whatever is unknown in them is refused. Foreign files are read by `foreign.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from policy.batch.foreign import (
    CLASH_ADVICE,
    clashing,
    is_foreign,
    is_volcano,
    position,
    read_configuration,
)
from policy.batch.plugins.base import Plugin
from policy.batch.rules import BatchRules
from policy.batch.schema import BatchFileModel
from policy.batch.semantics import KUBE_BATCH, VOCABULARIES, VOLCANO, Known, Semantics, Vocabulary
from policy.batch.settings import OPTION_KEYS, RECORDED_NODES, BatchOptions, Naming, PluginUse
from policy.batch.volcano.plugins.base import Plugin as VolcanoPlugin
from policy.cluster import canonical
from policy.rules.documents import Branch, Item, Leaf, Series, from_mapping
from policy.rules.files import BATCH_RULES, RuleFile, open_source
from policy.rules.layers import LINKS, layers_of
from policy.rules.problems import RulesError
from policy.rules.shape import FileShape, find, show, suggest
from policy.rules.shape import Path as TreePath
from policy.text.problems import Problem

API_VERSION: Final = "policy/v1"

AnyPlugin: TypeAlias = Plugin | VolcanoPlugin

_NAME: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_MISSING: Final[Mapping[str, str]] = {
    "apiVersion": f"write `apiVersion: {API_VERSION}`",
    "kind": f"write `kind: {BATCH_RULES}`",
    "metadata": "write `metadata: {name: my-rules}`",
    "spec": "give the rules, or `extends` batch rules that do",
    "actions": "give them, or `extends` batch rules that do",
    "tiers": "give them, or `extends` batch rules that do",
    "plugins": "a tier holds `plugins`, a list of plugins with their names",
    "name": "write `- name: gang`",
}


def load_batch_rules(
    source: str | Path | Mapping[str, Any],
    plugins: Mapping[str, type[AnyPlugin]] | None = None,
    *,
    within: Path | None = None,
) -> BatchRules:
    """The rules of a name, path, mapping or text; raises `RulesError`.

    plugins: those that the rules may name, in place of the registered ones. within: a folder
    outside of which no file is read, symbolic links followed.
    """
    file = open_source(source, kind=BATCH_RULES, within=within)
    known = None if plugins is None else {n: plugin.arguments for n, plugin in plugins.items()}
    return _foreign(file, known) if is_foreign(file.root) else _own(file, known)


def batch_rules_from_canonical(text: str) -> BatchRules:
    """The rules whose canonical text this is; raises `RulesError`."""
    name = "<canonical>"
    try:
        value = canonical.parse(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        message = "not the canonical text of batch rules"
        raise RulesError([Problem(source=name, message=message)])
    problems: list[Problem] = []
    root = from_mapping(value, name, problems)
    rules = _own(RuleFile(key="", root=root, kind=BATCH_RULES, problems=problems), None)
    # A stored text keeps its digest; an option that came after it is off, as it was before.
    return replace(rules, canonical=text, digest=canonical.sha256(text.encode()))


def _with(vocabulary: Vocabulary, plugins: Mapping[str, Known] | None) -> Vocabulary:
    return vocabulary if plugins is None else replace(vocabulary, plugins=plugins)


def _foreign(file: RuleFile, plugins: Mapping[str, Known] | None) -> BatchRules:
    if file.problems:
        raise RulesError(file.problems)
    vocabulary = VOLCANO if is_volcano(file.root) else KUBE_BATCH
    found = read_configuration(file.root, _with(vocabulary, plugins))
    return _built(
        name=found.name if _NAME.fullmatch(found.name) else "configuration",
        semantics=vocabulary.semantics,
        actions=found.actions,
        tiers=found.tiers,
        naming=Naming(scheduler=vocabulary.scheduler),
        configurations=found.configurations,
        unmodelled=found.unmodelled,
        notices=found.notices,
    )


# -- our own files -----------------------------------------------------------------------------


def _own(file: RuleFile, plugins: Mapping[str, Known] | None) -> BatchRules:
    kind = file.root.get("kind")
    if isinstance(kind, Leaf) and kind.text != BATCH_RULES:
        message = f"`{kind.text}` is neither batch rules nor a scheduler configuration"
        advice = f"rules have `kind: {BATCH_RULES}`, a configuration `actions:` and `tiers:`"
        raise RulesError([kind.place.problem("kind", message, advice)])
    root, problems = _merged(file)
    shape = FileShape(root, BatchFileModel, _words, _MISSING, above=LINKS)
    model = shape.validate()
    # Which words are known depends on the semantics; where that is no word, kube-batch's are.
    said = find(root, ("spec", "semantics"))
    volcano = isinstance(said, Leaf) and said.text == Semantics.VOLCANO
    names = _Names(root, _with(VOLCANO if volcano else KUBE_BATCH, plugins))
    tiers, configurations = names.check()
    # What could not be read as meant has other complaints in its train.
    places = {(p.source, p.line, p.column) for p in problems}
    for found in (*shape.problems, *names.problems):
        if (found.source, found.line, found.column) not in places:
            problems.append(found)
    if problems or model is None:
        raise RulesError(sorted(problems, key=position))
    spec = model.spec
    return _built(
        name=model.metadata.name,
        description=model.metadata.description,
        semantics=Semantics(spec.semantics),
        actions=tuple(spec.actions),
        tiers=tiers,
        naming=spec.naming.value(spec.semantics),
        configurations=configurations,
        unmodelled=tuple(spec.notModelled),
        options=spec.options.value(),
        recorded_nodes=spec.audit.nodes,
    )


def _merged(file: RuleFile) -> tuple[Branch, list[Problem]]:
    """The file over what it extends: each key of `spec` replaces, options and names add."""
    layers = layers_of(file)
    problems = [problem for layer, _ in layers for problem in layer.problems]
    spec = layers[-1][1]
    for _, over in reversed(layers[:-1]):
        spec = _over(spec, over)
    entries = {k: v for k, v in file.root.entries.items() if k not in LINKS}
    keys = dict(file.root.keys)
    if "spec" in entries or len(layers) > 1:
        entries["spec"] = spec
        keys.setdefault("spec", file.root.place)
    return Branch(file.root.place, entries, keys), problems


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


def _words(kind: str, path: TreePath, _: str) -> tuple[str, str | None] | None:
    """What is particular to batch rules about a finding of pydantic."""
    if path == ("spec", "actions") and kind == "list_type":
        return "`actions` must be a list of names", "write `actions: [allocate, backfill]`"
    if path == ("spec", "actions") and kind == "too_short":
        return "no action is left", suggest("", sorted(KUBE_BATCH.actions))
    if len(path) > 1 and path[-2] == "arguments":
        return f"`{path[-1]}` must be a single value", None
    return None


@dataclass(slots=True)
class _Names:
    """Do the words of a file exist in its semantics? What has no shape is passed over."""

    root: Branch
    vocabulary: Vocabulary
    problems: list[Problem] = field(default_factory=list)

    def check(self) -> tuple[tuple[tuple[PluginUse, ...], ...], dict[str, dict[str, str]]]:
        """The tiers, and the arguments of actions, without what is unknown in them."""
        self._actions(find(self.root, ("spec", "actions")))
        options = find(self.root, ("spec", "options"))
        if self.vocabulary.semantics is Semantics.VOLCANO and isinstance(options, Branch):
            for key, place in options.keys.items():
                message = f"`{key}` is an option of kube-batch's sessions"
                shown = show(("spec", "options", key))
                self.problems.append(place.problem(shown, message, "leave it out"))
        tiers = find(self.root, ("spec", "tiers"))
        found = []
        for number, tier in enumerate(tiers.items if isinstance(tiers, Series) else ()):
            path: TreePath = ("spec", "tiers", number)
            uses = tuple(self._uses(tier, path))
            volcano = self.vocabulary.semantics is Semantics.VOLCANO
            if volcano and (clash := clashing(uses)):
                self._complain(tier, path, clash, CLASH_ADVICE)
            found.append(uses)
        return tuple(found), self._configurations()

    def _complain(self, item: Item, path: TreePath, message: str, advice: str) -> None:
        self.problems.append(item.place.problem(show(path), message, advice))

    def _actions(self, item: Item | None) -> None:
        words: list[tuple[Item, str]] = []
        if isinstance(item, Leaf):
            words = [(item, word.strip()) for word in item.text.split(",")]
        elif isinstance(item, Series):
            words = [(part, part.text) for part in item.items if isinstance(part, Leaf)]
        for where, word in words:
            self._action(where, word, ("spec", "actions"))

    def _action(self, where: Item, word: str, path: TreePath) -> bool:
        known = self.vocabulary.actions
        if word not in known:
            message = f"unknown action `{word}`" if word else "an action without a name"
            self._complain(where, path, message, suggest(word, sorted(known)))
        return word in known

    def _configurations(self) -> dict[str, dict[str, str]]:
        listed = find(self.root, ("spec", "configurations"))
        found: dict[str, dict[str, str]] = {}
        for number, item in enumerate(listed.items if isinstance(listed, Series) else ()):
            path: TreePath = ("spec", "configurations", number)
            name = item.get("name") if isinstance(item, Branch) else None
            if not isinstance(item, Branch) or not isinstance(name, Leaf):
                continue
            if self._action(name, name.text, (*path, "name")):
                known = self.vocabulary.actions[name.text]
                found[name.text] = self._arguments(item.get("arguments"), known, path)
        return found

    def _uses(self, tier: Item, path: TreePath) -> list[PluginUse]:
        listed = tier.get("plugins") if isinstance(tier, Branch) else None
        found = []
        for number, item in enumerate(listed.items if isinstance(listed, Series) else ()):
            name = item.get("name") if isinstance(item, Branch) else None
            if not isinstance(item, Branch) or not isinstance(name, Leaf):
                continue
            inner = (*path, "plugins", number)
            known = self.vocabulary.plugins.get(name.text)
            if known is None:
                advice = suggest(name.text, sorted(self.vocabulary.plugins))
                self._complain(name, (*inner, "name"), f"unknown plugin `{name.text}`", advice)
                continue
            found.append(
                PluginUse(
                    name=name.text,
                    disabled=self._disabled(item, inner),
                    arguments=self._arguments(item.get("arguments"), known, inner),
                )
            )
        return found

    def _disabled(self, item: Branch, path: TreePath) -> frozenset[str]:
        flags = self.vocabulary.flags
        for key, place in item.keys.items():
            if key.startswith("enable") and key not in flags and key in _EVERY_FLAG:
                message = f"`{key}` is no flag of {self.vocabulary.semantics.value}"
                advice = suggest(key, sorted(flags))
                self.problems.append(place.problem(show((*path, key)), message, advice))
        off = {flag for flag in flags if _is(item.get(flag), False)}
        return frozenset(
            off | {flag for flag in self.vocabulary.off if not _is(item.get(flag), True)}
        )

    def _arguments(self, item: Item | None, known: Known, path: TreePath) -> dict[str, str]:
        given = {}
        for key, value in (item.entries if isinstance(item, Branch) else {}).items():
            assert isinstance(item, Branch)
            inner = (*path, "arguments", key)
            if not self.vocabulary.knows_argument(known, key):
                advice = suggest(key, sorted(known))
                place = item.keys[key]
                message = f"unknown argument `{key}`"
                self.problems.append(place.problem(show(inner), message, advice))
            elif isinstance(value, Leaf) or self.vocabulary is not KUBE_BATCH:
                read = self.vocabulary.read(known, key, value)
                if read.wanted:
                    shown = f"`{value.text}`" if isinstance(value, Leaf) else f"`{key}`"
                    message = f"{shown} is not {read.wanted}"
                    self._complain(value, inner, message, f"write {read.wanted}")
                given[key] = read.text
        return given


_EVERY_FLAG: Final = KUBE_BATCH.flags | VOLCANO.flags


def _is(item: Item | None, value: bool) -> bool:
    return isinstance(item, Leaf) and item.value is value


# -- building --------------------------------------------------------------------------------


def _built(
    *,
    name: str,
    actions: tuple[str, ...],
    tiers: tuple[tuple[PluginUse, ...], ...],
    naming: Naming,
    semantics: Semantics = Semantics.KUBE_BATCH,
    configurations: Mapping[str, Mapping[str, str]] | None = None,
    unmodelled: tuple[str, ...] = (),
    options: BatchOptions | None = None,
    recorded_nodes: int = RECORDED_NODES,
    description: str = "",
    notices: tuple[Problem, ...] = (),
) -> BatchRules:
    options = options or BatchOptions()
    vocabulary = VOCABULARIES[semantics]
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": BATCH_RULES,
        "metadata": {"name": name},
        "spec": {
            "actions": list(actions),
            "tiers": [
                {"plugins": [_plugin_document(use, vocabulary) for use in tier]} for tier in tiers
            ],
            "naming": {
                "schedulerName": naming.scheduler,
                "defaultQueue": naming.default_queue,
                "priorityClasses": naming.priority_classes,
            },
            "audit": {"nodes": recorded_nodes},
        },
    }
    if semantics is Semantics.KUBE_BATCH:
        values = {key: getattr(options, attr) for key, attr in OPTION_KEYS.items()}
        document["spec"]["options"] = values
    else:
        document["spec"] |= {
            "semantics": semantics.value,
            "configurations": [
                {"name": name, "arguments": dict(arguments)}
                for name, arguments in (configurations or {}).items()
            ],
            "notModelled": list(unmodelled),
        }
    text = canonical.text(document)
    return BatchRules(
        name=name,
        digest=canonical.sha256(text.encode()),
        canonical=text,
        actions=actions,
        tiers=tiers,
        semantics=semantics.value,
        naming=naming,
        configurations=configurations or {},
        unmodelled=unmodelled,
        options=options,
        recorded_nodes=recorded_nodes,
        description=description,
        notices=notices,
    )


def _plugin_document(use: PluginUse, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "name": use.name,
        **{flag: use.enabled(flag) for flag in sorted(vocabulary.flags)},
        "arguments": dict(use.arguments),
    }
