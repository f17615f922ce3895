"""What follows when pods look for nodes: the decisions, and those of the pods that they evict.

A pod that is evicted comes back: its controller makes it again, pending, with its priority and
its age. That pod may preempt in turn. Members of a pod group are tried together where the rules do
so, and once more when the group's victims are gone. Pure: a snapshot and rules in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.members import Members, groups_of
from policy.cluster.objects import key_of
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Decision, Outcome, Victim
from policy.groups.decide import decide_group
from policy.preemption.decide import decide
from policy.preemption.tally import Tally
from policy.rules import RuleSet
from policy.scheduling.consequences import departures, next_life
from policy.scheduling.disruption import with_budgets
from policy.scheduling.effects import changes_of
from policy.scheduling.group_effects import changes_of_group
from policy.scheduling.order import arrival_ms, head_of
from policy.scheduling.queue import SchedulingQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetMove:
    """A disruption budget that allows another number of disruptions than before."""

    budget: str  #: namespace/name
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeStep:
    """A pod or pod group that looks for nodes, in the order in which they are scheduled."""

    number: int
    pod: str  #: namespace/name of the pod, or of the group
    priority: int
    depth: int  #: 1 for what was asked
    cause: int | None  #: number of the step of whose victims the pod is one
    was: str  #: the victim whose next life the pod is; "" for what was asked
    decision: Decision | GroupDecision | None  #: None beyond the depth that was asked for
    #: what had been changed since the decision before, one change after the other
    supposed: tuple[tuple[Change, ...], ...] = ()
    budgets: tuple[BudgetMove, ...] = ()  #: what the disruption controller then makes of them


def step_line(step: CascadeStep, *, decision_id: int | str | None = None) -> dict[str, Any]:
    """A step for people and programs; decision_id: what names its decision, if it was recorded."""
    decision = step.decision
    node = decision.node if isinstance(decision, Decision) else None
    leaves = decision is not None and (node is not None or not isinstance(decision, Decision))
    return {
        "step": step.number,
        "cause": step.cause,
        "depth": step.depth,
        "pod": step.pod,
        "was": step.was,
        "priority": step.priority,
        "outcome": decision.outcome.value if decision else None,
        "node": node,
        "victims": [v.pod for v in decision.victims] if decision is not None and leaves else [],
        "decision": decision_id,
        "digest": decision.digest if decision else None,
        "budgets": to_builtins(step.budgets),
    }


def with_members(snapshot: Snapshot, rules: RuleSet, keys: Iterable[str]) -> Iterator[str]:
    """The pods; in place of a pod group its pending members."""
    known = groups_of(snapshot) if rules.groups is not None else {}
    for key in keys:
        if key in known and snapshot.pod(key) is None:
            rows = Members.of(snapshot, key)
            yield from (snapshot.keys[r] for r in rows.tolist() if snapshot.node[r] < 0)
        else:
            yield key


def foresee(
    snapshot: Snapshot, rules: RuleSet, pods: Iterable[str], *, depth: int, seed: int
) -> list[CascadeStep]:
    """The decisions that follow when the pods look for a node, in the order of the rules' queue.

    Each pod is decided once, with its group where the rules schedule groups. Victims are gone at
    once, and the preemptor takes their place; victims that were not leaving anyway come back as new
    pods, whose decisions follow down to `depth` (1: only the pods themselves). A group that
    preempts is tried again when its victims are gone: its members may have no nomination to take
    their place by. Raises DecisionError for a pod that is unknown or placed.
    """
    cascade = _Cascade(snapshot, rules, depth=depth, seed=seed)
    for pod in sorted(set(pods)):
        cascade.enqueue(pod, _Place(depth=1, cause=None, was=""))
    return cascade.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a pod stands in the cascade."""

    depth: int
    cause: int | None
    was: str
    again: bool = False  #: a group whose victims are gone


class _Cascade:
    """The state between two steps."""

    def __init__(self, snapshot: Snapshot, rules: RuleSet, *, depth: int, seed: int) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._depth = depth
        self._seed = seed
        self._recorded = snapshot.history
        self._tally = Tally()
        self._queue = SchedulingQueue(rules.queue)
        self._order = rules.queue.order
        self._places: dict[str, _Place] = {}
        self._supposed: list[tuple[Change, ...]] = []
        self._steps: list[CascadeStep] = []

    def enqueue(self, key: str, place: _Place) -> None:
        pod, now_ms = self._snapshot.pod(key), self._snapshot.now_ms
        self._places[key] = place
        self._queue.add(
            key,
            priority=0 if pod is None else pod.spec.priority or 0,
            now_ms=now_ms if pod is None else arrival_ms(pod, now_ms=now_ms, order=self._order),
        )

    def run(self) -> list[CascadeStep]:
        while (key := self._queue.pop()) is not None:
            head = head_of(key, self._snapshot, self._rules.groups)
            waiting = self._snapshot.pod(key)
            in_group = head.group and waiting is not None and not waiting.spec.node_name
            self._steps.append(self._step(key, head.group if in_group else "", self._places[key]))
        return self._steps

    def _step(self, key: str, group: str, place: _Place) -> CascadeStep:
        """What becomes of the pod, or of the whole group where there is one."""
        if group:
            for row in Members.of(self._snapshot, group).tolist():
                self._queue.delete(self._snapshot.keys[row])
        asking = groups_of(self._snapshot).get(group) if group else self._snapshot.pod(key)
        step = CascadeStep(
            number=len(self._steps) + 1,
            pod=group or key,
            priority=0 if asking is None else asking.spec.priority or 0,
            depth=place.depth,
            cause=place.cause,
            was=place.was,
            decision=None,
        )
        if place.depth > self._depth:
            return step
        self._look_back()
        supposed, self._supposed = tuple(self._supposed), []
        before = self._snapshot
        decision = self._decide_group(step, key, place) if group else self._decide_pod(step)
        return with_fields(
            step, decision=decision, supposed=supposed, budgets=_moves(before, self._snapshot)
        )

    def _decide_group(self, step: CascadeStep, key: str, place: _Place) -> GroupDecision:
        decision = decide_group(self._snapshot, self._rules, step.pod, seed=self._seed)
        self._tally.note_group(decision)
        self._suppose(changes_of_group(self._snapshot, decision))
        if decision.victims:
            self._depart(decision.victims, depth=step.depth + 1, cause=step.number)
        if decision.outcome is GroupOutcome.PREEMPTING and not place.again:
            self.enqueue(key, with_fields(place, cause=step.number, again=True))
        return decision

    def _decide_pod(self, step: CascadeStep) -> Decision:
        decision = decide(self._snapshot, self._rules, step.pod, seed=self._seed)
        self._tally.note(decision)
        self._suppose(changes_of(self._snapshot, decision))
        if decision.outcome is Outcome.PREEMPT:
            self._follow(decision, depth=step.depth + 1, cause=step.number)
        return decision

    def _look_back(self) -> None:
        """History figures count what happened in the cascade as well."""
        if self._recorded is not None:
            now_ms, needs = self._snapshot.now_ms, self._rules.history_needs
            history = self._tally.added_to(self._recorded, needs, now_ms=now_ms)
            self._snapshot = self._snapshot.at(now_ms, history=history)

    def _suppose(self, changes: Sequence[Change]) -> None:
        every = with_budgets(self._snapshot, changes)
        self._supposed.append(every)
        self._snapshot = self._snapshot.apply(every)

    def _follow(self, decision: Decision, *, depth: int, cause: int) -> None:
        """The victims' grace periods are over: they come back, and the preemptor is placed."""
        preemptor = self._snapshot.pod(decision.preemptor)
        assert preemptor is not None  # it has just decided
        placed = replace(
            preemptor,
            spec=replace(preemptor.spec, node_name=decision.node or ""),
            status=replace(preemptor.status, nominated_node_name=""),
        )
        self._depart(
            decision.victims,
            ("Pod", decision.preemptor, placed),
            depth=depth,
            cause=cause,
        )

    def _depart(self, victims: Sequence[Victim], *also: Change, depth: int, cause: int) -> None:
        leaving = {victim.pod for victim in victims if victim.already_terminating}
        gone = departures(
            self._snapshot,
            (victim.pod for victim in victims),
            again=lambda pod: None if key_of(pod) in leaving else next_life(pod),
        )
        self._suppose((*gone.changes, *also))
        for key, was in sorted(gone.returned):
            self.enqueue(key, _Place(depth=depth, cause=cause, was=was))


def _moves(before: Snapshot, after: Snapshot) -> tuple[BudgetMove, ...]:
    known = {key_of(budget): budget.status.disruptions_allowed for budget in before.budgets}
    return tuple(
        BudgetMove(budget=key, before=known[key], after=budget.status.disruptions_allowed)
        for budget in sorted(after.budgets, key=key_of)
        if known.get(key := key_of(budget)) not in (None, budget.status.disruptions_allowed)
    )
