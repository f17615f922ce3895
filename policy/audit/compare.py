"""What other rules would have decided, on the states on which decisions were made.

Every decision is judged on the state it was really made on: a comparison says what the other
rules think of each situation that arose, not how the cluster would have gone on under them.
Nothing here reads a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupOutcome
from policy.decision.model import Decision, Outcome
from policy.extenders.protocol import Extenders
from policy.preemption.decide import decide
from policy.preemption.offers import Offer
from policy.rules import RuleSet


class DecisionChange(StrEnum):
    """How the other rules' decision differs. Values are part of the output."""

    SAME = "same"
    OTHER_NODE = "other-node"
    OTHER_VICTIMS = "other-victims"
    OTHER_NOMINATIONS = "other-nominations"
    NOW_FITS = "fits-without-preemption"
    NOW_PREEMPTS = "needs-preemption"
    NO_LONGER_POSSIBLE = "no-longer-possible"
    NEWLY_POSSIBLE = "newly-possible"
    OTHER_REASON = "other-reason"

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    DecisionChange.SAME: "same node, same victims",
    DecisionChange.OTHER_NODE: "another node",
    DecisionChange.OTHER_VICTIMS: "same node, other victims",
    DecisionChange.OTHER_NOMINATIONS: "same victims, other members of the group are nominated",
    DecisionChange.NOW_FITS: "fits without preemption; preempted before",
    DecisionChange.NOW_PREEMPTS: "preempts; fitted before",
    DecisionChange.NO_LONGER_POSSIBLE: "finds no node; found one before",
    DecisionChange.NEWLY_POSSIBLE: "finds a node; found none before",
    DecisionChange.OTHER_REASON: "finds no node either way, for another reason",
}


class AnyVictim(Protocol):
    """What the engine's and the store's victims have in common."""

    @property
    def pod(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def run_seconds(self) -> int: ...
    @property
    def pdb_violating(self) -> bool: ...
    @property
    def already_terminating(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVictim:
    """A victim, as two rule sets are compared by it."""

    pod: str  #: namespace/name
    priority: int
    lost_seconds: int  #: from its start to the decision; 0 where it was leaving already
    pdb_violating: bool

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult:
    """What a decision came to, without how."""

    outcome: Outcome | GroupOutcome
    node: str | None  #: None for a group, whose members have nodes of their own
    victims: tuple[ComparedVictim, ...]
    decided_by: str  #: ranking criterion that left one candidate; "" with fewer than two
    message: str

    @staticmethod
    def of(
        *,
        outcome: Outcome,
        node: str | None,
        victims: Iterable[AnyVictim],
        decided_by: str,
        message: str,
    ) -> DecisionResult:
        """`victims` count only where they leave: where the outcome is a preemption."""
        return DecisionResult(
            outcome=outcome,
            node=node,
            victims=tuple(
                ComparedVictim(
                    pod=victim.pod,
                    priority=victim.priority,
                    lost_seconds=0 if victim.already_terminating else victim.run_seconds,
                    pdb_violating=victim.pdb_violating,
                )
                for victim in (victims if outcome is Outcome.PREEMPT else ())
            ),
            decided_by=decided_by,
            message=message,
        )

    @property
    def placed(self) -> bool:
        """Does the pod get a node, or the group start, at once or by preemption?"""
        return self.outcome in _FITS or self.preempts

    @property
    def preempts(self) -> bool:
        """Do victims make room?"""
        return self.outcome in (Outcome.PREEMPT, GroupOutcome.PREEMPTING)

    @property
    def places(self) -> object:
        """Where it goes."""
        return self.node

    @property
    def promises(self) -> object:
        """Which members of a group are nominated, and where."""
        return None


_FITS: Final = (Outcome.BIND, GroupOutcome.SCHEDULED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuestion:
    """A decision that was made, with the state on which it was made."""

    id: int
    snapshot: Snapshot
    preemptor: str
    priority: int
    seed: int
    before: DecisionResult
    extenders: Extenders | None = None  #: the answers of then, where the same rules decide
    offer: Offer | None = None  #: what a scheduler offered to choose from


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One decision, or the cycle of a pod group, under both rule sets."""

    id: int | str  #: number of a decision, or `group:` and that of a cycle
    now_ms: int
    preemptor: str
    priority: int
    change: DecisionChange
    before: DecisionResult
    after: DecisionResult

    @property
    def namespace(self) -> str:
        return self.preemptor.partition("/")[0]


def result_of(decision: Decision) -> DecisionResult:
    """What a decision of the engine came to."""
    return DecisionResult.of(
        outcome=decision.outcome,
        node=decision.node,
        victims=decision.victims,
        decided_by=decision.trace.decided_by,
        message=decision.trace.message,
    )


def compare(questions: Iterable[RecordedQuestion], rules: RuleSet) -> Iterator[Comparison]:
    """Decide every question again under other rules, with the seed that was used."""
    for question in questions:
        decision = decide(
            question.snapshot,
            rules,
            question.preemptor,
            seed=question.seed,
            extenders=question.extenders,
            offer=question.offer,
        )
        after = result_of(decision)
        yield Comparison(
            id=question.id,
            now_ms=question.snapshot.now_ms,
            preemptor=question.preemptor,
            priority=question.priority,
            change=change_of(question.before, after),
            before=question.before,
            after=after,
        )


def change_of(before: DecisionResult, after: DecisionResult) -> DecisionChange:
    """In what two results differ; the order of victims does not count."""
    if before.placed != after.placed:
        return DecisionChange.NEWLY_POSSIBLE if after.placed else DecisionChange.NO_LONGER_POSSIBLE
    others = {v.pod for v in before.victims} != {v.pod for v in after.victims}
    if not before.placed:
        if before.outcome is not after.outcome:
            return DecisionChange.OTHER_REASON
        # Members of a group that preempt for themselves may do so in vain.
        return DecisionChange.OTHER_VICTIMS if others else DecisionChange.SAME
    if before.outcome is not after.outcome:
        return DecisionChange.NOW_PREEMPTS if after.preempts else DecisionChange.NOW_FITS
    if before.places != after.places:
        return DecisionChange.OTHER_NODE
    if others:
        return DecisionChange.OTHER_VICTIMS
    return (
        DecisionChange.SAME
        if before.promises == after.promises
        else DecisionChange.OTHER_NOMINATIONS
    )


# --- sums --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Losses:
    """What preemption cost, under one rule set."""

    preemptions: int = 0
    victims: int = 0
    pdb_violations: int = 0
    lost_seconds: int = 0

    def add(self, result: DecisionResult) -> None:
        self.preemptions += result.preempts
        for victim in result.victims:
            self.add_victim(victim)

    def add_victim(self, victim: ComparedVictim) -> None:
        self.victims += 1
        self.pdb_violations += victim.pdb_violating
        self.lost_seconds += victim.lost_seconds


@dataclass(slots=True, kw_only=True)
class Group:
    """A part of the decisions, or all of them, under both rule sets."""

    decisions: int = 0
    changed: int = 0
    before: Losses
    after: Losses


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSummary:
    """All comparisons summed up. Groups are in order of their keys."""

    total: Group
    changes: Mapping[DecisionChange, int]
    by_namespace: Mapping[str, Group]  #: of the preemptor
    by_priority: Mapping[int, Group]  #: of the preemptor
    by_victim_namespace: Mapping[str, Group]  #: decisions and changes are not counted here
    by_victim_priority: Mapping[int, Group]


def summarise(comparisons: Iterable[Comparison]) -> ComparisonSummary:
    """The sums over all comparisons, by namespace and priority of who preempts and who leaves."""
    total = _group()
    changes = dict.fromkeys(DecisionChange, 0)
    namespaces: dict[str, Group] = {}
    priorities: dict[int, Group] = {}
    victim_namespaces: dict[str, Group] = {}
    victim_priorities: dict[int, Group] = {}
    for comparison in comparisons:
        changes[comparison.change] += 1
        for group in (
            total,
            namespaces.setdefault(comparison.namespace, _group()),
            priorities.setdefault(comparison.priority, _group()),
        ):
            group.decisions += 1
            group.changed += comparison.change is not DecisionChange.SAME
            group.before.add(comparison.before)
            group.after.add(comparison.after)
        for side in ("before", "after"):
            for victim in getattr(comparison, side).victims:
                by_name = victim_namespaces.setdefault(victim.namespace, _group())
                by_value = victim_priorities.setdefault(victim.priority, _group())
                getattr(by_name, side).add_victim(victim)
                getattr(by_value, side).add_victim(victim)
    return ComparisonSummary(
        total=total,
        changes=changes,
        by_namespace=_sorted(namespaces),
        by_priority=_sorted(priorities),
        by_victim_namespace=_sorted(victim_namespaces),
        by_victim_priority=_sorted(victim_priorities),
    )


def _group() -> Group:
    return Group(before=Losses(), after=Losses())


def _sorted(groups: Mapping[Any, Group]) -> Mapping[Any, Group]:
    return dict(sorted(groups.items()))
