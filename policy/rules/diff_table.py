"""Differences of two rule sets side by side, as the tables of a specification have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.filters.registry import FILTERS
from policy.rules.diff import ChangeKind, RuleChange
from policy.rules.explain import effective_rules
from policy.rules.ruleset import RuleSet
from policy.scoring.registry import SCORERS

ABSENT: Final = "-"
"""A rule that one of the two does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """One difference: what the old and the new rule set say, and what it means."""

    section: str
    rule: str
    old: str
    new: str
    meaning: str


def diff_rows(old: RuleSet, new: RuleSet, changes: Sequence[RuleChange]) -> list[DiffRow]:
    """A row per change, in the order of the changes."""
    texts = [
        {(rule.section, rule.id): rule for rule in effective_rules(rules)} for rules in (old, new)
    ]
    rows = []
    for change in changes:
        if change.rule is None:
            rows.append(_setting(change))
            continue
        if change.section in _REGISTRIES and change.kind is ChangeKind.CHANGED:
            rows += _parameters(change)
            continue
        key = (change.section, change.rule)
        before, after = (found.get(key) for found in texts)
        why = next((rule.why for rule in (after, before) if rule is not None and rule.why), "")
        if change.section in _REGISTRIES:
            why = checks(change.section, change.rule)
        rows.append(
            DiffRow(
                section=change.section,
                rule=change.rule,
                old=_shown(before.position, before.text, change) if before else ABSENT,
                new=_shown(after.position, after.text, change) if after else ABSENT,
                meaning=why if after else _gone(why),
            )
        )
    return rows


def _shown(position: int, text: str, change: RuleChange) -> str:
    if change.section in _REGISTRIES:
        return f"{position}." if change.kind is ChangeKind.MOVED else "yes"
    return f"{position}. {text}"


def checks(section: str, name: str) -> str:
    """What a filter or scorer does, in its first sentence; "" for other sections."""
    info = _REGISTRIES.get(section, {}).get(name)
    text = " ".join(info.doc.split()) if info is not None else ""
    return text.partition(". ")[0].rstrip(".")


def meaning(setting: str, text: str) -> str:
    """What the value of a setting means, as `effective_rules` shows it; "" where it says itself."""
    phrase = PHRASES.get(setting)
    if phrase is None:
        return ""
    try:
        return phrase(json.loads(text))
    except ValueError:  # a word, which is shown without quotes
        return phrase(text)


def _gone(why: str) -> str:
    return f"no longer: {why}" if why else ""


_REGISTRIES: Final[Mapping[str, Mapping[str, Any]]] = {"filters": FILTERS, "scoring": SCORERS}


def _parameters(change: RuleChange) -> list[DiffRow]:
    """A row per parameter of a filter or scorer that differs."""
    assert change.rule is not None
    before, after = json.loads(change.before or "{}"), json.loads(change.after or "{}")
    info = _REGISTRIES[change.section].get(change.rule)
    rows = []
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        parameter = info.parameters.get(name) if info is not None else None
        rows.append(
            DiffRow(
                section=change.section,
                rule=f"{change.rule}: {name}",
                old=_value(before.get(name)),
                new=_value(after.get(name)),
                meaning=parameter.doc if parameter is not None else _OTHER.get(name, ""),
            )
        )
    return rows


_OTHER: Final = {"weight": "how much the scorer counts in the sum"}


def _value(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(x if isinstance(x, str) else json.dumps(x) for x in value) or "none"
    return str(value)


def _setting(change: RuleChange) -> DiffRow:
    before = None if change.before is None else json.loads(change.before)
    after = None if change.after is None else json.loads(change.after)
    section, _, name = change.section.rpartition(".")
    phrase = PHRASES.get(change.section)
    return DiffRow(
        section=section,
        rule=name,
        old=_value(before),
        new=_value(after),
        meaning=phrase(after) if phrase is not None else "",
    )


def _chosen(**words: str) -> Callable[[Any], str]:
    """The sentence for each value, underscores for dashes."""
    table = {name.replace("_", "-"): text for name, text in words.items()}
    return lambda value: table.get(str(value).lower(), "")


PHRASES: Final[Mapping[str, Callable[[Any], str]]] = {
    "victims.maxVictims": lambda n: (
        "any number of victims on a node" if n is None else f"at most {n} victims on a node"
    ),
    "messages": lambda version: f"filters give the texts of kube-scheduler {version}",
    "victims.nodesWithoutVictims": _chosen(
        skipped="a node without potential victims is no candidate",
        tried="a node without potential victims is dry-run like the others",
    ),
    "victims.budgets.count": _chosen(
        decrement="each potential victim uses up a disruption of its budgets",
        static="budgets do not run out: only one that allows no disruption is violated",
    ),
    "victims.budgets.disruptedPods": _chosen(
        skip="a pod in a budget's disruptedPods uses up nothing of it",
        count="a pod in a budget's disruptedPods counts like any other",
    ),
    "victims.reprieve": lambda groups: f"put back in this order: {_value(groups)}",
    "victims.order": _chosen(
        by_importance="victims are sorted again, so the first one has the highest priority",
        as_reprieved="victims stay in the order in which they failed to be reprieved",
    ),
    "candidates.nodes": _chosen(
        unschedulable="only nodes whose status is exactly Unschedulable are examined",
        not_unresolvable="every node that is not unresolvable is examined",
    ),
    "candidates.minPercentage": lambda n: f"{n} % of the potential nodes are enough",
    "candidates.minAbsolute": lambda n: f"at least {n} candidates are looked for",
    "candidates.start": _chosen(
        random="the examination starts at a node drawn from the seed",
        first="the examination starts at the first node by name",
    ),
    "effects.clearLowerNominations": _chosen(
        true="pods of lower priority lose their nomination to the node",
        false="pods of lower priority keep their nomination to the node",
    ),
    "effects.clearWithoutEviction": _chosen(
        true="nominations to the node are cleared also where every victim is leaving already",
        false="nominations to the node stay where every victim is leaving already",
    ),
    "effects.disruptionCondition": _chosen(
        true="victims get the condition DisruptionTarget",
        false="victims get no condition",
    ),
    "effects.repeatCondition": _chosen(
        true="a victim that a scheduler has marked already is marked once more",
        false="a victim that a scheduler has marked already is not marked again",
    ),
    "effects.deleteTerminatingVictims": _chosen(
        true="a victim that is leaving already is deleted once more",
        false="a victim that is leaving already gets no second delete",
    ),
    "effects.onNoCandidate": _chosen(
        clear="a pod that finds no candidate loses its nomination",
        leave="a pod that finds no candidate keeps its nomination",
        clear_if_no_potential_node="a pod loses its nomination only where no node was potential",
    ),
    "effects.preemptionMessage": _chosen(
        true="the event says why the pod cannot preempt",
        false="the event does not say why the pod cannot preempt",
    ),
    "effects.claimsMessage": _chosen(
        true="the event names resource claims before what preemption says",
        false="the event does not name resource claims",
    ),
    "queue.kind": lambda kind: f"the queue is of kind {kind}",
    "queue.order": _chosen(
        arrival="of equal pods, the one that was created first is tried first",
        key="of equal pods, the first by namespace and name is tried first",
    ),
    "queue.initialBackoffSeconds": lambda n: f"a failed pod waits for {n} s at first",
    "queue.maxBackoffSeconds": lambda n: f"a failed pod waits for {n} s at most",
    "queue.unschedulableSeconds": lambda n: f"an unschedulable pod is tried again after {n} s",
    "audit.candidates": lambda n: f"stored of each decision: candidates {n}",
}
"""What the new value of a setting means, in one sentence."""
