"""Every case beside rules of any kind, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from policy.cases import sessions
from policy.cases.finding import Suite
from policy.cases.model import Case, CaseMismatch
from policy.cases.running import run
from policy.rules.ruleset import RuleSet

CaseResult: TypeAlias = tuple[str, Case | sessions.BatchCase, CaseMismatch | None]


def case_results(suite: Suite) -> Iterator[CaseResult]:
    """The rule set, each case, and how it fails; cases of sessions name several rule sets.

    Raises RulesError.
    """
    if suite.batch:
        yield from ((name, case, failed) for case, name, failed in sessions.run_suite(suite))
        return
    rules = RuleSet.load(suite.rules, within=suite.within)
    for case in suite.cases():
        yield str(suite.rules), case, run(case, rules)
