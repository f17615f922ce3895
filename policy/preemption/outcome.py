"""How the cycle ends: what happens to the pod, to the victims, and to whom it concerns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policy.cluster.marked import NominatedByNode
from policy.cluster.snapshot import Rows
from policy.cluster.tables import PREEMPTED, PRIORITY, SCHEDULER
from policy.decision import messages
from policy.decision.model import (
    NO_EFFECTS,
    Code,
    Effects,
    NominationChange,
    Outcome,
    Victim,
)
from policy.preemption.candidates import SearchResult
from policy.preemption.context import DecisionContext
from policy.preemption.eligibility import Eligibility
from policy.preemption.placing import Placement, place
from policy.rules.ruleset import OnNoCandidate


def conclude(
    context: DecisionContext,
    placement: Placement | None,
    eligibility: Eligibility,
    found: SearchResult,
    *,
    rejected: bool,
) -> tuple[Outcome, str | None, Effects, str]:
    """Outcome, node, effects and the message of the result.

    rejected: a filter rejected the pod for all nodes at once.
    """
    if placement is not None:
        node = context.names[placement.node]
        return Outcome.BIND, node, _bind(node), ""
    if not eligibility.eligible:
        text = _told(context, messages.PREFIX + eligibility.fired.reason)
        return Outcome.NOT_ELIGIBLE, None, NO_EFFECTS, text
    if not len(found.candidates):
        errors = [s.reasons[0] for s in found.statuses.statuses if s.code is Code.ERROR]
        if found.failure:
            errors = [found.failure]
        if errors:
            return Outcome.ERROR, None, NO_EFFECTS, messages.PREFIX + messages.errors(errors)
        if found.dropped:
            text = _told(context, messages.PREFIX + messages.NO_CANDIDATE)
            return Outcome.NO_CANDIDATE, None, NO_EFFECTS, text
        message = messages.preemption_failure(nodes=len(context.names), dry_run=found.statuses)
        outcome = Outcome.REJECTED if rejected else Outcome.NO_CANDIDATE
        policy = context.rules.effects.on_no_candidate
        # A scheduler whose candidates an extender refuses leaves the nomination as it is (callers
        # of callExtenders in framework/preemption, 1.35; preempt in core/generic_scheduler, 1.14).
        clears = not found.refused and (
            policy is OnNoCandidate.CLEAR
            or (policy is OnNoCandidate.CLEAR_IF_NO_POTENTIAL_NODE and not found.potential.size)
        )
        change = NominationChange.CLEAR if clears else NominationChange.LEAVE
        effects = Effects(
            bind="", mark_disrupted=(), evict=(), clear_nominations=(), nomination=change
        )
        return outcome, None, effects, _told(context, message)
    effects = _preempt(context, found.node, found.victims)
    return Outcome.PREEMPT, found.node, effects, ""


def _told(context: DecisionContext, message: str) -> str:
    """The message, where this generation gives one."""
    return message if context.rules.effects.preemption_message else ""


def place_pod(context: DecisionContext, passing: Rows) -> Placement:
    """The node for a pod that fits: the one it is nominated to, else the best by score."""
    if context.nominated in passing:
        return Placement(node=context.nominated, scores=())
    if context.consultation is None or passing.size == 1:
        shared = None if passing.size == 1 else context.shared
        known = None if shared is None else shared.scores(context)
        return place(context.incoming, context.rules.scoring, passing, known=known)
    asked = context.consultation.prioritize(passing)
    placement = place(context.incoming, context.rules.scoring, passing, added=asked.added)
    at = int(np.searchsorted(passing, placement.node))
    told = tuple((name, weight, int(values[at])) for name, weight, values in asked.values)
    return replace(placement, scores=(*placement.scores, *told))


def _preempt(context: DecisionContext, node: str, victims: Sequence[Victim]) -> Effects:
    rules = context.rules.effects
    snapshot = context.snapshot
    deleted = tuple(
        v.pod for v in victims if rules.delete_terminating_victims or not v.already_terminating
    )
    marked = deleted if rules.disruption_condition else ()
    if not rules.repeat_condition:
        # The condition is the same as before, and nothing is sent.
        preempted = snapshot.column(PREEMPTED)
        marked = tuple(pod for pod in marked if not preempted[snapshot.row(pod)])
    cleared: tuple[str, ...] = ()
    if rules.clear_lower_nominations and (deleted or rules.clear_without_eviction):
        rows = NominatedByNode.of(snapshot).on_one(snapshot.nodes.index[node])
        scheduler = snapshot.column(SCHEDULER)
        rows = rows[
            (snapshot.column(PRIORITY)[rows] < context.incoming.priority)
            & (scheduler[rows] == scheduler[context.incoming.row])
        ]
        if context.incoming.in_flight is not None:
            rows = rows[~np.isin(rows, context.incoming.in_flight.pods)]
        rows = rows[np.argsort(snapshot.rank[rows])]
        cleared = tuple(snapshot.keys[row] for row in rows.tolist())
    return Effects(
        bind="",
        mark_disrupted=marked,
        evict=deleted,
        clear_nominations=cleared,
        nomination=NominationChange.SET,
    )


def _bind(node: str) -> Effects:
    return Effects(
        bind=node,
        mark_disrupted=(),
        evict=(),
        clear_nominations=(),
        nomination=NominationChange.LEAVE,
    )
