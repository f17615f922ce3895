"""What decides here? The rule sets, and one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.reports_coverage import NO_RULE, ONE_CANDIDATE
from policy.audit.rule_sets import (
    AnyRules,
    RulesKind,
    RuleText,
    difference_rows,
    line_of,
    load_shipped,
    shipped_as,
    shipped_kinds,
    text_of,
)
from policy.batch.rules import BatchRules
from policy.batch.semantics import VOCABULARIES, Semantics
from policy.rules.diff_table import DiffRow, checks, meaning
from policy.rules.explain import SECTIONS, EffectiveRule, effective_rules
from policy.rules.files import shipped
from policy.rules.ruleset import RuleSet
from policy.server import rule_sets
from policy.server.http import Failure, about, in_thread
from policy.server.pages.surface import Pages, mendable
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store.read.rule_counts import RANKING, RuleCounts
from policy.store.read.rule_counts import SECTIONS as COUNTED


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    found = await in_thread(rule_sets.rule_sets, pages.service)
    shipped_kinds = [
        {"kind": kind, "rules": [one for one in found if one["shipped"] and one["kind"] == kind]}
        for kind in RulesKind
    ]
    return await pages.page(
        request,
        principal,
        "rules.html",
        kinds=shipped_kinds,
        activated=[one for one in found if not one["shipped"]],
    )


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    wanted, other = request.path_params["name"], request.query_params.get("diff", "")[:253]
    values = await in_thread(_one, pages.service, wanted, other)
    status = 200 if values["failure"] is None else values["failure"].status
    values["other"] = other
    return await pages.page(request, principal, "rule_set.html", status=status, **values)


def _one(service: PolicyService, wanted: str, other: str) -> dict[str, Any]:
    """What the page shows. Raises Failure, NotFound.

    other: rules that it is compared with, "" for none; why that cannot be done is `failure`.
    """
    rules = rule_sets.any_rules(service, wanted)
    name = wanted if wanted in shipped() else shipped_as(rules)
    if name is not None:
        # The same rules, with reasons, cases and lines of the file.
        rules = load_shipped(name)
    text = text_of(rules, name)
    counts = service.store.read.rule_counts(
        rules.digest, now_ms=service.clock(), days=rule_sets.USE_DAYS
    )
    single = isinstance(text.rules, RuleSet)
    changes, failure = None, None
    if other:
        try:
            with about("diff"):
                changes = _changes(service, other, rules)
        except Failure as exc:
            failure = mendable(exc)
    return {
        "rules": rules,
        "name": name or rules.name,
        "shipped": name is not None,
        "stored": wanted != name,
        "batch": _batch(rules) if isinstance(rules, BatchRules) else None,
        "sections": list(_sections(text.rules, text, counts)) if single else [],
        "counts": counts,
        "active_in": [
            row.name
            for row in service.store.read.environments()
            if row.active is not None and row.active.rule_set_digest == rules.digest
        ],
        "changes": changes,
        "failure": failure,
        "judged": rule_sets.judged(name, rules),
        "text": text,
        "names": [
            name
            for name, kind in shipped_kinds().items()
            if (kind is RulesKind.BATCH) == isinstance(rules, BatchRules)
        ],
    }


# --- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """One rule as a row."""

    rule: EffectiveRule
    reason: str  #: why it is there, or what a filter, scorer or setting does
    link: str  #: to its line; "" where that is not known
    counts: Sequence[int]  #: decisions that it decided, per span; empty where that is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section as a table."""

    name: str
    question: str
    lines: Sequence[RuleLine]
    verdicts: bool  #: has it a column for them?
    counted: bool
    beside: str  #: what decided where no rule did
    beside_counts: Sequence[int]  #: how often, per span; empty where never


def _sections(rules: AnyRules, text: RuleText, counts: RuleCounts) -> Iterator[Section]:
    assert isinstance(rules, RuleSet)
    for name, found in groupby(effective_rules(rules), key=lambda rule: rule.section):
        counted = name in COUNTED
        lines = [
            RuleLine(
                rule=rule,
                reason=rule.why or checks(name, rule.id) or _setting(rule),
                link=_link(rule.origin, text),
                counts=counts.of(name, rule.id) if counted else (),
            )
            for rule in found
        ]
        beside = counts.of(name, "")
        yield Section(
            name=name,
            question=SECTIONS[name],
            lines=lines,
            verdicts=any(line.rule.verdict for line in lines),
            counted=counted,
            beside=ONE_CANDIDATE if name == RANKING else NO_RULE,
            beside_counts=beside if counted and any(beside) else (),
        )


def _setting(rule: EffectiveRule) -> str:
    return meaning(rule.id, rule.condition) if rule.section == "settings" else ""


def _link(origin: str, text: RuleText) -> str:
    found = line_of(origin, text)
    if found is None:
        return ""
    name, line = found
    return f"/rules/{quote(name)}#L{line}" if name else f"#L{line}"


def _batch(rules: BatchRules) -> dict[str, Any]:
    """What the rules of a session say beside their text."""
    off = VOCABULARIES[Semantics(rules.semantics)].off
    return {
        "semantics": rules.semantics,
        "actions": rules.actions,
        "uses": [
            {
                "tier": tier,
                "plugin": use.name,
                "off": sorted(use.disabled - off),
                "arguments": dict(use.arguments),
            }
            for tier, uses in enumerate(rules.tiers, start=1)
            for use in uses
        ],
        "unmodelled": rules.unmodelled,
    }


# --- differences -------------------------------------------------------------------------------


def _changes(service: PolicyService, other: str, new: AnyRules) -> dict[str, Any]:
    """By section, what the other rules say and what these do."""
    old = rule_sets.any_rules(service, other)
    rows = difference_rows(old, new, rule_sets.changes(old, new))
    sections: list[tuple[str, list[DiffRow]]] = [
        (section, list(found)) for section, found in groupby(rows, key=lambda row: row.section)
    ]
    return {"old": old, "count": len(rows), "sections": sections}
