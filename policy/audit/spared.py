"""Who of a decision's node was spared, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policy.audit import sentences

if TYPE_CHECKING:
    from policy.decision.record import DecisionRecord
    from policy.store import Store, StoredDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprieved:
    """A potential victim that may stay: the pod still fits with it back in place."""

    pod: str  #: namespace/name
    priority: int
    start_ms: int  #: milliseconds since 1970 UTC; `times.MISSING` when it has not started
    why: str
    ahead_of: str  #: the next pod behind it that had to leave; "" for none
    budgets: tuple[str, ...]  #: that select it, with what they allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """Pods of the node that may not leave, all for the same reason."""

    pods: tuple[str, ...]  #: namespace/name, by name
    rule: str  #: id of the rule that keeps them; "" where none does
    why: str


class NotKnown(Exception):  # what happened, in the words of its message
    """Who was protected cannot be found out any more."""


def reprieved(record: DecisionRecord) -> tuple[Reprieved, ...]:
    """As it is recorded, in the order in which they were put back."""
    return tuple(
        Reprieved(
            pod=check.pod,
            priority=check.priority,
            start_ms=check.start_ms,
            why=sentences.reprieved(check),
            ahead_of=check.ahead_of,
            budgets=tuple(map(sentences.counted, check.budgets)),
        )
        for check in record.trace.checks
        if check.reprieved
    )


def protected(store: Store, stored: StoredDecision) -> tuple[Protected, ...]:
    """Who was no potential victim on the decision's node.

    The rules are evaluated again, on the state of then, which is loaded for it. Raises NotKnown.
    """
    # Whoever reads what is recorded need not load what decides.
    from policy.audit.inputs import Incomplete
    from policy.audit.replay import Replayer
    from policy.preemption.obstacles import kept_on

    node, replayer = stored.row.node, Replayer(store)
    if node is None:
        raise NotKnown("the decision names no node")
    (row,) = replayer.rows([stored.row.id])
    try:
        snapshot, rules = replayer.situation(row)
    except Incomplete as exc:
        raise NotKnown(str(exc)) from exc
    victims = rules.victims
    reasons = {rule.id: rule.reason for rule in (*victims.eligible, *victims.forbid)}
    return tuple(
        Protected(
            pods=kept.pods,
            rule=kept.rule,
            why=sentences.kept(
                kept.kind,
                kept.rule,
                len(kept.pods),
                priority=row.preemptor_priority,
                reason=reasons.get(kept.rule, ""),
            ),
        )
        for kept in kept_on(snapshot, rules, row.preemptor, node)
    )


def document(
    spared: Sequence[Reprieved], kept: Sequence[Protected]
) -> dict[str, list[dict[str, Any]]]:
    """As programs read it."""
    return {
        "reprieved": [
            {
                "pod": one.pod,
                "priority": one.priority,
                "why": one.why,
                "ahead_of": one.ahead_of,
                "budgets": list(one.budgets),
            }
            for one in spared
        ],
        "protected": [{"pods": list(one.pods), "rule": one.rule, "why": one.why} for one in kept],
    }
