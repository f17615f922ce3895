"""Everything that lint finds in rules of any kind, with what no case beside them shows."""

from __future__ import annotations

from pathlib import Path

from policy.batch import lint as batch_lint
from policy.batch.rules import BatchRules
from policy.cases.untested import untested, untested_session
from policy.rules.lint import LintWarning, WarningKind, lint
from policy.rules.ruleset import RuleSet


def findings(
    rules: RuleSet | BatchRules, source: str, *, stored: bool, within: Path | None = None
) -> list[LintWarning]:
    """All warnings. Raises RulesError for cases that cannot be read.

    source: what names the rules. stored: it is a digest, and what is stored is what decides:
    without reasons, and without cases beside it.
    """
    if isinstance(rules, BatchRules):
        found = list(batch_lint.lint(rules, source))
        return found if stored else [*found, *untested_session(source, rules, within=within)]
    if stored:
        return [one for one in lint(rules) if one.finding is not WarningKind.NO_WHY]
    return [*lint(rules), *untested(source, rules, within=within)]
