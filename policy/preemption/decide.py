"""`decide`: one scheduling cycle for one pod, as a pure function.

The steps are kube-scheduler's: filter every node; where one passes, place the pod; otherwise ask
whether the pod may preempt, dry-run the potential nodes, rank the candidates, and say what
follows. Everything that is policy comes from the rule set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from policy.cluster.leaving import deletion_time
from policy.cluster.snapshot import Snapshot
from policy.cluster.times import TimeError
from policy.decision.model import (
    NO_EFFECTS,
    NO_STATUSES,
    Decision,
    DecisionTrace,
    Effects,
    ExtenderCall,
    Obstacle,
    OfferedNode,
    Outcome,
)
from policy.extenders.evaluate import Consultation, ExtenderFailed, left_to_extenders
from policy.extenders.protocol import Extenders
from policy.extenders.recorded import NotRecorded
from policy.filters.base import Incoming, InFlight
from policy.filters.pipeline import narrowing
from policy.preemption.candidates import NOTHING_SOUGHT, SearchResult, search
from policy.preemption.classes import class_of
from policy.preemption.context import DecisionContext
from policy.preemption.eligibility import eligibility
from policy.preemption.extending import ask_filters
from policy.preemption.filtering import filter_nodes
from policy.preemption.importance import Importance
from policy.preemption.obstacles import obstacles_of
from policy.preemption.offers import Offer, judge
from policy.preemption.outcome import conclude, place_pod
from policy.rules.ruleset import RuleSet


class DecisionError(ValueError):
    """The question cannot be asked: no such pod, or it is placed already."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class NotInCluster(DecisionError):
    """The cluster has no such object; which cluster it is, the caller knows: `of_cluster`."""

    def __init__(self, what: str, *, help: str = "") -> None:
        super().__init__(f"no {what} in the cluster", help=help)
        self.what = what


@contextmanager
def of_cluster(name: str) -> Iterator[None]:
    """What is not in the cluster is said with its name. Raises DecisionError."""
    try:
        yield
    except NotInCluster as exc:
        raise DecisionError(f"no {exc.what} in cluster `{name}`", help=exc.help) from exc


def decide(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    *,
    seed: int = 0,
    evaluate_all: bool = False,
    extenders: Extenders | None = None,
    offer: Offer | None = None,
    by_class: bool = False,
) -> Decision:
    """What one scheduling cycle does with the pending pod `preemptor` (namespace/name).

    A pure function: equal arguments give equal decisions, on every machine. `seed` feeds the
    rule set's random choices. `evaluate_all` goes through every step, also where the pod fits or
    may not preempt (candidates are then hypothetical; outcome and effects stay what would
    happen). `extenders` answers for the extenders that the rule set names: the network, or the
    record of a decision (`RecordedExtenders`); what they say is part of the decision. `offer`:
    the candidates that a scheduler found and lets choose from; then none are searched for, the
    pod is not placed, and extenders are not queried. `by_class` gives
    the same decision, sooner where equal pods were decided on this snapshot or before it.

    A pod that cannot be decided (arithmetic that cannot be carried, an evaluation that fails) is
    a decision too, with outcome `error`: one such pod does not stop the others. Raises
    DecisionError for a pod that is unknown or already placed, and where the rule set names
    extenders for which no `extenders` are given; NotRecorded where recorded ones were not asked.
    """
    return decide_by(
        Importance,
        snapshot,
        rules,
        preemptor,
        seed=seed,
        evaluate_all=evaluate_all,
        extenders=extenders,
        offer=offer,
        by_class=by_class,
    )


def decide_by(
    importance: Callable[..., Importance],
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    *,
    seed: int = 0,
    evaluate_all: bool = False,
    extenders: Extenders | None = None,
    offer: Offer | None = None,
    by_class: bool = False,
    in_flight: InFlight | None = None,
) -> Decision:
    """`decide` with another importance order than the rule set's keys alone give.

    importance: makes it of snapshot, keys, variables and history figures, as `Importance` does.
    in_flight: the pod is a member of a group whose cycle this is part of. What differs from the
    rule set is not part of the decision: such a decision is never recorded by itself.
    """
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise NotInCluster(f"pod `{preemptor}`")
    if pod.spec.node_name:
        raise DecisionError(f"pod `{preemptor}` is on node `{pod.spec.node_name}` already")
    if pod.status.phase in {"Succeeded", "Failed"}:
        raise DecisionError(f"pod `{preemptor}` has ended ({pod.status.phase})")
    consults = bool(rules.extenders) and offer is None
    if consults and extenders is None:
        raise DecisionError(f"rule set `{rules.name}` names extenders, and none are given")
    incoming = Incoming(
        snapshot=snapshot,
        pod=pod,
        key=preemptor,
        row=row,
        messages=rules.messages,
        ignored=left_to_extenders(rules.extenders),
        in_flight=in_flight,
    )
    consultation = None
    if consults and extenders is not None:
        consultation = Consultation(incoming, rules.extenders, extenders)
    question = _Question(
        incoming=incoming,
        rules=rules,
        seed=seed,
        evaluate_all=evaluate_all,
        consultation=consultation,
        offer=None if offer is None else tuple(offer),
        by_class=by_class,
    )
    try:
        return _run(question, importance)
    except (AssertionError, MemoryError, NotRecorded):
        raise
    # Whatever is wrong with one pod, the next one is decided; the row says that this was not.
    except Exception as exc:  # noqa: BLE001  # the outermost frame of one pod's decision
        return _failed(question, f"cannot be decided: {cause_of(exc)}")


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is to be decided, and by what."""

    incoming: Incoming
    rules: RuleSet
    seed: int
    evaluate_all: bool
    consultation: Consultation | None
    offer: tuple[OfferedNode, ...] | None
    by_class: bool


def cause_of(error: Exception) -> str:
    """What went wrong, in words that do not depend on the interpreter."""
    if isinstance(error, TimeError):
        return str(error)
    if isinstance(error, ArithmeticError):
        return "a number is too large"
    return f"internal error ({type(error).__name__})"


def _run(question: _Question, importance: Callable[..., Importance]) -> Decision:
    evaluate_all = question.evaluate_all
    context = DecisionContext(
        incoming=question.incoming,
        rules=question.rules,
        seed=question.seed,
        importance=importance,
        consultation=question.consultation,
        class_of=class_of if question.by_class else lambda context: None,
    )
    # Whoever offers nodes has some: of each it is said that the state does not have it.
    if not len(context.names) and question.offer is None:
        return _failed(question, "no nodes available to schedule pods")
    narrowed = narrowing(context.incoming, context.uses)
    # Whoever offers nodes has looked at volumes, of which the state need not have the claims.
    if narrowed is not None and narrowed.error and question.offer is None:
        return _failed(question, narrowed.error)
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
            )
        except ExtenderFailed as exc:
            return _failed(question, str(exc))
    fits = passing.size > 0
    asked = eligibility(context, filtered, question.offer or ())
    if question.offer is not None:
        # Whoever offers candidates has found no node that takes the pod as it is.
        placement = None
        found = judge(context, filtered, question.offer) if asked.eligible else NOTHING_SOUGHT
    else:
        real = not fits and asked.eligible
        sought = evaluate_all or real
        found = search(context, filtered, consult=real) if sought else NOTHING_SOUGHT
        placement = place_pod(context, passing) if fits else None
    outcome, node, effects, message = conclude(
        context, placement, asked, found, rejected=bool(rejected)
    )
    stands_in_the_way: tuple[Obstacle, ...] = ()
    # Of an offer the statuses say what stood in the way.
    if outcome is Outcome.NO_CANDIDATE and question.offer is None:
        stands_in_the_way = obstacles_of(context, filtered.statuses, found.statuses)
    trace = DecisionTrace(
        fits=fits,
        eligible=asked.eligible,
        rejected=rejected,
        filter_statuses=filtered.statuses,
        rules=(
            *(asked.fired, *asked.without_value, *found.fired),
            *(placement.without_value if placement is not None else ()),
        ),
        potential_nodes=context.names_of(found.potential),
        sampling=found.sampling,
        dry_run_statuses=found.statuses,
        ranking=found.ranking,
        decided_by=found.decided_by,
        checks=found.checks,
        message=message,
        scores=placement.scores if placement is not None else (),
        extender_calls=_calls(question),
        offer=question.offer,
        waits_for=asked.waits_for,
        obstacles=stands_in_the_way,
    )
    _require_writable(context.snapshot, effects)
    return _decision(
        question, outcome=outcome, node=node, found=found, effects=effects, trace=trace
    )


def _require_writable(snapshot: Snapshot, effects: Effects) -> None:
    """Raises TimeError where an effect could not be written: a deletion time out of range."""
    for key in effects.evict:
        pod = snapshot.pod(key)
        assert pod is not None  # a victim is a pod of the snapshot
        if not pod.metadata.deletion_timestamp:
            deletion_time(pod, now_ms=snapshot.now_ms)


def _failed(question: _Question, message: str) -> Decision:
    """The cycle ended in an error; nothing follows from it."""
    trace = DecisionTrace(
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
        scores=(),
        extender_calls=_calls(question),
        offer=question.offer,
    )
    return _decision(
        question,
        outcome=Outcome.ERROR,
        node=None,
        found=NOTHING_SOUGHT,
        effects=NO_EFFECTS,
        trace=trace,
    )


def _calls(question: _Question) -> tuple[ExtenderCall, ...]:
    return () if question.consultation is None else question.consultation.calls


def _decision(
    question: _Question,
    *,
    outcome: Outcome,
    node: str | None,
    found: SearchResult,
    effects: Effects,
    trace: DecisionTrace,
) -> Decision:
    incoming, rules = question.incoming, question.rules
    return Decision(
        preemptor=incoming.key,
        preemptor_uid=incoming.pod.metadata.uid,
        preemptor_priority=incoming.priority,
        outcome=outcome,
        node=node,
        victims=found.victims,
        candidates=found.candidates,
        trace=trace,
        effects=effects,
        rule_set=rules.name,
        rule_set_digest=rules.digest,
        snapshot_digest=incoming.snapshot.digest,
        history=incoming.snapshot.history,
        now_ms=incoming.snapshot.now_ms,
        seed=question.seed,
        evaluate_all=question.evaluate_all,
    )
