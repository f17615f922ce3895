"""Which rules of a file no case beside it touches: a part of lint that has to decide the cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policy.cases.finding import beside
from policy.cases.running import snapshot_of
from policy.decision.model import NO_VALUE, Decision
from policy.groups.decide import decide_group
from policy.preemption.decide import decide
from policy.rules import lint
from policy.rules.files import file_of, shipped
from policy.rules.ruleset import RuleSet

_ADVICE = "add a case in which it decides: what no case shows may change unnoticed"


def untested(
    source: str, rules: RuleSet, *, within: Path | None = None
) -> Iterator[lint.LintWarning]:
    """Warnings about the rules of a shipped name or a file, loaded already; raises RulesError.

    Rules that the file extends or includes have cases of their own. The keys of the importance
    order are left out: a decision does not tell which of them mattered.
    """
    suite = beside(source, within=within)
    if suite is None:
        if source not in shipped():
            yield lint.LintWarning(
                finding=lint.WarningKind.UNTESTED,
                place=source,
                rule="",
                message="there are no cases beside these rules",
                help="`docs/rules.md` shows how to write them",
            )
        return
    touched: set[str] = set()
    for case in suite.cases():
        snapshot = snapshot_of(case, rules)
        if not case.group:
            touched |= _touched(decide(snapshot, rules, case.preemptor, seed=case.seed))
        elif rules.groups is not None:
            cycle = decide_group(snapshot, rules, case.group, seed=case.seed)
            touched |= {fired.rule for fired in cycle.rules if fired.verdict != NO_VALUE}
    file = file_of(source)
    victims = rules.victims
    names = [rule.id for rule in (*rules.eligibility, *victims.eligible, *victims.forbid)]
    if rules.groups is not None:
        groups = rules.groups
        names += [rule.id for rule in (*groups.eligibility, *groups.victims.eligible)]
    for name in (*names, *(criterion.id for criterion in rules.ranking)):
        place = rules.origins.get(name, "")
        if name not in touched and place.rpartition(":")[0] == file:
            yield lint.LintWarning(
                finding=lint.WarningKind.UNTESTED,
                place=place,
                rule=name,
                message=f"no case touches `{name}`",
                help=_ADVICE,
            )


def _touched(decision: Decision) -> set[str]:
    """Rules and criteria that decided something."""
    trace = decision.trace
    rules = {fired.rule for fired in trace.rules if fired.verdict != NO_VALUE}
    return rules | {step.criterion for step in trace.ranking if step.after < step.before}
