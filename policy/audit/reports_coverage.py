"""Which rules and criteria decided how often in the recorded history, and which never did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.rules.ruleset import RuleSet
from policy.store.read.reports import RuleUse, UsedRuleSet

NO_RULE = "(no rule)"
"""Shown where no rule of a section held, and its default decided."""

ONE_CANDIDATE = "(one candidate)"
"""Shown where there was nothing to rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """One rule of one rule set."""

    rule_set: str
    digest: str
    section: str
    rule: str
    decisions: int  #: that it decided, or in which it decided about pods
    share: float  #: of the decisions under the rule set
    pods: int | None  #: pods that it decided about; None for rules that decide about no pod


def coverage(used: UsedRuleSet, uses: list[RuleUse]) -> list[CoverageRow]:
    """Every rule of a rule set in its order, those that never decided included."""
    rules = RuleSet.from_canonical(used.canonical)
    found = {(use.section, use.rule): use for use in uses if use.digest == used.digest}
    rows = []
    for section, name in _rules(rules, found):
        use = found.get((section, name))
        decisions = use.decisions if use else 0
        shown = name or (ONE_CANDIDATE if section == "ranking" else NO_RULE)
        pods = use.pods if use else 0
        rows.append(
            CoverageRow(
                rule_set=used.name,
                digest=used.digest,
                section=section,
                rule=shown,
                decisions=decisions,
                share=round(decisions / used.decisions, 4) if used.decisions else 0.0,
                pods=pods if section.startswith("victims.") else None,
            )
        )
    return rows


def _rules(rules: RuleSet, found: Mapping[tuple[str, str], RuleUse]) -> Iterator[tuple[str, str]]:
    sections = (
        ("eligibility", [rule.id for rule in rules.eligibility]),
        ("victims.eligible", [rule.id for rule in rules.victims.eligible]),
        ("victims.forbid", [rule.id for rule in rules.victims.forbid]),
        ("ranking", [criterion.id for criterion in rules.ranking]),
    )
    for section, names in sections:
        yield from ((section, name) for name in names)
        if (section, "") in found:
            yield section, ""
