"""The rules of a decision's rule set, each with what it did in this decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policy.audit.rule_sets import load_shipped, shipped_as
from policy.decision.messages import BY_EXTENDER
from policy.decision.model import NO_VALUE
from policy.rules import RuleSet
from policy.rules.explain import effective_rules
from policy.rules.problems import RulesError
from policy.store import NotFound
from policy.text.words import number

if TYPE_CHECKING:
    from policy.decision.model import RuleFired
    from policy.decision.record import DecisionRecord
    from policy.store import Store, StoredDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedRule:
    """A rule as it takes effect, and what it did."""

    section: str
    rule: str  #: id; "" where no rule of the section decided
    text: str  #: as `policy rules explain` shows it; "" where that is not known
    why: str  #: what the rule file says that it is for
    did: str  #: "" for a rule that changed nothing in this decision
    inputs: Mapping[str, str | int | bool]  #: what it looked at


def rules_of(store: Store, stored: StoredDecision) -> RuleSet | None:
    """The rule set that decided; None where it is gone, or this version cannot read it.

    A shipped one has the reasons of its file, which the database does not keep.
    """
    try:
        rules = RuleSet.from_canonical(store.read.rule_set(stored.row.rule_set_digest))
    except (NotFound, RulesError):
        return None
    name = shipped_as(rules)
    shipped = rules if name is None else load_shipped(name)
    return shipped if isinstance(shipped, RuleSet) else rules


def marked_rules(rules: RuleSet | None, record: DecisionRecord) -> tuple[MarkedRule, ...]:
    """Every rule but the settings, in the order of a rule file.

    rules: None where they are gone: then those alone that the record names.
    """
    # A record names a key of the importance by its expression.
    keys = {} if rules is None else {str(k.expression): k.id for k in rules.victims.importance}
    did = _did(record, keys)
    inputs = {(fired.section, fired.rule): fired.inputs for fired in record.trace.rules}
    texts = (
        {}
        if rules is None
        else {
            (rule.section, rule.id): (rule.text, rule.why)
            for rule in effective_rules(rules)
            if rule.section != "settings"
        }
    )
    # What only the record names (no rule of a section, for one) stands behind its section.
    sections = list(dict.fromkeys(section for section, _ in (*texts, *did)))
    every = sorted(dict.fromkeys((*texts, *did)), key=lambda one: sections.index(one[0]))
    return tuple(
        MarkedRule(
            section=section,
            rule=rule,
            text=texts.get((section, rule), ("", ""))[0],
            why=texts.get((section, rule), ("", ""))[1],
            did="; ".join(did.get((section, rule), ())),
            inputs=inputs.get((section, rule), {}),
        )
        for section, rule in every
    )


def _did(record: DecisionRecord, keys: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """What rules did, by section and id. keys: ids of those of the importance, by expression."""
    found: dict[tuple[str, str], list[str]] = {}
    for section, rule, text in (
        *_verdicts(record),
        *_filtered(record),
        *_ordered(record, keys),
        *_ranked(record),
        *_scored(record),
    ):
        found.setdefault((section, rule), []).append(text)
    return found


def _verdicts(record: DecisionRecord) -> Iterator[tuple[str, str, str]]:
    for fired in record.trace.rules:
        yield fired.section, fired.rule, _verdict(fired)


def _verdict(fired: RuleFired) -> str:
    reason = f": {fired.reason}" if fired.reason else ""
    pods = fired.inputs.get("pods")
    if fired.verdict == NO_VALUE:
        return f"had no value{reason}"
    if isinstance(pods, int):
        return f"{fired.verdict}, {number(pods, 'pod')}{reason}"
    return f"{fired.verdict}{reason}"


def _filtered(record: DecisionRecord) -> Iterator[tuple[str, str, str]]:
    trace = record.trace
    for statuses, what in (
        (trace.filter_statuses, "fails"),
        (trace.dry_run_statuses, "still fails with the potential victims gone"),
    ):
        nodes: Counter[str] = Counter()
        for status in statuses:
            if status.filter:
                nodes[status.filter] += status.nodes
        for name, count in nodes.items():
            yield "filters", name, f"{what}: {number(count, 'node')}"
    victims = Counter(victim.filter for victim in record.victims if victim.filter)
    del victims[BY_EXTENDER]
    for name, count in victims.items():
        yield "filters", name, f"would fail again with a victim back: {number(count, 'victim')}"


def _ordered(record: DecisionRecord, keys: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    ahead = Counter(check.ahead_by for check in record.trace.checks if check.reprieved)
    for key, count in ahead.items():
        if key and key != "victims.reprieve":
            yield (
                "victims.importance",
                keys.get(key, key),
                f"put {number(count, 'pod')} ahead of a victim",
            )


def _ranked(record: DecisionRecord) -> Iterator[tuple[str, str, str]]:
    for step in record.trace.ranking:
        if step.after < step.before:
            decided = ", decided" if step.criterion == record.trace.decided_by else ""
            text = f"left {step.after} of {number(step.before, 'candidate')}{decided}"
            yield "ranking", step.criterion, text


def _scored(record: DecisionRecord) -> Iterator[tuple[str, str, str]]:
    for scorer, _, value in record.trace.scores:
        yield "scoring", scorer, f"gave {record.node} {number(value, 'point')}"


def document(rules: tuple[MarkedRule, ...]) -> list[dict[str, Any]]:
    """As programs read it."""
    return [
        {
            "section": one.section,
            "rule": one.rule,
            "text": one.text,
            "why": one.why,
            "did": one.did,
            "inputs": dict(one.inputs),
        }
        for one in rules
    ]
