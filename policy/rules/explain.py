"""The effective rules of a rule set, overlays merged, each with the line it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policy.cluster import canonical
from policy.rules.expressions import default_on_error
from policy.rules.ruleset import ImportanceKey, Rule, RuleSet
from policy.rules.schema import PATCHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRule:
    """One rule as it takes effect."""

    section: str  #: `eligibility`, `filters`, `victims.eligible`, ..., and last `settings`
    position: int  #: from 1, within the section
    id: str
    text: str  #: `deny when preemptor.preemptionPolicy == 'Never'`
    why: str
    origin: str  #: `file:line`


def effective_rules(rule_set: RuleSet) -> tuple[EffectiveRule, ...]:
    """Every rule, in the order in which the sections of a file appear."""
    return tuple(_rules(rule_set))


def _rules(rules: RuleSet) -> Iterator[EffectiveRule]:
    origins = rules.origins
    victims = rules.victims
    sections: list[tuple[str, list[tuple[str, str, str, str]]]] = [
        ("eligibility", [_verdict(rule) for rule in rules.eligibility]),
        (
            "filters",
            [
                (use.name, _parameters(use.parameters), "", f"filters/{use.name}")
                for use in rules.filters
            ],
        ),
        ("victims.eligible", [_verdict(rule) for rule in victims.eligible]),
        ("victims.forbid", [_verdict(rule) for rule in victims.forbid]),
        ("victims.importance", [_order(key) for key in victims.importance]),
        (
            "ranking",
            [
                (
                    criterion.id,
                    f"{criterion.direction.value} {criterion.expression or criterion.pick}",
                    criterion.why,
                    criterion.id,
                )
                for criterion in rules.ranking
            ],
        ),
        (
            "scoring",
            [
                (
                    use.name,
                    f"weight {use.weight} {_parameters(use.parameters)}".strip(),
                    use.why,
                    f"scoring/{use.name}",
                )
                for use in rules.scoring
            ],
        ),
    ]
    if rules.groups is not None:
        units = rules.groups.victims
        sections += [
            ("groups.eligibility", [_verdict(rule) for rule in rules.groups.eligibility]),
            ("groups.victims.eligible", [_verdict(rule) for rule in units.eligible]),
            ("groups.victims.importance", [_order(key) for key in units.importance]),
        ]
    sections.append(("settings", list(_settings(rules))))
    for section, entries in sections:
        for position, (name, text, why, origin) in enumerate(entries, 1):
            yield EffectiveRule(
                section=section,
                position=position,
                id=name,
                text=text,
                why=why,
                origin=origins.get(origin, "default" if section == "settings" else rules.name),
            )


def _order(key: ImportanceKey) -> tuple[str, str, str, str]:
    direction = "descending" if key.descending else "ascending"
    return key.id, f"{direction} {key.expression}", key.why, key.id


def _verdict(rule: Rule) -> tuple[str, str, str, str]:
    condition = f" when {rule.when}" if rule.when is not None else ""
    answer = ""
    if rule.when is not None and rule.on_error is not default_on_error(rule.verdict):
        answer = f", {rule.on_error.value} where that has no value"
    return rule.id, f"{rule.verdict.value}{condition}{answer}", rule.why, rule.id


_LISTS = frozenset(".".join(path) for path in PATCHABLE)


def _settings(rules: RuleSet) -> Iterator[tuple[str, str, str, str]]:
    """Everything beside the lists of rules, with the defaults."""
    pending = [("", json.loads(rules.canonical)["spec"])]
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            pending = [(f"{prefix}{key}", item) for key, item in value.items()] + pending
        elif path not in _LISTS:
            text = value if isinstance(value, str) else canonical.text(value)
            yield path, text, "", f"settings/{path}"


def _parameters(parameters: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_word(value)}" for name, value in parameters.items())


def _word(value: Any) -> str:
    """A list as it stands in the canonical text, everything else as it is."""
    return canonical.text(value) if isinstance(value, list | tuple) else str(value)
