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

A scheduler's cache knows its own nominations at once, and what became of its victims only when
the API server tells. So where several pods preempt in one moment, `lag` also stands for a state
with victims as they were and nominations as they came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from policy.audit.observed.comparing import POD_GROUP, Compared, ObservedComparison, comparison_of
from policy.audit.past import Damaged, Past
from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import ENGINE_VERSION, Decision
from policy.observing.model import Preemption, nominated_to
from policy.rules import RuleSet
from policy.store import NotFound, Store, StoreError
from policy.store.observed import ObservedSituation, ObservedVerdict, VerdictClass

LAG_REVISIONS: Final = 8
"""How many revisions earlier and later a scheduler's cache may have stood."""

_MIXED: Final = 24
"""How many mixtures of two states are tried."""

StateAt = Callable[[int], Snapshot]
"""The state at a revision. Raises NotFound, Damaged, StoreError."""


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
    them the rule set takes: where the scheduler began is not known.
    """
    missing = _missing(preemption, situation, rules)
    if missing:
        return Again(verdict=_verdict(VerdictClass.UNKNOWN, rules, missing))
    assert situation.base_revision is not None
    search = _Search(comparison_of(preemption, rules), rules, states, preemption.preemptor)
    first = search.at(situation.base_revision)
    if first.verdict.verdict is not VerdictClass.OTHER:
        return first
    again = search.nearby(situation)
    if again is not None:
        return again
    if rules.extenders:
        reason = (
            f"rule set {rules.name} calls extenders, whose answers of then are not known;"
            f" without them: {first.verdict.reason}"
        )
    elif not situation.exact:
        reason = f"the state just before it is not kept; on the one before: {first.verdict.reason}"
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

    def at(self, revision: int) -> Again:
        """On a state as it was."""
        try:
            snapshot = self._states(revision)
        except (NotFound, Damaged, StoreError) as exc:
            return Again(verdict=_verdict(VerdictClass.UNKNOWN, self._rules, str(exc)))
        return self._again(self._comparison.on(snapshot), revision)

    def nearby(self, situation: ObservedSituation) -> Again | None:
        """On a state a moment earlier or later, or on a mixture of two; None where none agrees."""
        base = situation.base_revision
        assert base is not None
        for revision in _around(situation):
            again = self.at(revision)
            if again.verdict.verdict in _AGREES:
                reason = f"{again.verdict.verdict} at revision {revision}"
                return _lagging(again, reason, {"lag": revision - base})
        for revision, changes in islice(self._mixtures(base, situation.last_revision), _MIXED):
            compared = self._comparison.on(self._states(revision).apply(changes))
            if compared.verdict in _AGREES:
                pods = sorted(key for _, key, _ in changes)
                again = self._again(compared, revision)
                reason = (
                    f"{compared.verdict} at revision {revision}, where the scheduler had"
                    f" nominated {', '.join(pods)} already"
                )
                more = {"lag": revision - base, "nominated": _nodes(changes)}
                return _lagging(again, reason, more)
        return None

    def _again(self, compared: Compared, revision: int) -> Again:
        verdict = _verdict(
            compared.verdict,
            self._rules,
            compared.reason,
            detail={"revision": revision, **compared.detail},
            pdb_violating=compared.pdb_violating,
        )
        return Again(verdict=verdict, decision=compared.decision, revision=revision)

    def _mixtures(self, base: int, last: int | None) -> Iterator[tuple[int, list[Change]]]:
        """Earlier states, each with nominations that the API server got to know later.

        They come in the order in which they were made known: the first of them, the first two...
        """
        latest = max(base, last or base) + LAG_REVISIONS
        for revision in range(base, max(0, base - LAG_REVISIONS - 1), -1):
            changes: list[Change] = []
            for later in range(revision + 1, latest + 1):
                found = self._nomination(revision, later, {key for _, key, _ in changes})
                if found:
                    changes = [*changes, *found]
                    yield revision, changes

    def _nomination(self, revision: int, later: int, known: set[str]) -> list[Change]:
        """Pods that wait in the earlier state and are nominated in the later one."""
        try:
            before, after = self._states(revision), self._states(later)
        except (NotFound, Damaged, StoreError):
            return []
        found: list[Change] = []
        for row in np.flatnonzero(after.nominated >= 0).tolist():
            key, pod = after.keys[row], after.pods[row]
            then = before.pod(key)
            if pod is None or then is None or key == self._preemptor or key in known:
                continue
            if nominated_to(pod) and not then.spec.node_name and not nominated_to(then):
                found.append(("Pod", key, pod))
        return found


def _around(situation: ObservedSituation) -> Iterator[int]:
    base = situation.base_revision
    assert base is not None
    for distance in range(1, LAG_REVISIONS + 1):
        if base - distance >= 1:
            yield base - distance
        # Later than its own last effect its cache did not decide.
        if situation.last_revision is not None and base + distance < situation.last_revision:
            yield base + distance


def _lagging(again: Again, reason: str, more: dict[str, Any]) -> Again:
    detail = {**again.verdict.detail, **more}
    lag = replace(again.verdict, verdict=VerdictClass.LAG, reason=reason, detail=detail)
    return replace(again, verdict=lag)


def _nodes(changes: list[Change]) -> dict[str, str]:
    """Node by pod."""
    return {key: nominated_to(pod) for _, key, pod in changes if isinstance(pod, Pod)}


def moment_of(preemption: Preemption) -> int:
    """The time to decide it for, within what can be decided."""
    return min(preemption.at_ms, times.LATEST_NOW)
