"""What differs between two rule sets, rule by rule and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policy.cluster import canonical
from policy.rules.expressions import default_on_error
from policy.rules.ruleset import RuleSet
from policy.rules.schema import PATCHABLE, RULE_NAMES


class ChangeKind(StrEnum):
    """What happened to a rule or a setting."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"  # the order of a list matters


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One difference. `before` and `after` are canonical JSON, None where there is nothing."""

    kind: ChangeKind
    section: str  #: `victims.eligible`, or `candidates.minPercentage` for a setting
    rule: str | None  #: id of the rule; None for a setting
    before: str | None
    after: str | None
    words: str

    def __str__(self) -> str:
        return self.words


def compare(old: RuleSet, new: RuleSet) -> tuple[RuleChange, ...]:
    """The changes that lead from one rule set to another; the name is not one of them."""
    before, after = json.loads(old.canonical)["spec"], json.loads(new.canonical)["spec"]
    changes: list[RuleChange] = []
    for path in PATCHABLE:
        name = ".".join(path)
        key = RULE_NAMES.get(path[-1], "id")
        changes += _rules(name, _at(before, path), _at(after, path), key)
    changes += _settings("", before, after)
    return tuple(changes)


def _at(spec: Mapping[str, Any], path: Sequence[str]) -> list[dict[str, Any]]:
    found: Any = spec
    for key in path:
        found = found.get(key, {})
    return list(found or [])


def _identified(rules: Sequence[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    table = {}
    for index, rule in enumerate(rules):
        name = rule.get(key) or rule.get("ascending") or rule.get("descending") or str(index + 1)
        table[name] = rule
    return table


def _rules(
    section: str, old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], key: str
) -> Iterator[RuleChange]:
    before, after = _identified(old, key), _identified(new, key)
    for name, rule in before.items():
        if name not in after:
            yield _change(ChangeKind.REMOVED, section, name, rule, None, "removed")
    for name, rule in after.items():
        if name not in before:
            words = f"added: {_summary(rule)}" if _summary(rule) else "added"
            yield _change(ChangeKind.ADDED, section, name, None, rule, words)
        elif before[name] != rule:
            words = "; ".join(_fields(before[name], rule))
            yield _change(ChangeKind.CHANGED, section, name, before[name], rule, words)
    kept = [name for name in before if name in after]
    order = [name for name in after if name in before]
    for name in _moved(kept, order):
        position = order.index(name)
        words = f"moved behind `{order[position - 1]}`" if position else "moved to the front"
        yield _change(ChangeKind.MOVED, section, name, before[name], after[name], words)


def _moved(kept: list[str], order: list[str]) -> Iterator[str]:
    """The fewest entries that had to move: those outside a longest common run."""
    places = {name: index for index, name in enumerate(kept)}
    best: list[list[str]] = [[]]
    for name in order:
        runs = [run for run in best if not run or places[run[-1]] < places[name]]
        best.append([*max(runs, key=len), name])
    longest: list[str] = max(best, key=len)
    stay = set(longest)
    yield from (name for name in order if name not in stay)


def _change(
    kind: ChangeKind,
    section: str,
    name: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    words: str,
) -> RuleChange:
    return RuleChange(
        kind=kind,
        section=section,
        rule=name,
        before=None if before is None else canonical.text(before),
        after=None if after is None else canonical.text(after),
        words=f"{section}: `{name}` {words}",
    )


def _summary(rule: Mapping[str, Any]) -> str:
    hidden = {"id", "filter", "scorer"}
    if rule.get("onError") == default_on_error(rule.get("verdict", "forbid")):
        hidden.add("onError")
    parts = [f"{key} `{rule[key]}`" for key in rule if key not in hidden]
    return ", ".join(part for part in parts if not part.endswith("``"))


def _fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield _from_to(key, before.get(key), after.get(key))


def _from_to(name: str, before: Any, after: Any) -> str:
    def shown(value: Any) -> str:
        if value in (None, ""):
            return "nothing"
        return f"`{value if isinstance(value, str) else canonical.text(value)}`"

    return f"{name} changed from {shown(before)} to {shown(after)}"


_LISTS = frozenset(".".join(path) for path in PATCHABLE)


def _settings(
    path: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[RuleChange]:
    for key in sorted({*before, *after}):
        name = f"{path}.{key}" if path else key
        old, new = before.get(key), after.get(key)
        if name in _LISTS or old == new:
            continue
        if isinstance(old, dict) or isinstance(new, dict):
            yield from _settings(name, old or {}, new or {})
            continue
        yield RuleChange(
            kind=ChangeKind.CHANGED,
            section=name,
            rule=None,
            before=None if old is None else canonical.text(old),
            after=None if new is None else canonical.text(new),
            words=_from_to(name, old, new),
        )
