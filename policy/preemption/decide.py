"""`decide`: one scheduling cycle for one pod, as a pure function.

The steps are kube-scheduler's: filter every node; where one passes, place the pod; otherwise ask
whether the pod may preempt, dry-run the potential nodes, rank the candidates, and say what
follows. Everything that is policy comes from the rule set.
"""

from __future__ import annotations

from policy.cluster.snapshot import Snapshot
from policy.decision.model import (
    NO_EFFECTS,
    NO_STATUSES,
    Decision,
    Effects,
    ExtenderCall,
    Outcome,
    Texts,
    Trace,
)
from policy.extenders.evaluate import Consultation, ExtenderFailed, left_to_extenders
from policy.extenders.protocol import Extenders
from policy.filters.base import Incoming
from policy.filters.pipeline import narrowing
from policy.preemption.candidates import NOTHING_SOUGHT, Found, search
from policy.preemption.context import Context
from policy.preemption.eligibility import eligibility
from policy.preemption.extending import ask_filters
from policy.preemption.filtering import filter_nodes
from policy.preemption.importance import Ties
from policy.preemption.outcome import conclude, place_pod
from policy.rules.ruleset import CandidateNodes, RuleSet


class DecisionError(ValueError):
    """The question cannot be asked: no such pod, or it is placed already."""


def decide(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    *,
    seed: int = 0,
    evaluate_all: bool = False,
    ties: Ties | None = None,
    extenders: Extenders | None = None,
) -> Decision:
    """What one scheduling cycle does with the pending pod `preemptor` (namespace/name).

    A pure function: equal arguments give equal decisions, on every machine. `seed` feeds the
    rule set's random choices. `evaluate_all` goes through every step, also where the pod fits or
    may not preempt (candidates are then hypothetical; outcome and effects stay what would
    happen). `ties` gives pods that are equal in importance another order than that of the
    snapshot. `extenders` answers for the extenders that the rule set names: the network, or the
    record of a decision (`RecordedExtenders`); what they say is part of the decision. Raises
    DecisionError for a pod that is unknown or already placed, and where the rule set names
    extenders that nobody answers for.
    """
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise DecisionError(f"no pod `{preemptor}` in the cluster")
    if pod.spec.node_name:
        raise DecisionError(f"pod `{preemptor}` is on node `{pod.spec.node_name}` already")
    if pod.status.phase in {"Succeeded", "Failed"}:
        raise DecisionError(f"pod `{preemptor}` has ended ({pod.status.phase})")
    if rules.extenders and extenders is None:
        raise DecisionError(f"rule set `{rules.name}` names extenders, and nobody answers for them")
    incoming = Incoming(
        snapshot=snapshot,
        pod=pod,
        key=preemptor,
        row=row,
        ignored=left_to_extenders(rules.extenders),
    )
    consultation = None
    if rules.extenders and extenders is not None:
        consultation = Consultation(incoming, rules.extenders, extenders)
    context = Context(
        incoming=incoming, rules=rules, seed=seed, ties=ties, consultation=consultation
    )
    return _run(context, evaluate_all=evaluate_all)


def _run(context: Context, *, evaluate_all: bool) -> Decision:
    if not len(context.names):
        return _failed(context, "no nodes available to schedule pods", evaluate_all=evaluate_all)
    narrowed = narrowing(context.incoming, context.uses)
    if narrowed is not None and narrowed.error:
        return _failed(context, narrowed.error, evaluate_all=evaluate_all)
    rejected = narrowed.rejected if narrowed is not None else ()
    filtered = filter_nodes(context, narrowed)
    passing = filtered.passing
    if context.consultation is not None:
        try:
            filtered, passing = ask_filters(
                context.consultation,
                filtered,
                names=context.names,
                nominated=context.nominated,
                silence_is_hopeless=context.rules.candidates.nodes is CandidateNodes.UNSCHEDULABLE,
            )
        except ExtenderFailed as exc:
            return _failed(context, str(exc), evaluate_all=evaluate_all)
    fits = passing.size > 0
    asked = eligibility(context, filtered)
    real = not fits and asked.eligible
    sought = evaluate_all or real
    found = search(context, filtered, consult=real) if sought else NOTHING_SOUGHT
    placement = place_pod(context, passing) if fits else None
    outcome, node, effects, message = conclude(
        context, placement, asked, found, rejected=bool(rejected)
    )
    trace = Trace(
        fits=fits,
        eligible=asked.eligible,
        rejected=rejected,
        filter_statuses=filtered.statuses,
        rules=(asked.fired, *found.fired),
        potential_nodes=Texts(table=context.snapshot.nodes.name_array, index=found.potential),
        sampling=found.sampling,
        dry_run_statuses=found.statuses,
        ranking=found.ranking,
        decided_by=found.decided_by,
        checks=found.checks,
        message=message,
        scores=placement.scores if placement is not None else (),
        extender_calls=_calls(context),
    )
    return _decision(
        context,
        outcome=outcome,
        node=node,
        found=found,
        effects=effects,
        trace=trace,
        evaluate_all=evaluate_all,
    )


def _failed(context: Context, message: str, *, evaluate_all: bool) -> Decision:
    """The cycle ended in an error; nothing was tried."""
    trace = Trace(
        fits=False,
        eligible=False,
        rejected=(),
        filter_statuses=NO_STATUSES,
        rules=(),
        potential_nodes=(),
        sampling=None,
        dry_run_statuses=NO_STATUSES,
        ranking=(),
        decided_by="",
        checks=(),
        message=message,
        extender_calls=_calls(context),
    )
    return _decision(
        context,
        outcome=Outcome.ERROR,
        node=None,
        found=NOTHING_SOUGHT,
        effects=NO_EFFECTS,
        trace=trace,
        evaluate_all=evaluate_all,
    )


def _calls(context: Context) -> tuple[ExtenderCall, ...]:
    return () if context.consultation is None else context.consultation.calls


def _decision(
    context: Context,
    *,
    outcome: Outcome,
    node: str | None,
    found: Found,
    effects: Effects,
    trace: Trace,
    evaluate_all: bool,
) -> Decision:
    return Decision(
        preemptor=context.incoming.key,
        preemptor_uid=context.incoming.pod.metadata.uid,
        preemptor_priority=context.incoming.priority,
        outcome=outcome,
        node=node,
        victims=found.victims,
        candidates=found.candidates,
        trace=trace,
        effects=effects,
        rule_set=context.rules.name,
        rule_set_digest=context.rules.digest,
        snapshot_digest=context.snapshot.digest,
        history=context.snapshot.history,
        now_ms=context.snapshot.now_ms,
        seed=context.seed,
        evaluate_all=evaluate_all,
    )
