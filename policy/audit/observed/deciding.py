"""An observed preemption, decided again on the state just before it, and what came of that.

| verdict | our decision, and what the scheduler did |
| --- | --- |
| `same` | the same node, the same pods newly evicted |
| `order` | the same node; other pods, equal in priority and start time, which have no order |
| `tie` | another node, equal to ours on every criterion but the one that only ends the ranking |
| `sampling` | a candidate of ours, and not the best: the scheduler looks at a part of the nodes |
| `lag` | one of the above on the state a moment earlier or later: its cache need not be as new |
| `other` | something else: another profile, an extender, another scheduler, or a difference |
| `unknown` | it cannot be decided again |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from policy.audit.past import Damaged, Past
from policy.cluster import times
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import ENGINE_VERSION, Candidate, Decision
from policy.observing.events import WHOLE_CLUSTER
from policy.observing.model import Preemption
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.store import NotFound, Store, StoreError
from policy.store.observed import Situation, Verdict, VerdictClass

LAG_REVISIONS: Final = 8
"""How many revisions earlier and later a scheduler's cache may have stood."""

StateAt = Callable[[int], Snapshot]
"""The state at a revision. Raises NotFound, Damaged, StoreError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """An observed preemption decided again."""

    verdict: Verdict
    decision: Decision | None = None  #: None where nothing could be decided
    revision: int | None = None  #: the state it was decided on


def states_of(store: Store, cluster: str, *, now_ms: int) -> StateAt:
    """The states of a cluster, looked at at one instant."""
    past = Past(store, cluster)
    return lambda revision: past.at(revision, now_ms=now_ms)


def decide_again(
    preemption: Preemption, situation: Situation, rules: RuleSet, states: StateAt
) -> Again:
    """Decide an observed preemption again and compare.

    states: for the time of the preemption. All potential nodes are examined, whatever part of
    them the rule set takes: where the scheduler began is not known.
    """
    missing = _missing(preemption, situation, rules)
    if missing:
        return Again(verdict=_verdict(VerdictClass.UNKNOWN, rules, missing))
    assert situation.base_revision is not None
    comparison = _Comparison(preemption, rules, states)
    first = comparison.at(situation.base_revision)
    if first.verdict.verdict is not VerdictClass.OTHER:
        return first
    for revision in _nearby(situation):
        again = comparison.at(revision)
        if again.verdict.verdict in _AGREES:
            detail = {**again.verdict.detail, "lag": revision - situation.base_revision}
            reason = f"{again.verdict.verdict} at revision {revision}"
            lag = replace(again.verdict, verdict=VerdictClass.LAG, reason=reason, detail=detail)
            return replace(again, verdict=lag)
    if not situation.exact:
        reason = f"the state just before it is not kept; on the one before: {first.verdict.reason}"
        unknown = replace(first.verdict, verdict=VerdictClass.UNKNOWN, reason=reason)
        return replace(first, verdict=unknown)
    return first


_AGREES: Final = frozenset(
    {VerdictClass.SAME, VerdictClass.TIE, VerdictClass.ORDER, VerdictClass.SAMPLING}
)


def _missing(preemption: Preemption, situation: Situation, rules: RuleSet) -> str:
    """Why it cannot be decided again; "" where it can."""
    if preemption.preemptor_kind != "Pod" or preemption.node == WHOLE_CLUSTER:
        return "a pod group preempted: those are not decided again"
    if not preemption.preemptor:
        return "the preemptor is unknown"
    if situation.preemptor is None:
        return f"the preemptor {preemption.preemptor} is in no state that is kept"
    if situation.base_revision is None or situation.base_revision < 1:
        return "no state before it is kept"
    if rules.extenders:
        return f"rule set {rules.name} calls extenders, whose answers of then are not known"
    return ""


def _nearby(situation: Situation) -> Iterator[int]:
    base = situation.base_revision
    assert base is not None
    for distance in range(1, LAG_REVISIONS + 1):
        if base - distance >= 1:
            yield base - distance
        # Later than its own last effect its cache did not decide.
        if situation.last_revision is not None and base + distance < situation.last_revision:
            yield base + distance


def _verdict(verdict: VerdictClass, rules: RuleSet, reason: str = "", **more: Any) -> Verdict:
    return Verdict(
        verdict=verdict,
        reason=reason,
        rule_set=rules.name,
        rule_set_digest=rules.digest,
        engine_version=ENGINE_VERSION,
        **more,
    )


def examining_all(rules: RuleSet) -> RuleSet:
    """The rule set with every potential node examined."""
    candidates = replace(rules.candidates, min_percentage=100)
    return replace(rules, candidates=candidates)


class _Comparison:
    """One observed preemption against the decisions on several states."""

    def __init__(self, preemption: Preemption, rules: RuleSet, states: StateAt) -> None:
        self._preemption = preemption
        self._rules = rules
        self._all = examining_all(rules)
        self._states = states

    def at(self, revision: int) -> Again:
        preemption, rules = self._preemption, self._rules
        try:
            snapshot = self._states(revision)
            decision = decide(snapshot, self._all, preemption.preemptor)
        except (NotFound, Damaged, StoreError) as exc:
            return Again(verdict=_verdict(VerdictClass.UNKNOWN, rules, str(exc)))
        except DecisionError as exc:
            reason = f"at revision {revision}: {exc}"
            return Again(verdict=_verdict(VerdictClass.OTHER, rules, reason))
        found = self._compared(snapshot, decision)
        detail = {
            "revision": revision,
            "outcome": str(decision.outcome),
            "node": decision.node or "",
            "victims": list(_newly_evicted(snapshot, _victims(decision))),
        }
        violating = {
            victim.pod: victim.pdb_violating
            for victim in decision.victims
            if decision.node == preemption.node
        }
        verdict = _verdict(found[0], rules, found[1], detail=detail, pdb_violating=violating)
        return Again(verdict=verdict, decision=decision, revision=revision)

    def _compared(self, snapshot: Snapshot, decision: Decision) -> tuple[VerdictClass, str]:
        node = self._preemption.node
        observed = tuple(victim.pod for victim in self._preemption.victims)
        candidate = _candidate(decision, node)
        if candidate is None:
            return VerdictClass.OTHER, _no_candidate(decision, node)
        ours = _newly_evicted(snapshot, candidate.victims)
        # Whom it found leaving already its events do not name.
        theirs = tuple(sorted(set(observed)))
        equal = set(ours) == set(theirs)
        if not equal and not _equal_pods(snapshot, ours, theirs):
            return VerdictClass.OTHER, (
                f"on {node} this rule set evicts {_listed(ours)}, it evicted {_listed(theirs)}"
            )
        if candidate.position == 0:
            if equal:
                return VerdictClass.SAME, ""
            return VerdictClass.ORDER, f"{_listed(ours)} and {_listed(theirs)} are equal pods"
        last = next((c.id for c in self._rules.ranking if c.pick is not None), "")
        best = decision.candidates[0].node
        if candidate.eliminated_by == last:
            return VerdictClass.TIE, f"{best} and {node} are equal on every criterion"
        behind = f"{best} is better by `{candidate.eliminated_by}`"
        if self._samples(decision):
            return VerdictClass.SAMPLING, behind
        return VerdictClass.OTHER, behind

    def _samples(self, decision: Decision) -> bool:
        """Whether the scheduler may have stopped before it saw the better node."""
        sampling = decision.trace.sampling
        rules = self._rules.candidates
        if sampling is None:
            return False
        wanted = max(sampling.potential * rules.min_percentage // 100, rules.min_absolute)
        return wanted < sampling.potential


def _victims(decision: Decision) -> tuple[str, ...]:
    return tuple(victim.pod for victim in decision.victims)


def _candidate(decision: Decision, node: str) -> Candidate | None:
    nodes = decision.candidates.nodes
    return decision.candidates[list(nodes).index(node)] if node in nodes else None


def _no_candidate(decision: Decision, node: str) -> str:
    trace = decision.trace
    if trace.fits:
        return f"the pod fits on {decision.node} without a preemption"
    if not trace.eligible:
        return f"the pod may not preempt: {trace.message}"
    if not len(decision.candidates):
        return f"no node is a candidate: {trace.message}"
    return f"{node} is no candidate; {decision.node} is the best"


def _newly_evicted(snapshot: Snapshot, pods: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the pods that are not leaving already."""
    found = []
    for key in pods:
        pod = snapshot.pod(key)
        if pod is not None and not pod.metadata.deletion_timestamp:
            found.append(key)
    return tuple(sorted(found))


def _equal_pods(snapshot: Snapshot, ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether the pods differ only by some that are equal in priority and start time."""

    def shape(keys: tuple[str, ...]) -> Counter[tuple[int, str]]:
        pods = [snapshot.pod(key) for key in keys]
        return Counter(_rank(pod) for pod in pods if pod is not None)

    return len(ours) == len(theirs) and shape(ours) == shape(theirs)


def _rank(pod: Pod) -> tuple[int, str]:
    return pod.spec.priority or 0, pod.status.start_time or ""


def _listed(pods: tuple[str, ...]) -> str:
    return ", ".join(pods) if pods else "no pod"


def moment_of(preemption: Preemption) -> int:
    """The time to decide it for, within what can be decided."""
    return min(preemption.at_ms, times.LATEST_NOW)
