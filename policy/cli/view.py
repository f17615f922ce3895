"""A decision as the command line prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from policy.audit.documents import (
    SUMMARY,
    SUMMARY_RIGHT,
    causes,
    document,
    step_summary,
    summary,
    verdict,
)
from policy.audit.sentences import because, contradicted, why_leaves
from policy.cli import output, session
from policy.text.words import value_text

if TYPE_CHECKING:
    from policy.decision.model import Victim
    from policy.store import StoredDecision
    from policy.store.outcomes import OutcomeRow

__all__ = [
    "SUMMARY",
    "SUMMARY_RIGHT",
    "because",
    "causes",
    "document",
    "inputs",
    "not_carried_out",
    "print_short",
    "step_summary",
    "summary",
    "verdict",
    "victim_rows",
]


def victim_rows(stored: StoredDecision) -> list[dict[str, Any]]:
    """Pods that leave, with the reason why each could not be reprieved.

    With the node of each where a whole group leaves from several.
    """
    elsewhere = any(victim.node != stored.row.node for victim in stored.record.victims)
    return [
        {
            "pod": victim.pod,
            **({"node": victim.node} if elsewhere else {}),
            "priority": victim.priority,
            "started": session.instant(victim.start_ms),
            "owner": victim.owner,
            "pdb violated": _violated(stored, victim) or victim.pdb_violating,
            "terminating": victim.already_terminating,
            "why it cannot stay": why_leaves(victim.filter, victim.reasons),
        }
        for victim in stored.record.victims
    ]


def _violated(stored: StoredDecision, victim: Victim) -> str:
    """The budgets that the victim's eviction violates."""
    return ", ".join(
        broken.budget
        for broken in stored.record.candidates.violations
        if (broken.pod, broken.node) == (victim.pod, stored.row.node)
    )


def print_short(stored: StoredDecision) -> None:
    """What `policy preempt` says: the decision, and who leaves."""
    row = stored.row
    output.line(f"{row.preemptor} (priority {row.preemptor_priority}) {verdict(stored)}")
    if row.message and not row.fits:
        output.line(f"  {row.message}")
    if stored.record.victims and row.outcome == "preempt":
        columns = tuple(victim_rows(stored)[0])
        output.print_table(victim_rows(stored), columns=columns, right=("priority",))
    for line in causes(stored):
        output.line(f"  {line}")
    cleared = stored.record.effects.clear_nominations
    if cleared:
        output.line(f"nominations cleared: {', '.join(cleared)}")


def not_carried_out(outcomes: Iterable[OutcomeRow]) -> Iterator[str]:
    """What a later state of the cluster contradicts of a decision; nothing where nothing is."""
    return map(contradicted, outcomes)


def inputs(values: Mapping[str, Any]) -> str:
    """The values that a rule looked at."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())
