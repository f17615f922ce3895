"""Rules and order keys of a validated rule file, and its `groups` section."""

from __future__ import annotations

from typing import Any

from policy.rules.checks import GROUP_ELIGIBILITY, UNIT_IMPORTANCE, UNITS, Checker
from policy.rules.expressions import default_on_error
from policy.rules.group_rules import GroupGates, GroupRules, UnitRules, UnitVictimRules
from policy.rules.group_schema import GroupsModel
from policy.rules.overlays import rule_id
from policy.rules.parts import ImportanceKey, ReprieveGroup, Rule, Verdict
from policy.rules.schema_parts import EligibilityModel, ImportanceModel
from policy.rules.shape import Path, find


def sentence(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def rules_of(
    checker: Checker, models: list[EligibilityModel] | list[Any], path: Path
) -> tuple[Rule, ...]:
    """The rules of the list at `path`."""
    return tuple(
        Rule(
            id=rule.id,
            when=checker.expressions.get((*path, index, "when")),
            verdict=Verdict(rule.verdict),
            on_error=rule.onError or default_on_error(rule.verdict),
            reason=rule.reason,
            why=sentence(rule.why),
            says_on_error=rule.onError is not None,
        )
        for index, rule in enumerate(models)
    )


def importance_key(checker: Checker, path: Path, index: int, key: ImportanceModel) -> ImportanceKey:
    """The key number `index` of the list at `path`."""
    descending = key.descending is not None
    direction = "descending" if descending else "ascending"
    item = find(checker.root, (*path, index))
    implied = rule_id(item, "id") if item is not None else None
    return ImportanceKey(
        id=implied or f"importance-{index + 1}",
        expression=checker.expressions[*path, index, direction],
        descending=descending,
        why=sentence(key.why),
    )


def build_groups(checker: Checker, groups: GroupsModel) -> GroupRules:
    """The `groups` section."""
    victims, units = groups.victims, groups.units
    return GroupRules(
        gates=GroupGates(
            gang_scheduling=groups.gates.gangScheduling,
            workload_aware_preemption=groups.gates.workloadAwarePreemption,
        ),
        eligibility=rules_of(checker, groups.eligibility, GROUP_ELIGIBILITY),
        units=UnitRules(
            whole_groups=units.wholeGroups,
            member_priority=units.memberPriority,
            start=units.start,
            ordinary=units.ordinary,
        ),
        victims=UnitVictimRules(
            eligible=rules_of(checker, victims.eligible, UNITS),
            importance=tuple(
                importance_key(checker, UNIT_IMPORTANCE, index, key)
                for index, key in enumerate(victims.importance)
            ),
            budgets=victims.budgets.count,
            skip_disrupted=victims.budgets.disruptedPods == "skip",
            reprieve=tuple(ReprieveGroup(group) for group in victims.reprieve),
            reprieve_test=victims.reprieveTest,
            search=victims.search,
            search_passes=victims.searchPasses,
        ),
        success=groups.success,
        nominations=groups.nominations,
        member_deletions=groups.memberDeletions,
        assumed_terms=groups.assumedTerms,
        victims_in_message=groups.victimsInMessage,
    )
