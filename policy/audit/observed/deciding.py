"""An observed preemption, decided again on the state just before it, and what came of that.

| verdict | our decision, and what the scheduler did |
| --- | --- |
| `same` | the same node, the same pods newly evicted |
| `order` | the same node; other pods, by the order of pods equal in priority and start time |
| `tie` | another node, equal to ours on every criterion but the one that only ends the ranking |
| `sampling` | a candidate of ours, and not the best: the scheduler looks at a part of the nodes |
| `lag` | one of the above on the state a moment earlier or later: its cache need not be as new |
| `answered` | what the service's extender answered: a decision of the record, not made again |
| `other` | something else: another profile, an extender, another scheduler, or a difference |
| `unknown` | it cannot be decided again |

A scheduler's cache knows at once what it does itself, and all else by one watch for each kind. So
where several pods preempt in one moment, `lag` also stands for mixtures of states (`views`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from policy.audit.observed.comparing import POD_GROUP, ObservedComparison, comparison_of
from policy.audit.observed.views import StateAt, View, views
from policy.audit.past import Damaged, Past
from policy.cluster import times
from policy.decision.groups import GroupDecision
from policy.decision.model import ENGINE_VERSION, Decision
from policy.observing.model import Preemption
from policy.rules import RuleSet
from policy.store import NotFound, Store, StoreError, Unavailable
from policy.store.observed import ObservedSituation, ObservedVerdict, VerdictClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """An observed preemption decided again."""

    verdict: ObservedVerdict
    decision: Decision | GroupDecision | None = None  #: None where nothing could be decided
    revision: int | None = None  #: the state it was decided on


def states_of(store: Store, cluster: str, *, now_ms: int) -> StateAt:
    """The states of a cluster, looked at at one instant."""
    past = Past(store, cluster)
    return lambda revision: past.at(revision, now_ms=now_ms)


def decide_again(
    preemption: Preemption, situation: ObservedSituation, rules: RuleSet, states: StateAt
) -> Again:
    """Decide an observed preemption again and compare.

    states: for the time of the preemption. All potential nodes are examined, whatever part of
    them the rule set takes: where the scheduler began is not known. Extenders are not called: what
    they answered then is not known either.
    """
    again = _decided(preemption, situation, rules, states)
    if not rules.extenders or again.verdict.verdict is VerdictClass.UNKNOWN:
        return again
    urls = [extender.url_prefix for extender in rules.extenders]
    without = f"without the answers of the scheduler's extenders ({', '.join(urls)})"
    verdict = again.verdict
    reason = f"{without}: {verdict.reason}" if verdict.reason else without
    detail = {**verdict.detail, "extenders": urls}
    return replace(again, verdict=replace(verdict, reason=reason, detail=detail))


def _decided(
    preemption: Preemption, situation: ObservedSituation, rules: RuleSet, states: StateAt
) -> Again:
    missing = _missing(preemption, situation, rules)
    if missing:
        return Again(verdict=_verdict(VerdictClass.UNKNOWN, rules, missing))
    assert situation.base_revision is not None
    search = _Search(comparison_of(preemption, rules), rules, states, preemption.preemptor)
    first = search.on(View(revision=situation.base_revision))
    if first.verdict.verdict is not VerdictClass.OTHER:
        return first
    again = search.nearby(situation)
    if again is not None:
        return again
    if rules.extenders:
        reason = (
            f"rule set {rules.name} calls extenders"
            f" ({', '.join(extender.url_prefix for extender in rules.extenders)}), whose answers of"
            f" then are not known; without them: {first.verdict.reason}"
        )
    elif not situation.exact:
        reason = f"the state just before it is not kept; on the one before: {first.verdict.reason}"
    elif first.decision is None:
        reason = first.verdict.reason
    else:
        return first
    unknown = replace(first.verdict, verdict=VerdictClass.UNKNOWN, reason=reason)
    return replace(first, verdict=unknown)


_AGREES: Final = frozenset(
    {VerdictClass.SAME, VerdictClass.TIE, VerdictClass.ORDER, VerdictClass.SAMPLING}
)


def _missing(preemption: Preemption, situation: ObservedSituation, rules: RuleSet) -> str:
    """Why it cannot be decided again; "" where it can."""
    group = preemption.preemptor_kind == POD_GROUP
    if not preemption.preemptor:
        return "the preemptor is unknown"
    if group and rules.groups is None:
        return f"rule set {rules.name} does not schedule pod groups"
    if not group and situation.preemptor is None:
        return f"the preemptor {preemption.preemptor} is in no state that is kept"
    if situation.base_revision is None or situation.base_revision < 1:
        return "no state before it is kept"
    return ""


def _verdict(
    verdict: VerdictClass, rules: RuleSet, reason: str = "", **more: Any
) -> ObservedVerdict:
    return ObservedVerdict(
        verdict=verdict,
        reason=reason,
        rule_set=rules.name,
        rule_set_digest=rules.digest,
        engine_version=ENGINE_VERSION,
        **more,
    )


class _Search:
    """One observed preemption on the states that its scheduler may have decided on."""

    def __init__(
        self, comparison: ObservedComparison, rules: RuleSet, states: StateAt, preemptor: str
    ) -> None:
        self._comparison = comparison
        self._rules = rules
        self._states = states
        self._preemptor = preemptor

    def on(self, view: View) -> Again:
        """On one view of the cluster."""
        try:
            snapshot = view.of(self._states)
        except Unavailable:
            raise  # it says nothing about the preemption
        except (NotFound, Damaged, StoreError) as exc:
            return Again(verdict=_verdict(VerdictClass.UNKNOWN, self._rules, str(exc)))
        compared = self._comparison.on(snapshot)
        verdict = _verdict(
            compared.verdict,
            self._rules,
            compared.reason,
            detail={"revision": view.revision, **view.document(), **compared.detail},
            pdb_violating=compared.pdb_violating,
        )
        return Again(verdict=verdict, decision=compared.decision, revision=view.revision)

    def nearby(self, situation: ObservedSituation) -> Again | None:
        """On what else its scheduler may have held; None where nothing of that agrees."""
        base = situation.base_revision
        assert base is not None
        for view in views(base, situation.last_revision, self._preemptor, self._states):
            again = self.on(view)
            if again.verdict.verdict in _AGREES:
                detail = {**again.verdict.detail, "lag": view.revision - base}
                reason = f"{again.verdict.verdict} at {view}"
                lag = replace(again.verdict, verdict=VerdictClass.LAG, reason=reason, detail=detail)
                return replace(again, verdict=lag)
        return None


def moment_of(preemption: Preemption) -> int:
    """The time to decide it for, within what can be decided."""
    return min(preemption.at_ms, times.LATEST_NOW)
