"""Laying one rule file over another: what is given replaces, lists of rules change by id."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policy.rules.documents import Branch, Item, Leaf, Place, Series
from policy.rules.schema import PATCHABLE, RULE_NAMES
from policy.text.problems import Problem

_OPERATIONS = ("remove", "replace", "insert")
_POSITIONS = ("before", "after", "at")


def normalised(spec: Branch) -> Branch:
    """The spec with every filter and scorer as a mapping: `resources` as `{filter: resources}`."""
    entries = dict(spec.entries)
    for name, key in RULE_NAMES.items():
        series = entries.get(name)
        if isinstance(series, Series):
            entries[name] = Series(series.place, tuple(named(item, key) for item in series.items))
    return Branch(spec.place, entries, spec.keys)


def named(item: Item, key: str) -> Item:
    """A bare name as the mapping that it stands for."""
    if key != "id" and isinstance(item, Leaf):
        return Branch(item.place, {key: item}, {key: item.place})
    return item


def rule_id(item: Item, key: str) -> str | None:
    """The id by which overlays name a list's entry, None where it has none."""
    if not isinstance(item, Branch):
        return None
    leaf = item.get(key)
    if isinstance(leaf, Leaf):
        return leaf.text
    if key == "id":
        return implied_id(item)
    return None


def implied_id(item: Branch) -> str | None:
    """The id of an importance key without one: `victim.startTime` is `start-time`."""
    for direction in ("ascending", "descending"):
        leaf = item.get(direction)
        if isinstance(leaf, Leaf):
            field_name = leaf.text.strip().rpartition(".")[2]
            if not field_name.isalnum() or not field_name.isascii():
                return None
            return "".join(f"-{c.lower()}" if c.isupper() else c for c in field_name).lstrip("-")
    return None


def needs_base(spec: Branch) -> list[Problem]:
    """Complaints about changes by id in a file that extends nothing."""
    problems = []
    for path in PATCHABLE:
        item = _find(spec, path)
        if isinstance(item, Branch):
            message = f"`{path[-1]}` must be a list of rules here"
            advice = "changing a list by id needs `extends`"
            problems.append(item.place.problem(_show(path), message, advice))
    return problems


def _find(branch: Branch, path: Sequence[str]) -> Item | None:
    item: Item | None = branch
    for key in path:
        item = item.get(key) if isinstance(item, Branch) else None
    return item


def _show(path: Sequence[str]) -> str:
    return ".".join(("spec", *path))


@dataclass(slots=True)
class Merger:
    """Merges specs and collects what cannot be merged."""

    problems: list[Problem] = field(default_factory=list)

    def merge(self, base: Branch, over: Branch, path: tuple[str, ...] = ()) -> Branch:
        """`over` laid over `base`: mappings merge by key, lists of rules as they say."""
        entries = dict(base.entries)
        keys = dict(base.keys)
        for key, item in over.entries.items():
            here = (*path, key)
            below = entries.get(key)
            if here in PATCHABLE and isinstance(item, Branch):
                series = below if isinstance(below, Series) else Series(item.place, ())
                entries[key] = self._patch(series, item, here)
            elif isinstance(item, Branch) and isinstance(below, Branch):
                entries[key] = self.merge(below, item, here)
            else:
                entries[key] = item
            keys[key] = over.keys[key]
        return Branch(over.place, entries, keys)

    def _complain(
        self,
        place: Place,
        path: tuple[str, ...],
        message: str,
        advice: str | None = None,
    ) -> None:
        self.problems.append(place.problem(_show(path), message, advice))

    def _patch(self, base: Series, patch: Branch, path: tuple[str, ...]) -> Series:
        key = RULE_NAMES.get(path[-1], "id")
        rules = list(base.items)
        for name, place in patch.keys.items():
            if name not in _OPERATIONS:
                message = f"unknown key `{name}` in a change of `{path[-1]}`"
                self._complain(place, path, message, _one_of(name, _OPERATIONS))
        for operation in _OPERATIONS:
            item = patch.get(operation)
            if item is None:
                continue
            if not isinstance(item, Series):
                self._complain(item.place, path, f"`{operation}` must be a list")
            elif operation == "remove":
                self._remove(rules, item, path, key)
            elif operation == "replace":
                self._replace(rules, item, path, key)
            else:
                self._insert(rules, item, path, key)
        return Series(patch.place, tuple(rules))

    def _index(
        self, rules: Sequence[Item], wanted: str, place: Place, path: tuple[str, ...], key: str
    ) -> int | None:
        ids = [rule_id(rule, key) for rule in rules]
        if wanted in ids:
            return ids.index(wanted)
        known = [name for name in ids if name is not None]
        message = f"no rule `{wanted}` in the `{path[-1]}` of the base"
        self._complain(place, path, message, _one_of(wanted, known))
        return None

    def _remove(self, rules: list[Item], items: Series, path: tuple[str, ...], key: str) -> None:
        for item in items.items:
            if not isinstance(item, Leaf):
                self._complain(item.place, path, "`remove` lists ids")
                continue
            index = self._index(rules, item.text, item.place, path, key)
            if index is not None:
                del rules[index]

    def _replace(self, rules: list[Item], items: Series, path: tuple[str, ...], key: str) -> None:
        for item in items.items:
            rule = named(item, key)
            wanted = rule_id(rule, key)
            if wanted is None:
                self._complain(item.place, path, f"a replacement needs the `{key}` of a rule")
                continue
            index = self._index(rules, wanted, item.place, path, key)
            if index is not None:
                rules[index] = rule

    def _insert(self, rules: list[Item], items: Series, path: tuple[str, ...], key: str) -> None:
        # Insertions at one place appear in the order in which they are written.
        last_at: dict[tuple[str, str], Item] = {}
        for item in items.items:
            if not isinstance(item, Branch):
                self._complain(
                    item.place,
                    path,
                    "an insertion is a mapping",
                    "write `{before: id, rule: {...}}`",
                )
                continue
            for name, place in item.keys.items():
                if name not in (*_POSITIONS, "rule"):
                    advice = _one_of(name, (*_POSITIONS, "rule"))
                    self._complain(place, path, f"unknown key `{name}` in an insertion", advice)
            rule = item.get("rule")
            positions = [name for name in _POSITIONS if name in item.entries]
            if rule is None or len(positions) != 1:
                self._complain(
                    item.place,
                    path,
                    "an insertion needs `rule` and one place",
                    "the place is one of `before: id`, `after: id`, `at: start` and `at: end`",
                )
                continue
            anchor = item.entries[positions[0]]
            if not isinstance(anchor, Leaf):
                self._complain(anchor.place, path, f"`{positions[0]}` must be text")
                continue
            rule = named(rule, key)
            slot = (positions[0], anchor.text)
            index = self._slot(rules, positions[0], anchor, path, key)
            if index is None:
                continue
            earlier = last_at.get(slot)
            if earlier is not None and slot in last_at and positions[0] != "before":
                index = next(i for i, r in enumerate(rules) if r is earlier) + 1
            rules.insert(index, rule)
            last_at[slot] = rule

    def _slot(
        self, rules: Sequence[Item], position: str, anchor: Leaf, path: tuple[str, ...], key: str
    ) -> int | None:
        if position == "at":
            if anchor.text in ("start", "end"):
                return 0 if anchor.text == "start" else len(rules)
            message = f"unknown place `{anchor.text}`"
            self._complain(anchor.place, path, message, "it is `start` or `end`")
            return None
        index = self._index(rules, anchor.text, anchor.place, path, key)
        if index is None:
            return None
        return index if position == "before" else index + 1


def _one_of(wanted: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(wanted, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    if not names:
        return "there is none"
    return "known: " + ", ".join(f"`{name}`" for name in names)
