"""From a choice among what may vary to a rule file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from policy.cluster import canonical
from policy.rules import RuleSet
from policy.rules.files import shipped
from policy.simulation.trace import TraceError
from policy.simulation.tuning.spec import Number, Study

_SECTIONS: Final = (("eligibility",), ("victims", "eligible"), ("victims", "forbid"))

ParameterChoice = Mapping[str, Any]
"""By name: `include NAME` -> bool, a number's name -> int, `ranking` -> ids with ` > ` between."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a study may choose from, checked against the rule sets that it names."""

    study: Study
    base: RuleSet
    rules: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]]
    """Rules of which numbers vary: id -> where they stand, and what they are."""
    brought_by: Mapping[str, str]  #: id of a rule -> the include that brings it
    criteria: Sequence[Mapping[str, Any]]  #: the ranking of the base

    @staticmethod
    def of(study: Study) -> Space:
        """Raises RulesError, TraceError for what the rule sets do not have."""
        vary = study.spec.vary
        base = RuleSet.load(_named(study, study.spec.base, study.folder))
        found = dict(_rules_of(base))
        brought: dict[str, str] = {}
        for name in vary.include:
            file = {**_head(study, "probe", study.folder), "include": [_at(study, name)]}
            for rule, entry in _rules_of(RuleSet.load(file)).items():
                if rule not in found:
                    found[rule] = entry
                    brought[rule] = name
        for number in vary.numbers:
            _require(number, found)
        ranking = canonical.parse(base.canonical)["spec"]["ranking"]
        known = [criterion["id"] for criterion in ranking]
        for name in vary.ranking:
            if name not in known:
                raise TraceError(
                    f"`{name}` is no criterion of `{base.name}`", help=f"one of {', '.join(known)}"
                )
        wanted = {n.rule for n in vary.numbers if n.rule}
        rules = {name: entry for name, entry in found.items() if name in wanted}
        return Space(study, base, rules, brought, ranking)

    @property
    def orders(self) -> list[str]:
        """Orders of the criteria that may vary; the base's is the first."""
        wanted = set(self.study.spec.vary.ranking)
        own = [c["id"] for c in self.criteria if c["id"] in wanted]
        return [" > ".join(order) for order in permutations(own)]

    def counts(self, number: Number, included: Sequence[str]) -> bool:
        """Does the number matter where these are included?"""
        return number.rule is None or self.brought_by.get(number.rule, "") in ("", *included)

    def unchanged(self) -> dict[str, Any]:
        """The choice that is the base itself."""
        choice: dict[str, Any] = {f"include {n}": False for n in self.study.spec.vary.include}
        if self.study.spec.vary.ranking:
            choice["ranking"] = self.orders[0]
        return choice

    def file(
        self,
        choice: ParameterChoice,
        *,
        name: str,
        description: str,
        whys: Mapping[str, str],
        folder: Path,
    ) -> dict[str, Any]:
        """The rule file of a choice. whys: by rule id, `ranking` and settings."""
        study = self.study
        spec: dict[str, Any] = {}
        for number in study.spec.vary.numbers:
            if number.name in choice:
                self._set(spec, number, int(choice[number.name]), whys)
        order = choice.get("ranking")
        if order and order != self.orders[0]:
            spec["ranking"] = self._ranking(order.split(" > "), whys.get("ranking", ""))
        included = [n for n in study.spec.vary.include if choice.get(f"include {n}")]
        head = _head(study, name, folder)
        head["metadata"]["description"] = description
        if included:
            head["include"] = [_named(study, n, folder) for n in included]
        return {**head, "spec": spec} if spec else head

    def rule_set(self, choice: ParameterChoice, name: str) -> RuleSet:
        """The same as a rule set."""
        here = Path.cwd()
        return RuleSet.load(self.file(choice, name=name, description="", whys={}, folder=here))

    def _set(
        self, spec: dict[str, Any], number: Number, amount: int, whys: Mapping[str, str]
    ) -> None:
        if number.rule is None:
            spec.setdefault("victims", {})["maxVictims"] = amount
            return
        path, rule = self.rules[number.rule]
        place = spec
        for key in path:
            place = place.setdefault(key, {})
        changed = place.setdefault("replace", [])
        entry = next((r for r in changed if r["id"] == number.rule), None)
        if entry is None:
            entry = {k: v for k, v in rule.items() if v != ""}
            changed.append(entry)
        assert number.text is not None  # it goes with `rule`
        written = number.written(amount)
        entry["when"] = _exchanged(entry["when"], number.text, written)
        if entry.get("reason") and written != number.text:
            said = f"{number.text} is {written} here"
            entry["reason"] = f"{entry['reason']} ({said})"
        entry["why"] = whys.get(number.rule, f"tuned: {written} in place of {number.text}")

    def _ranking(self, order: Sequence[str], why: str) -> dict[str, Any]:
        """The criteria that move, taken out and put back behind those that they follow now."""
        by_id = {criterion["id"]: criterion for criterion in self.criteria}
        own = [criterion["id"] for criterion in self.criteria]
        new = iter(order)
        wanted = [next(new) if name in order else name for name in own]
        moved = [name for name in wanted if name not in _kept(own, wanted)]
        insert = []
        for name in moved:
            place = wanted.index(name)
            where = {"after": wanted[place - 1]} if place else {"at": "start"}
            rule = {**by_id[name], "why": why or "tuned: the order of the criteria"}
            insert.append({**where, "rule": rule})
        return {"remove": moved, "insert": insert}

    def changes(self, choice: ParameterChoice) -> int:
        """How many things differ from the base: what is included, numbers, criteria that move."""
        order = choice.get("ranking", "").split(" > ")
        own = self.orders[0].split(" > ")
        others = sum(name != "ranking" and value is not False for name, value in choice.items())
        return others + len(order) - len(_kept(own, order))


def _kept(own: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The longest selection that stands in both in the same order; the first of several."""
    found: dict[str, tuple[str, ...]] = {}
    for name in own:
        behind = [f for last, f in found.items() if wanted.index(last) < wanted.index(name)]
        found[name] = (*max(behind, key=len, default=()), name)
    return max(found.values(), key=len)


def _head(study: Study, name: str, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {"name": name},
        "extends": _named(study, study.spec.base, folder),
    }


def _at(study: Study, name: str) -> str:
    return _named(study, name, Path.cwd())


def _named(study: Study, name: str, folder: Path) -> str:
    """A rule set as a file in `folder` names it; files count from the tuning file's folder."""
    if name in shipped():
        return name
    return os.path.relpath(study.folder / name, folder)


def _rules_of(rules: RuleSet) -> dict[str, tuple[tuple[str, ...], Mapping[str, Any]]]:
    spec = canonical.parse(rules.canonical)["spec"]
    found: dict[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {}
    for path in _SECTIONS:
        place: Any = spec
        for key in path:
            place = place.get(key, {}) if isinstance(place, dict) else {}
        for rule in place or ():
            found[rule["id"]] = (path, rule)
    return found


def _require(
    number: Number, rules: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]]
) -> None:
    if number.rule is None:
        return
    if number.rule not in rules:
        raise TraceError(
            f"no rule `{number.rule}` in the base or what may be included",
            help="`policy rules show NAME` lists the rules of a rule set",
        )
    when = rules[number.rule][1].get("when", "")
    assert number.text is not None  # it goes with `rule`
    if _exchanged(when, number.text, "") == when:
        raise TraceError(f"`{number.text}` does not stand in rule `{number.rule}`: `{when}`")


def _exchanged(when: str, old: str, new: str) -> str:
    """Whole numbers and times only: `60` does not stand in `600`."""
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w.])", new, when)
