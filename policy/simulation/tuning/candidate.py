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
from policy.rules import RulesError, RuleSet
from policy.rules.files import shipped
from policy.simulation.tuning.spec import Number, Study

_SECTIONS: Final = (("eligibility",), ("victims", "eligible"), ("victims", "forbid"))

_IN_MEMORY: Final = "<mapping>"
"""Where problems are said to be of a rule set that is made here."""

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
    digest: str  #: of the study: of everything that a trial depends on

    @staticmethod
    def of(study: Study) -> Space:
        """Raises RulesError, TraceError for what the rule sets do not have."""
        vary = study.spec.vary
        base = RuleSet.load(_at(study, study.spec.base))
        found = dict(_rules_of(base))
        brought: dict[str, str] = {}
        digests = [base.digest]
        for name in vary.include:
            head = _head(study, "probe", Path.cwd())
            try:
                with_it = RuleSet.load({**head, "include": [_at(study, name)]})
            except RulesError as exc:
                first = exc.problems[0]
                if first.source != _IN_MEMORY:
                    raise
                raise study.mistake(f"include `{name}`: {first.message}", help=first.help) from exc
            digests.append(with_it.digest)
            for rule, entry in _rules_of(with_it).items():
                if rule not in found:
                    found[rule] = entry
                    brought[rule] = name
        for number in vary.numbers:
            _require(study, number, found)
        _require_apart(study, vary.numbers)
        ranking = canonical.parse(base.canonical)["spec"]["ranking"]
        known = [criterion["id"] for criterion in ranking]
        for name in vary.ranking:
            if name not in known:
                raise study.mistake(
                    f"`{name}` is no criterion of `{base.name}`", help=f"one of {', '.join(known)}"
                )
        wanted = {n.rule for n in vary.numbers if n.rule}
        rules = {name: entry for name, entry in found.items() if name in wanted}
        space = Space(study, base, rules, brought, ranking, study.digest(digests))
        space._require_possible()
        return space

    @property
    def orders(self) -> list[str]:
        """Orders of the criteria that may vary; the base's is the first."""
        wanted = set(self.study.spec.vary.ranking)
        own = [c["id"] for c in self.criteria if c["id"] in wanted]
        return [" > ".join(order) for order in permutations(own)]

    def counts(self, number: Number, included: Sequence[str]) -> bool:
        """Does the number matter where these are included?"""
        return number.rule is None or self.brought_by.get(number.rule, "") in ("", *included)

    def _require_possible(self) -> None:
        """Raises TraceError for includes and numbers that would make no rule set."""
        vary = self.study.spec.vary
        every: dict[str, Any] = {f"include {name}": True for name in vary.include}
        try:
            self.rule_set(every, "probe")
        except RulesError as exc:
            first = exc.problems[0]
            raise self.study.mistake(
                f"what is included does not go together: {first.message}", help=first.help
            ) from exc
        for number in vary.numbers:
            for amount in (number.low, number.high):
                try:
                    self.rule_set(every | {number.name: amount}, "probe")
                except RulesError as exc:
                    first = exc.problems[0]
                    place = f"rule `{number.rule}`" if number.rule else f"`{number.setting}`"
                    raise self.study.mistake(
                        f"number `{number.name}`: `{number.written(amount)}` cannot stand in"
                        f" {place}: {first.message}",
                        help=first.help,
                    ) from exc

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
        """The rule file of a choice. whys: by rule id, and `ranking`."""
        study = self.study
        spec: dict[str, Any] = {}
        for number in self.changed(choice):
            if number.rule is None:
                spec.setdefault("victims", {})["maxVictims"] = int(choice[number.name])
        for rule, written in self._written(choice).items():
            self._replace(spec, rule, written, whys)
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

    def changed(self, choice: ParameterChoice) -> list[Number]:
        """The numbers that the choice sets to something else than what stands there."""
        return [
            number
            for number in self.study.spec.vary.numbers
            if number.name in choice and not self._stands(number, choice)
        ]

    def _stands(self, number: Number, choice: ParameterChoice) -> bool:
        amount = int(choice[number.name])
        if number.rule is not None:
            return number.stands(amount)
        included = any(choice.get(f"include {n}") for n in self.study.spec.vary.include)
        # What is included may set it, too.
        return not included and amount == self.base.victims.max_victims

    def _written(self, choice: ParameterChoice) -> dict[str, dict[str, str]]:
        """By rule: what stands there -> what takes its place."""
        found: dict[str, dict[str, str]] = {}
        for number in self.changed(choice):
            if number.rule is not None:
                assert number.text is not None  # it goes with `rule`
                written = number.written(int(choice[number.name]))
                found.setdefault(number.rule, {})[number.text] = written
        return found

    def _replace(
        self, spec: dict[str, Any], name: str, written: Mapping[str, str], whys: Mapping[str, str]
    ) -> None:
        path, rule = self.rules[name]
        place = spec
        for key in path:
            place = place.setdefault(key, {})
        entry = {k: v for k, v in rule.items() if v != ""}
        entry["when"] = _exchanged(entry["when"], written)
        if entry.get("reason"):
            said = ", ".join(f"{old} is {new}" for old, new in written.items())
            entry["reason"] = f"{entry['reason']} ({said} here)"
        told = ", ".join(f"{new} in place of {old}" for old, new in written.items())
        why = whys.get(name)
        entry["why"] = f"tuned: {told}" if why is None else f"{told}; {why}"
        place.setdefault("replace", []).append(entry)

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
        included = sum(value is True for value in choice.values())
        return included + len(self.changed(choice)) + len(order) - len(_kept(own, order))


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
    path = os.path.relpath(study.folder / name, folder)
    # Without a folder it would be the name of a shipped rule set.
    return path if os.sep in path else f"./{path}"


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
    study: Study,
    number: Number,
    rules: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]],
) -> None:
    if number.rule is None:
        return
    if number.rule not in rules:
        raise study.mistake(
            f"no rule `{number.rule}` in the base or what may be included",
            help="`policy rules show NAME` lists the rules of a rule set",
        )
    when = rules[number.rule][1].get("when", "")
    assert number.text is not None  # it goes with `rule`
    if _exchanged(when, {number.text: ""}) == when:
        raise study.mistake(f"`{number.text}` does not stand in rule `{number.rule}`: `{when}`")


def _require_apart(study: Study, numbers: Sequence[Number]) -> None:
    """Two names for one number would overwrite each other."""
    known: dict[tuple[str | None, str | None], Number] = {}
    for number in numbers:
        place = number.rule, number.text
        other = known.setdefault(place, number)
        if other is not number:
            where = f"`{number.text}` in rule `{number.rule}`" if number.rule else "`maxVictims`"
            raise study.mistake(f"`{other.name}` and `{number.name}` are the same number: {where}")


def _exchanged(when: str, written: Mapping[str, str]) -> str:
    """Whole numbers and times only: `60` does not stand in `600`. All at once: what is written for
    one of them is not taken for the next."""
    olds = "|".join(map(re.escape, written))
    return re.sub(rf"(?<![\w.])(?:{olds})(?![\w.])", lambda found: written[found[0]], when)
