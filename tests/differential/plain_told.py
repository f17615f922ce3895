"""What a decision says, in the form that the engine and its plain twin have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from policy.decision.model import Decision
from tests.differential.plain_filters import (
    Verdict,
)


class Check(NamedTuple):
    """One potential victim of the best candidate's node, being put back."""

    pod: str
    pdb_violating: bool
    reprieved: bool
    filter: str
    reasons: tuple[str, ...]


class Ranked(NamedTuple):
    """One candidate with the criterion that eliminated it."""

    node: str
    victims: tuple[str, ...]
    pdb_violations: int
    values: Mapping[str, int | None]
    eliminated_by: str


class Step(NamedTuple):
    """One criterion of the ranking."""

    criterion: str
    before: int
    after: int
    best: int | None


@dataclass(frozen=True, kw_only=True)
class Told:
    """All that a decision says, but for digests and for the node that a fitting pod is put on."""

    outcome: str
    node: str | None  #: of a preemption
    fits: bool = False
    eligible: bool = False
    eligibility_rule: str = ""
    rejected: tuple[str, ...] = ()
    filter_statuses: Mapping[str, Verdict] = field(default_factory=dict)
    potential_nodes: tuple[str, ...] = ()
    sampling: tuple[int, int, int, int] | None = None  #: potential, offset, wanted, examined
    victim_rules: Mapping[str, int] = field(default_factory=dict)  #: pods that each decided on
    dry_run_statuses: Mapping[str, Verdict] = field(default_factory=dict)
    candidates: tuple[Ranked, ...] = ()
    ranking: tuple[Step, ...] = ()
    decided_by: str = ""
    victims: tuple[tuple[str, bool], ...] = ()  #: key, already terminating
    checks: tuple[Check, ...] = ()
    message: str = ""
    evict: tuple[str, ...] = ()
    mark_disrupted: tuple[str, ...] = ()
    clear_nominations: tuple[str, ...] = ()
    nomination: str = "leave"


def told(decision: Decision) -> Told:
    """What the engine's decision says."""
    trace, effects = decision.trace, decision.effects
    eligibility = [r.rule for r in trace.rules if r.section == "eligibility"]
    sampling = trace.sampling
    return Told(
        outcome=decision.outcome.value,
        node=decision.node if decision.outcome == "preempt" else None,
        fits=trace.fits,
        eligible=trace.eligible,
        eligibility_rule=eligibility[0] if eligibility else "",
        rejected=trace.rejected,
        filter_statuses=_verdicts(trace.filter_statuses),
        potential_nodes=tuple(trace.potential_nodes),
        sampling=sampling
        and (sampling.potential, sampling.offset, sampling.wanted, sampling.examined),
        victim_rules={
            r.rule: int(r.inputs["pods"])
            for r in trace.rules
            if r.section == "victims.eligible" and r.verdict != "no-value"
        },
        dry_run_statuses=_verdicts(trace.dry_run_statuses),
        candidates=tuple(
            Ranked(c.node, c.victims, c.pdb_violations, dict(c.values), c.eliminated_by)
            for c in decision.candidates
        ),
        ranking=tuple(Step(s.criterion, s.before, s.after, s.best) for s in trace.ranking),
        decided_by=trace.decided_by,
        victims=tuple((v.pod, v.already_terminating) for v in decision.victims),
        checks=tuple(
            Check(c.pod, c.pdb_violating, c.reprieved, c.filter, c.reasons) for c in trace.checks
        ),
        message=trace.message,
        evict=effects.evict,
        mark_disrupted=effects.mark_disrupted,
        clear_nominations=effects.clear_nominations,
        nomination=effects.nomination.value,
    )


def _verdicts(statuses: Mapping[str, Any]) -> dict[str, Verdict]:
    return {n: Verdict(int(s.code), s.filter, s.reasons) for n, s in statuses.items()}
