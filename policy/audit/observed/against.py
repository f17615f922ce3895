"""Observed preemptions set against other rules: what these would have done, and the sums of it.

The figures with which a team argues for enforcing its rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from policy.audit.observed.again import AgainDecider, CannotDecide
from policy.cluster import times
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Decision, Outcome, Victim
from policy.rules import RuleSet
from policy.store import Store
from policy.store.observed import ObservationRow, VerdictClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """An observed preemption, and what other rules would have done."""

    observation: ObservationRow
    outcome: str  #: of the other rules; "" where they cannot be asked
    node: str
    victims: tuple[str, ...]  #: that the other rules would evict
    violating: frozenset[str]  #: those of them whose eviction would violate a budget
    detail: str  #: why nothing could be decided, or what the rules say

    @property
    def theirs(self) -> frozenset[str]:
        """Pods that the scheduler evicted, and that no other observation counts."""
        answered = self.observation.verdict == VerdictClass.ANSWERED
        return frozenset(v.victim for v in self.observation.victims if v.counted or answered)

    @property
    def avoided(self) -> int:
        """How many evictions fewer; below zero where it is more."""
        return len(self.theirs) - len(self.victims) if self.outcome else 0

    @property
    def kept(self) -> tuple[str, ...]:
        """Pods that were evicted and would have stayed."""
        return tuple(sorted(self.theirs - set(self.victims))) if self.outcome else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSum:
    """The difference that other rules would have made to one namespace in one week."""

    week: str  #: the Monday, UTC; "" for the sum of all
    namespace: str  #: of the victims; "" for the sum of all
    evictions: int  #: that took place
    would_be: int  #: under the other rules
    avoided: int  #: how many fewer; below zero where it would have been more
    spared: int  #: pods that would have stayed
    others: int  #: pods that would have left in their place
    seconds_saved: int  #: run time that the pods would have kept that would have stayed
    pdb_violations: int  #: that took place, as far as it is known
    pdb_violations_would_be: int
    budgets_kept: int  #: how many violations fewer


NONE: Final = frozenset[str]()


def compare(store: Store, rows: Sequence[ObservationRow], rules: RuleSet) -> Iterator[ComparedRow]:
    """What other rules would have done about each observed preemption, oldest first."""
    decider = AgainDecider(store)
    in_order = sorted(rows, key=lambda row: (row.cluster, row.base_revision or 0, row.id))
    for row in in_order:
        try:
            decision, snapshot = decider.decide(row, rules)
        except CannotDecide as exc:
            yield ComparedRow(
                observation=row, outcome="", node="", victims=(), violating=NONE, detail=str(exc)
            )
            continue
        gone = _evicted(decision, snapshot)
        if isinstance(decision, GroupDecision):
            node, message = "", decision.message
        else:
            node, message = decision.node or "", decision.trace.message
        yield ComparedRow(
            observation=row,
            outcome=str(decision.outcome),
            node=node,
            victims=tuple(sorted(victim.pod for victim in gone)),
            violating=frozenset(victim.pod for victim in gone if victim.pdb_violating),
            detail="" if gone else message,
        )


def _evicted(decision: Decision | GroupDecision, snapshot: Snapshot) -> list[Victim]:
    """The victims that it newly evicts."""
    preempts = (
        decision.outcome is GroupOutcome.PREEMPTING
        if isinstance(decision, GroupDecision)
        else decision.outcome is Outcome.PREEMPT
    )
    return [
        victim
        for victim in decision.victims
        if preempts and not victim.already_terminating and snapshot.pod(victim.pod) is not None
    ]


def sums(compared: Iterable[ComparedRow]) -> list[ComparedSum]:
    """The difference by week and namespace of the victims; what cannot be decided is left out."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in compared:
        if not row.outcome:
            continue
        week = _week(row.observation.now_ms)
        victims = {victim.victim: victim for victim in row.observation.victims}
        for pod in row.theirs:
            line = found[week, pod.partition("/")[0]]
            stays = pod not in row.victims
            line["evictions"] += 1
            line["spared"] += stays
            line["seconds_saved"] += victims[pod].run_seconds if stays else 0
            line["pdb_violations"] += bool(victims[pod].pdb_violating)
        for pod in row.victims:
            line = found[week, pod.partition("/")[0]]
            line["would_be"] += 1
            line["others"] += pod not in row.theirs
            line["pdb_violations_would_be"] += pod in row.violating
    return [_sum(week, namespace, line) for (week, namespace), line in sorted(found.items())]


def total(lines: Sequence[ComparedSum]) -> ComparedSum:
    """All of them together."""
    return _sum("", "", {name: sum(getattr(line, name) for line in lines) for name in _COUNTED})


_COUNTED: Final = (
    "evictions",
    "would_be",
    "spared",
    "others",
    "seconds_saved",
    "pdb_violations",
    "pdb_violations_would_be",
)


def _sum(week: str, namespace: str, counted: Mapping[str, int]) -> ComparedSum:
    values = {name: counted.get(name, 0) for name in _COUNTED}
    return ComparedSum(
        week=week,
        namespace=namespace,
        avoided=values["evictions"] - values["would_be"],
        budgets_kept=values["pdb_violations"] - values["pdb_violations_would_be"],
        **values,
    )


def _week(now_ms: int) -> str:
    at = times.to_datetime(now_ms)
    assert at is not None
    return str((at - timedelta(days=at.weekday())).date())
