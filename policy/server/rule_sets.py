"""Rule sets as the API and the pages show them: shipped ones, and those in the record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import Any, Final

from policy.audit.rule_sets import (
    AnyRules,
    NothingInCommonError,
    RulesKind,
    canonical_of,
    every_shipped,
    from_canonical,
    load_shipped,
    require_digest,
    shipped_kinds,
)
from policy.audit.rule_sets import differences as rule_changes
from policy.cases import beside
from policy.cases.linting import findings
from policy.cases.results import case_results
from policy.rules import RulesError, RuleSet
from policy.rules.diff import RuleChange
from policy.rules.explain import effective_rules
from policy.rules.files import BATCH_RULES, PREEMPTION_RULES, close_names, shipped
from policy.rules.lint import LintWarning
from policy.server.http import Failure
from policy.server.service import PolicyService
from policy.store import (
    NotFound,
)
from policy.store.read.queries import is_digest
from policy.store.record.rule_sets import is_batch


def any_rules(service: PolicyService, wanted: str) -> AnyRules:
    """A rule set by the name of a shipped one, or by digest. Never a file of the service's host.

    Raises Failure, StoreError.
    """
    if not wanted.strip():
        raise Failure(400, "invalid", "no rule set is named", help=_NAMING)
    try:
        if wanted in shipped():
            return load_shipped(wanted)
        return from_canonical(_by_digest(service, wanted))
    except RulesError as exc:
        raise _unusable(wanted, exc) from exc


def rule_set(service: PolicyService, wanted: str) -> RuleSet:
    """One that can judge decisions, of those of `any_rules`. Raises Failure, StoreError."""
    found = any_rules(service, wanted)
    if isinstance(found, RuleSet):
        return found
    try:
        return RuleSet.from_canonical(found.canonical)
    except RulesError as exc:  # which says what they are for
        raise _unusable(wanted, exc) from exc


_NAMING: Final = "give the name of a shipped rule set, or the digest of one"


def _by_digest(service: PolicyService, wanted: str) -> str:
    """The canonical text of a rule set by (the beginning of) its digest.

    Raises InvalidValue, NotFound.
    """
    require_digest(wanted)
    if not (wanted.startswith("sha256:") or is_digest(wanted)):
        close = close_names(wanted, shipped_kinds())
        raise NotFound(
            f"there is no shipped rule set `{wanted[:80]}`",
            help=f"did you mean `{close[0]}`?" if close else _NAMING,
        )
    return canonical_of(wanted, service.store.read.rule_set)


def _unusable(wanted: str, exc: RulesError) -> Failure:
    first = exc.problems[0]
    more = f" (and {len(exc.problems) - 1} more)" if len(exc.problems) > 1 else ""
    return Failure(400, "invalid", f"`{wanted[:80]}`: {first.message}{more}", help=first.help)


def rule_sets(service: PolicyService) -> list[dict[str, Any]]:
    """Shipped rule sets of every kind, and beside them those that environments made active."""
    found: list[dict[str, Any]] = [
        {
            "name": one.name,
            "kind": one.kind.value,
            "description": one.description,
            "digest": one.digest,
            "shipped": True,
            "active_in": [],
        }
        for one in every_shipped()
    ]
    by_digest = {one["digest"]: one for one in found}
    for row in service.store.read.environments():
        for activation in service.store.read.activations(row.name):
            digest = activation.rule_set_digest
            if digest not in by_digest:
                batch = is_batch(service.store.read.rule_set(digest))
                by_digest[digest] = {
                    "name": activation.rule_set,
                    "kind": (RulesKind.BATCH if batch else RulesKind.RULE_SET).value,
                    "description": "",
                    "digest": digest,
                    "shipped": False,
                    "active_in": [],
                }
        if row.active is not None:
            by_digest[row.active.rule_set_digest]["active_in"].append(row.name)
    return list(by_digest.values())


def described(rules: AnyRules) -> dict[str, Any]:
    rows = effective_rules(rules) if isinstance(rules, RuleSet) else ()
    return {
        "name": rules.name,
        "digest": rules.digest,
        "kind": PREEMPTION_RULES if isinstance(rules, RuleSet) else BATCH_RULES,
        "canonical": rules.canonical,
        "rules": [asdict(rule) for rule in rows],
    }


def uses(service: PolicyService, rules: AnyRules) -> dict[str, Any]:
    """How often each rule decided, in the last days and over all of them (`days` null)."""
    counts = service.store.read.rule_counts(rules.digest, now_ms=service.clock(), days=USE_DAYS)
    return {
        "digest": rules.digest,
        "days": [*counts.days, None],
        "decisions": counts.decisions,
        "rules": [
            {"section": section, "rule": rule, "decisions": found}
            for (section, rule), found in sorted(counts.rules.items())
        ],
    }


USE_DAYS: Final = (7, 90)
"""Spans for which it is said how often rules decided, today included."""


def judged(shipped_name: str | None, rules: AnyRules) -> dict[str, Any]:
    """What lint says of rules, and how the cases beside a shipped file end; None without."""
    if shipped_name is not None:
        return _judged_shipped(shipped_name)
    return {"lint": _lines(findings(rules, rules.digest, stored=True)), "cases": None}


@cache
def _judged_shipped(name: str) -> dict[str, Any]:
    """Run once in a process: shipped rules and their cases do not change meanwhile."""
    found = findings(load_shipped(name), name, stored=False)
    return {"lint": _lines(found), "cases": _cases(name)}


def _lines(warnings: Iterable[LintWarning]) -> list[dict[str, Any]]:
    return [
        {
            "rule": warning.rule,
            "finding": warning.finding.value,
            "message": warning.message,
            "help": warning.help,
        }
        for warning in warnings
    ]


def _cases(name: str) -> list[dict[str, Any]] | None:
    suite = beside(name)
    if suite is None:
        return None
    return [
        {
            "rules": rules,
            "note": case.note,
            "place": case.place,
            "passed": failed is None,
            "why": failed.differences if failed is not None else (),
        }
        for rules, case, failed in case_results(suite)
    ]


def differences(old: AnyRules, new: AnyRules) -> list[dict[str, Any]]:
    """Raises Failure where they are of different kinds."""
    return [asdict(change) for change in changes(old, new)]


def changes(old: AnyRules, new: AnyRules) -> tuple[RuleChange, ...]:
    """Raises Failure where they are of different kinds."""
    try:
        return rule_changes(old, new)
    except NothingInCommonError as exc:
        raise Failure(400, "invalid", str(exc)) from exc
