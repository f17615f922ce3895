"""The effective rules of a rule set, overlays merged, each with the line it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.rules.expressions import default_on_error
from policy.rules.ruleset import (
    FilterUse,
    ImportanceKey,
    RankingCriterion,
    Rule,
    RuleSet,
    ScorerUse,
)
from policy.rules.schema import PATCHABLE
from policy.text.words import value_text


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRule:
    """One rule as it takes effect."""

    section: str  #: `eligibility`, `filters`, `victims.eligible`, ..., and last `settings`
    position: int  #: from 1, within the section
    id: str
    text: str  #: `deny when preemptor.preemptionPolicy == 'Never'`
    verdict: str  #: `deny`, `ascending`, `minimize`, `weight 3`; "" for filters and settings
    condition: str  #: what `text` says beside it: an expression, parameters, a value; "" for none
    without_value: str  #: `holds` or `skip`, where it is not what the verdict means by itself
    why: str
    origin: str  #: `file:line`


SECTIONS: Final[Mapping[str, str]] = {
    "eligibility": "May the pod preempt? The first rule that holds decides.",
    "filters": "Does the pod fit a node? The first filter that fails decides the node's status.",
    "victims.eligible": "May a pod be a victim? The first rule that holds decides; where none"
    " holds, it may not.",
    "victims.forbid": "Which pods stay whatever else holds? Judged after the disruption budgets"
    " were counted.",
    "victims.importance": "Which pods are kept first? Each key breaks the ties of the one before.",
    "ranking": "Which candidate is best? Each criterion keeps the best nodes, and the next one"
    " breaks the tie.",
    "scoring": "Which node is best for a pod that fits without preemption? Scores times weights"
    " are added.",
    "groups.eligibility": "May a pod group preempt? The first rule that holds decides.",
    "groups.victims.eligible": "May a unit leave for a pod group? The first rule that holds"
    " decides; where none holds, it may not.",
    "groups.victims.importance": "Which units are kept first? Each key breaks the ties of the one"
    " before.",
    "settings": "Everything beside the lists of rules, with the defaults.",
}
"""What each section decides, in the order of a file."""


def effective_rules(rule_set: RuleSet) -> tuple[EffectiveRule, ...]:
    """Every rule, in the order in which the sections of a file appear."""
    return tuple(_rules(rule_set))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A rule before it has its place."""

    id: str
    origin: str  #: key of `RuleSet.origins`
    verdict: str = ""
    condition: str = ""
    without_value: str = ""
    why: str = ""
    joint: str = ""  #: between verdict and condition

    @property
    def text(self) -> str:
        words = (self.verdict, self.joint if self.condition else "", self.condition)
        answer = f", {self.without_value} where that has no value" if self.without_value else ""
        return " ".join(word for word in words if word) + answer


def _rules(rules: RuleSet) -> Iterator[EffectiveRule]:
    for section, entries in _sections(rules):
        for position, entry in enumerate(entries, 1):
            yield EffectiveRule(
                section=section,
                position=position,
                id=entry.id,
                text=entry.text,
                verdict=entry.verdict,
                condition=entry.condition,
                without_value=entry.without_value,
                why=entry.why,
                origin=rules.origins.get(
                    entry.origin, "default" if section == "settings" else rules.name
                ),
            )


def _sections(rules: RuleSet) -> Iterator[tuple[str, list[_Entry]]]:
    victims = rules.victims
    yield "eligibility", [_verdict(rule) for rule in rules.eligibility]
    yield "filters", [_filter(use) for use in rules.filters]
    yield "victims.eligible", [_verdict(rule) for rule in victims.eligible]
    yield "victims.forbid", [_verdict(rule) for rule in victims.forbid]
    yield "victims.importance", [_order(key) for key in victims.importance]
    yield "ranking", [_criterion(criterion) for criterion in rules.ranking]
    yield "scoring", [_scorer(use) for use in rules.scoring]
    if rules.groups is not None:
        units = rules.groups.victims
        yield "groups.eligibility", [_verdict(rule) for rule in rules.groups.eligibility]
        yield "groups.victims.eligible", [_verdict(rule) for rule in units.eligible]
        yield "groups.victims.importance", [_order(key) for key in units.importance]
    yield "settings", list(_settings(rules))


def _verdict(rule: Rule) -> _Entry:
    usual = rule.when is None or rule.on_error is default_on_error(rule.verdict)
    return _Entry(
        id=rule.id,
        origin=rule.id,
        verdict=rule.verdict.value,
        condition="" if rule.when is None else str(rule.when),
        without_value="" if usual else rule.on_error.value,
        why=rule.why,
        joint="when",
    )


def _filter(use: FilterUse) -> _Entry:
    return _Entry(id=use.name, origin=f"filters/{use.name}", condition=_parameters(use.parameters))


def _order(key: ImportanceKey) -> _Entry:
    return _Entry(
        id=key.id,
        origin=key.id,
        verdict="descending" if key.descending else "ascending",
        condition=str(key.expression),
        why=key.why,
    )


def _criterion(criterion: RankingCriterion) -> _Entry:
    return _Entry(
        id=criterion.id,
        origin=criterion.id,
        verdict=criterion.direction.value,
        condition=str(criterion.expression or criterion.pick),
        why=criterion.why,
    )


def _scorer(use: ScorerUse) -> _Entry:
    return _Entry(
        id=use.name,
        origin=f"scoring/{use.name}",
        verdict=f"weight {use.weight}",
        condition=_parameters(use.parameters),
        why=use.why,
    )


_LISTS = frozenset(".".join(path) for path in PATCHABLE)


def _settings(rules: RuleSet) -> Iterator[_Entry]:
    """Everything beside the lists of rules, with the defaults."""
    pending = [("", json.loads(rules.canonical)["spec"])]
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            pending = [(f"{prefix}{key}", item) for key, item in value.items()] + pending
        elif path not in _LISTS:
            yield _Entry(id=path, origin=f"settings/{path}", condition=value_text(value))


def _parameters(parameters: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value_text(value)}" for name, value in parameters.items())
