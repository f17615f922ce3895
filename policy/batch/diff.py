"""What differs between two files of batch rules, setting by setting and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policy.batch.rules import BatchRules
from policy.batch.semantics import VOCABULARIES, Semantics
from policy.batch.settings import OPTION_KEYS, PluginUse
from policy.cluster import canonical
from policy.rules.diff import ChangeKind, RuleChange
from policy.rules.diff_table import ABSENT, DiffRow


def compare(old: BatchRules, new: BatchRules) -> tuple[RuleChange, ...]:
    """The changes that lead from one to the other; the name is not one of them."""
    before, after = _settings(old), _settings(new)
    head = ("semantics", "actions")
    return (
        *_changes(before, after, [(name, "") for name in head]),
        *_plugins(old, new),
        *_changes(before, after, [key for key in {**before, **after} if key[0] not in head]),
    )


def diff_rows(changes: Iterable[RuleChange]) -> list[DiffRow]:
    """A row per change, in their order."""
    return [
        DiffRow(
            section=change.section,
            rule=change.rule or "",
            old=_plain(change.before),
            new=_plain(change.after),
            meaning=change.words,
        )
        for change in changes
    ]


def _plain(text: str | None) -> str:
    return ABSENT if text is None else str(canonical.parse(text))


def _change(
    section: str, name: str, before: str | None, after: str | None, words: str
) -> RuleChange:
    kind = ChangeKind.MOVED if section == "tiers" else ChangeKind.CHANGED
    if before is None or after is None:
        kind = ChangeKind.ADDED if before is None else ChangeKind.REMOVED
    return RuleChange(
        kind=kind,
        section=section,
        rule=name or None,
        before=None if before is None else canonical.text(before),
        after=None if after is None else canonical.text(after),
        words=words,
    )


# --- plugins -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A use of a plugin at its place in the tiers."""

    tier: int  #: from 1
    place: int  #: in the tier, from 1
    settings: Mapping[str, str]  #: flags and arguments that are not what they are by default

    def __str__(self) -> str:
        return f"tier {self.tier}, place {self.place}"


def _placed(rules: BatchRules) -> dict[str, _Placed]:
    """By name; a plugin that is listed again has its number behind it."""
    found: dict[str, _Placed] = {}
    for tier, uses in enumerate(rules.tiers, start=1):
        for place, use in enumerate(uses, start=1):
            name, number = use.name, 1
            while name in found:
                number += 1
                name = f"{use.name} ({number})"
            found[name] = _Placed(tier=tier, place=place, settings=_own(use, rules))
    return found


def _own(use: PluginUse, rules: BatchRules) -> dict[str, str]:
    vocabulary = VOCABULARIES[Semantics(rules.semantics)]
    flags = {
        flag: "true" if use.enabled(flag) else "false"
        for flag in sorted(vocabulary.flags)
        if use.enabled(flag) == (flag in vocabulary.off)
    }
    return {**flags, **use.arguments}


def _plugins(old: BatchRules, new: BatchRules) -> Iterator[RuleChange]:
    before, after = _placed(old), _placed(new)
    moved = _moved(before, after)
    for name in {**before, **after}:
        one, other = before.get(name), after.get(name)
        if one is None:
            words = f"plugin `{name}` takes part"
            yield _change("tiers", name, None, str(other), words)
        elif other is None:
            words = f"plugin `{name}` takes no part any more"
            yield _change("tiers", name, str(one), None, words)
        elif name in moved:
            words = f"plugin `{name}` moves from {one} to {other}"
            yield _change("tiers", name, str(one), str(other), words)
        if other is not None:
            yield from _own_changes(name, {} if one is None else one.settings, other.settings)


def _moved(before: Mapping[str, _Placed], after: Mapping[str, _Placed]) -> set[str]:
    """Plugins of both of which the tier, or the order among those of both, is another."""
    orders = []
    for one, other in ((before, after), (after, before)):
        ranks: dict[str, tuple[int, int]] = {}
        counts: dict[int, int] = {}
        for name, placed in one.items():
            if name in other and other[name].tier == placed.tier:
                counts[placed.tier] = counts.get(placed.tier, 0) + 1
                ranks[name] = (placed.tier, counts[placed.tier])
            else:
                ranks[name] = (placed.tier, 0)
        orders.append(ranks)
    return {name for name in before.keys() & after.keys() if orders[0][name] != orders[1][name]}


def _own_changes(
    plugin: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[RuleChange]:
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        if one != other:
            was, now = one or "the default", other or "the default"
            words = f"`{key}` of `{plugin}`: {was} before, now {now}"
            yield _change("plugins", f"{plugin} {key}", one, other, words)


# --- the rest ----------------------------------------------------------------------------------

_Key = tuple[str, str]

_NOT_SET: Final[Mapping[str, str]] = {
    "configurations": "the default",
    "notModelled": "not asked for",
}


def _settings(rules: BatchRules) -> dict[_Key, str]:
    """Section and name of everything beside the plugins -> its value, in the order of a file."""
    found: dict[_Key, str] = {
        ("semantics", ""): rules.semantics,
        ("actions", ""): ", ".join(rules.actions),
    }
    for action, arguments in rules.configurations.items():
        found |= {("configurations", f"{action} {key}"): v for key, v in arguments.items()}
    naming = rules.naming
    found |= {
        ("naming", "schedulerName"): naming.scheduler,
        ("naming", "defaultQueue"): naming.default_queue,
        ("naming", "priorityClasses"): str(naming.priority_classes).lower(),
    }
    found |= {
        ("options", key): str(getattr(rules.options, attribute)).lower()
        for key, attribute in OPTION_KEYS.items()
    }
    found["audit", "nodes"] = str(rules.recorded_nodes)
    found |= {("notModelled", what): "asked for" for what in rules.unmodelled}
    return found


def _changes(
    old: Mapping[_Key, str], new: Mapping[_Key, str], keys: Iterable[_Key]
) -> Iterator[RuleChange]:
    for section, name in keys:
        before, after = old.get((section, name)), new.get((section, name))
        if before != after:
            other = _NOT_SET.get(section, "not set")
            words = f"`{name or section}`: {before or other} before, now {after or other}"
            yield _change(section, name, before, after, words)
