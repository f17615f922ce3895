"""An observed preemption beside the decision that is made again for it on one state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from policy.cluster.members import groups_of
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Candidate, Decision
from policy.groups.decide import decide_group
from policy.observing.model import Preemption
from policy.preemption.decide import DecisionError, decide, decide_by
from policy.preemption.ties import tied
from policy.rules import RuleSet
from policy.store.observed import VerdictClass

POD_GROUP: Final = "PodGroup"
"""`preemptor_kind` of what preempts as a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came of deciding on one state."""

    verdict: VerdictClass
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    pdb_violating: Mapping[str, bool] = field(default_factory=dict)
    decision: Decision | GroupDecision | None = None


class ObservedComparison(Protocol):
    """One observed preemption; gives the verdict for a state."""

    def on(self, snapshot: Snapshot) -> Compared: ...


def comparison_of(preemption: Preemption, rules: RuleSet) -> ObservedComparison:
    """How a preemption is decided again: that of a pod, or that of a pod group."""
    if preemption.preemptor_kind == POD_GROUP:
        return _OfGroup(preemption, rules)
    return _OfPod(preemption, rules)


def examining_all(rules: RuleSet) -> RuleSet:
    """The rule set with every potential node examined."""
    candidates = replace(rules.candidates, min_percentage=100)
    return replace(rules, candidates=candidates)


def without_extenders(rules: RuleSet) -> RuleSet:
    """The rule set as if it called none: their answers of then are not known."""
    return replace(rules, extenders=()) if rules.extenders else rules


class _OfPod:
    def __init__(self, preemption: Preemption, rules: RuleSet) -> None:
        self._preemption = preemption
        self._rules = rules
        self._all = without_extenders(examining_all(rules))

    def on(self, snapshot: Snapshot) -> Compared:
        try:
            decision = decide(snapshot, self._all, self._preemption.preemptor)
        except DecisionError as exc:
            return Compared(verdict=VerdictClass.OTHER, reason=str(exc))
        verdict, reason = self._verdict(snapshot, decision)
        victims = tuple(victim.pod for victim in decision.victims)
        return Compared(
            verdict=verdict,
            reason=reason,
            detail={
                "outcome": str(decision.outcome),
                "node": decision.node or "",
                "victims": list(_newly_evicted(snapshot, victims)),
            },
            pdb_violating={
                victim.pod: victim.pdb_violating
                for victim in decision.victims
                if decision.node == self._preemption.node
            },
            decision=decision,
        )

    def _verdict(self, snapshot: Snapshot, decision: Decision) -> tuple[VerdictClass, str]:
        node = self._preemption.node
        candidate = _candidate(decision, node)
        if candidate is None:
            return VerdictClass.OTHER, _no_candidate(decision, node)
        ours = _newly_evicted(snapshot, candidate.victims)
        # Whom it found leaving already its events do not name.
        theirs = _observed(self._preemption)
        if ours != theirs:
            decision = self._theirs_last(snapshot, theirs)
            candidate = _candidate(decision, node)
            if candidate is None or _newly_evicted(snapshot, candidate.victims) != theirs:
                return VerdictClass.OTHER, (
                    f"on {node} this rule set evicts {_listed(ours)}, it evicted {_listed(theirs)}"
                )
        if candidate.position == 0:
            if ours == theirs:
                return VerdictClass.SAME, ""
            return VerdictClass.ORDER, (
                f"this rule set evicts {_listed(ours)}, it evicted {_listed(theirs)}:"
                " these are by the order of pods equal in priority and start time"
            )
        last = next((c.id for c in self._rules.ranking if c.pick is not None), "")
        best = decision.candidates[0].node
        if candidate.eliminated_by == last:
            return VerdictClass.TIE, f"{best} and {node} are equal on every criterion"
        behind = f"{best} is better by `{candidate.eliminated_by}`"
        if self._samples(decision):
            return VerdictClass.SAMPLING, behind
        return VerdictClass.OTHER, behind

    def _theirs_last(self, snapshot: Snapshot, theirs: tuple[str, ...]) -> Decision:
        """The decision where, of equal pods, those that were evicted are tried last.

        The original's sort leaves equal pods in any order. Where one of them ends with these
        victims, this one does: all others stay together then, and none of these beside them.
        """
        last = {pod: len(snapshot.pods) + place for place, pod in enumerate(theirs)}
        return decide_by(tied(last, {}), snapshot, self._all, self._preemption.preemptor)

    def _samples(self, decision: Decision) -> bool:
        """Whether the scheduler may have stopped before it saw the better node."""
        sampling = decision.trace.sampling
        rules = self._rules.candidates
        if sampling is None:
            return False
        wanted = max(sampling.potential * rules.min_percentage // 100, rules.min_absolute)
        return wanted < sampling.potential


class _OfGroup:
    """A pod group that preempted as one: on several nodes, whole units of pods."""

    def __init__(self, preemption: Preemption, rules: RuleSet) -> None:
        self._preemption = preemption
        self._rules = without_extenders(rules)

    def on(self, snapshot: Snapshot) -> Compared:
        group = self._preemption.preemptor
        if group not in groups_of(snapshot):
            return Compared(
                verdict=VerdictClass.OTHER, reason=f"pod group {group} was not in the cluster yet"
            )
        try:
            decision = decide_group(snapshot, self._rules, group)
        except DecisionError as exc:
            return Compared(verdict=VerdictClass.OTHER, reason=str(exc))
        verdict, reason = self._verdict(snapshot, decision)
        return Compared(
            verdict=verdict,
            reason=reason,
            detail={
                "outcome": str(decision.outcome),
                "node": "",
                "victims": list(_newly_evicted(snapshot, decision.effects.evict)),
            },
            pdb_violating={victim.pod: victim.pdb_violating for victim in decision.victims},
            decision=decision,
        )

    def _verdict(self, snapshot: Snapshot, decision: GroupDecision) -> tuple[VerdictClass, str]:
        ours = _newly_evicted(snapshot, decision.effects.evict)
        theirs = _observed(self._preemption)
        if ours == theirs:
            return VerdictClass.SAME, ""
        if not ours:
            said = decision.message or str(decision.outcome)
            return VerdictClass.OTHER, f"the group evicts no pod: {said}"
        if _equal_pods(snapshot, ours, theirs):
            return VerdictClass.ORDER, f"{_listed(ours)} and {_listed(theirs)} are equal pods"
        return VerdictClass.OTHER, (
            f"this rule set evicts {_listed(ours)}, it evicted {_listed(theirs)}"
        )


def _observed(preemption: Preemption) -> tuple[str, ...]:
    return tuple(sorted({victim.pod for victim in preemption.victims}))


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
