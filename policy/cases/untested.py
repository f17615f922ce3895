"""Which rules of a file no case beside it touches: a part of lint that has to decide the cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policy.batch.rules import BatchRules
from policy.cases.finding import Suite, beside
from policy.cases.running import snapshot_of
from policy.decision.model import NO_VALUE, Decision
from policy.groups.decide import decide_group
from policy.preemption.decide import decide
from policy.rules import lint
from policy.rules.files import file_of, is_configuration, shipped
from policy.rules.ruleset import RuleSet

_ADVICE = "add a case in which it decides: what no case shows may change unnoticed"


_SHOWN_BY_STEPS: Final = ("allocate", "backfill", "preempt", "reclaim")
"""Actions of sessions that leave steps where they do anything."""


def untested_session(
    source: str, rules: BatchRules, *, within: Path | None = None
) -> Iterator[lint.LintWarning]:
    """Warnings about the actions of batch rules that no case beside them shows; RulesError."""
    from policy.batch.lint import BatchFinding
    from policy.batch.run import run_session
    from policy.cases.sessions import read_cases

    suite = _suite(source, within)
    if suite is None:
        # A scheduler's own configuration has no cases beside it.
        if source not in shipped() and not is_configuration(source, within=within):
            yield lint.LintWarning(
                finding=BatchFinding.UNTESTED,
                place=source,
                rule="",
                message="there are no cases beside these rules",
                help="`docs/batch.md` shows how to write them",
            )
        return
    shown: set[str] = set()
    for case in read_cases(suite.text(), suite.shown):
        result = run_session(case.snapshot(rules.naming.scheduler), rules)
        shown |= {step.action for step in result.steps}
    for action in dict.fromkeys(rules.actions):
        if action in _SHOWN_BY_STEPS and action not in shown:
            yield lint.LintWarning(
                finding=BatchFinding.UNTESTED,
                place=source,
                rule=action,
                message=f"`{action}` does nothing in any of the cases",
                help="add a case in which it does: what no case shows may change unnoticed",
            )


def _suite(source: str, within: Path | None) -> Suite | None:
    """The cases beside rules, and not beside a configuration of a scheduler."""
    found = beside(source, within=within)
    return found if found is not None and found.batch else None


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
            touched |= touched_by(decide(snapshot, rules, case.preemptor, seed=case.seed))
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


def touched_by(decision: Decision) -> set[str]:
    """Rules and criteria that decided something in the decision."""
    trace = decision.trace
    rules = {fired.rule for fired in trace.rules if fired.verdict != NO_VALUE}
    return rules | {step.criterion for step in trace.ranking if step.after < step.before}
