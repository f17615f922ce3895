"""What would follow from a change, before anybody makes it: the cascade of decisions.

A pod that is evicted comes back: its controller makes it again, pending, with its priority and
its age. That pod may preempt in turn. Members of a pod group are tried together where the rules do
so, and once more when the group's victims are gone. Pure: a snapshot and rules in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from policy.audit.supposed_groups import GroupChange
from policy.cluster.digest import Change
from policy.cluster.members import Members, groups_of
from policy.cluster.objects import ObjectMeta, Pod, PriorityClass, SchedulingPodGroup, key_of
from policy.cluster.pod_groups import KIND as POD_GROUP
from policy.cluster.pod_groups import group_key
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Decision, Outcome, Victim
from policy.groups.decide import decide_group
from policy.preemption.columns import owner_of
from policy.preemption.decide import decide
from policy.preemption.tally import Tally
from policy.rules import RuleSet
from policy.scheduling.consequences import departures, next_life
from policy.scheduling.disruption import with_budgets
from policy.scheduling.effects import changes_of
from policy.scheduling.group_effects import changes_of_group
from policy.scheduling.order import QueueHead, arrival_ms, head_of
from policy.scheduling.queue import SchedulingQueue

_NOT_REPLACED: Final = ("DaemonSet/", "Node/")
"""Owners whose pods belong to one node: they do not come back when the node is gone."""


class WhatIfError(Exception):  # told to people in the words of its message
    """The supposition does not go with the cluster."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposition:
    """What is supposed to be different."""

    pods: Sequence[Pod] = ()  #: that wait as well
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """Classes with another value; one that the cluster does not know is a new one."""
    removed_nodes: Sequence[str] = ()
    groups: Sequence[SchedulingPodGroup] = ()  #: that are there as well
    group_changes: Sequence[GroupChange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposed:
    """The cluster under a supposition."""

    snapshot: Snapshot
    changes: tuple[Change, ...]  #: what is different
    waiting: tuple[str, ...]  #: pods that have to find a node because of it


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


def step_line(step: CascadeStep, *, decision_id: int | None = None) -> dict[str, Any]:
    """A step for people and programs; decision_id: under which its decision was recorded."""
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


def suppose(snapshot: Snapshot, supposition: Supposition) -> Supposed:
    """The snapshot with everything supposed. Raises WhatIfError."""
    changes: list[Change] = []
    waiting: list[str] = []
    for name, value in supposition.priority_classes.items():
        changes += _revalued(snapshot, name, value)
    changed = {key: obj for kind, key, obj in changes if kind == "Pod"}
    changes += _regrouped(snapshot, supposition, changes)
    regrouped = {change.group for change in supposition.group_changes}
    for name in supposition.removed_nodes:
        if name not in snapshot.nodes.index:
            raise WhatIfError(f"there is no node `{name}` in the cluster", help=_close(snapshot))
        changes.append(("Node", name, None))
        for key, pod in _pods_on(snapshot, name):
            current = changed.get(key, pod)
            assert isinstance(current, Pod)
            changes.append(("Pod", key, None))
            owner = owner_of(pod)
            if owner and not owner.startswith(_NOT_REPLACED) and not _leaving(pod):
                again = next_life(current)
                changes.append(("Pod", key_of(again), again))
                waiting.append(key_of(again))
    for pod in supposition.pods:
        key = key_of(pod)
        if pod.spec.node_name:
            raise WhatIfError(
                f"pod `{key}` is on node `{pod.spec.node_name}` already",
                help="leave out `spec.nodeName`: the question is where it would go",
            )
        if snapshot.pod(key) is not None:
            raise WhatIfError(
                f"the cluster has a pod `{key}`", help="give the new pod another name"
            )
        priority = supposition.priority_classes.get(pod.spec.priority_class_name)
        if priority is not None:
            pod = replace(pod, spec=replace(pod.spec, priority=priority))
        changes.append(("Pod", key, pod))
        waiting.append(key)
    waiting += [
        key
        for _, key, pod in snapshot.in_order()
        if group_key(pod) in regrouped and not pod.spec.node_name and not _leaving(pod)
    ]
    changes = list(with_budgets(snapshot, changes))
    return Supposed(
        snapshot=snapshot.apply(changes), changes=tuple(changes), waiting=tuple(waiting)
    )


def _revalued(snapshot: Snapshot, name: str, value: int) -> list[Change]:
    """The class with its value, known or new, and every pod of it as if created under that."""
    old = snapshot.priority_classes.get(name)
    new = replace(old, value=value) if old else new_class(name, value)
    return [
        ("PriorityClass", name, new),
        *(
            ("Pod", key, replace(pod, spec=replace(pod.spec, priority=value)))
            for _, key, pod in snapshot.in_order()
            if pod.spec.priority_class_name == name
        ),
        *(
            (POD_GROUP, key, replace(group, spec=replace(group.spec, priority=value)))
            for key, group in groups_of(snapshot).items()
            if group.spec.priority_class_name == name
        ),
    ]


def _regrouped(
    snapshot: Snapshot, supposition: Supposition, changes: Sequence[Change]
) -> list[Change]:
    """The groups that are new, and those with another field."""
    known = {**groups_of(snapshot)}
    known |= {key: g for _, key, g in changes if isinstance(g, SchedulingPodGroup)}
    found: dict[str, SchedulingPodGroup] = {}
    for group in supposition.groups:
        key = key_of(group)
        if key in known:
            raise WhatIfError(
                f"the cluster has a pod group `{key}`",
                help="suppose another value of it with `--pod-group`",
            )
        found[key] = group
    for change in supposition.group_changes:
        old = found.get(change.group) or known.get(change.group)
        if old is None:
            names = ", ".join(sorted(known)[:5]) or "none"
            raise WhatIfError(
                f"there is no pod group `{change.group}` in the cluster", help=f"it has: {names}"
            )
        try:
            found[change.group] = change.of(old)
        except ValueError as exc:
            raise WhatIfError(str(exc)) from exc
    return [(POD_GROUP, key, group) for key, group in found.items()]


def new_class(name: str, value: int) -> PriorityClass:
    """A priority class that is only supposed."""
    return PriorityClass(metadata=ObjectMeta(name=name), value=value)


def _close(snapshot: Snapshot) -> str:
    return f"it has {len(snapshot.nodes)} nodes; `policy state show nodes` lists them"


def _pods_on(snapshot: Snapshot, node: str) -> list[tuple[str, Pod]]:
    return [
        (key, pod)
        for _, key, pod in snapshot.in_order()
        if pod.spec.node_name == node and pod.status.phase not in {"Succeeded", "Failed"}
    ]


def _leaving(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp)


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
        while (pod := self._queue.pop()) is not None:
            head = head_of(pod, self._snapshot, self._rules.groups)
            waiting = self._snapshot.pod(pod)
            if head.group and waiting is not None and not waiting.spec.node_name:
                self._next_group(pod, head, self._places[pod])
            else:
                self._next(pod, self._places[pod])
        return self._steps

    def _next_group(self, key: str, head: QueueHead, place: _Place) -> None:
        for row in Members.of(self._snapshot, head.group).tolist():
            self._queue.delete(self._snapshot.keys[row])
        known = groups_of(self._snapshot).get(head.group)
        number = len(self._steps) + 1
        decision = None
        supposed: tuple[tuple[Change, ...], ...] = ()
        budgets: tuple[BudgetMove, ...] = ()
        if place.depth <= self._depth:
            self._look_back()
            decision = decide_group(self._snapshot, self._rules, head.group, seed=self._seed)
            supposed, self._supposed = tuple(self._supposed), []
            before = self._snapshot
            self._suppose(changes_of_group(before, decision))
            if decision.victims:
                self._depart(decision.victims, depth=place.depth + 1, cause=number)
            if decision.outcome is GroupOutcome.PREEMPTING and not place.again:
                self.enqueue(key, with_fields(place, cause=number, again=True))
            budgets = _moves(before, self._snapshot)
        self._steps.append(
            CascadeStep(
                number=number,
                pod=head.group,
                priority=0 if known is None else known.spec.priority or 0,
                depth=place.depth,
                cause=place.cause,
                was=place.was,
                decision=decision,
                supposed=supposed,
                budgets=budgets,
            )
        )

    def _next(self, key: str, place: _Place) -> None:
        pod = self._snapshot.pod(key)
        number = len(self._steps) + 1
        decision = None
        supposed: tuple[tuple[Change, ...], ...] = ()
        budgets: tuple[BudgetMove, ...] = ()
        if place.depth <= self._depth:
            self._look_back()
            decision = decide(self._snapshot, self._rules, key, seed=self._seed)
            self._tally.note(decision)
            supposed, self._supposed = tuple(self._supposed), []
            before = self._snapshot
            self._suppose(changes_of(before, decision))
            if decision.outcome is Outcome.PREEMPT:
                self._follow(decision, depth=place.depth + 1, cause=number)
            budgets = _moves(before, self._snapshot)
        self._steps.append(
            CascadeStep(
                number=number,
                pod=key,
                priority=0 if pod is None else pod.spec.priority or 0,
                depth=place.depth,
                cause=place.cause,
                was=place.was,
                decision=decision,
                supposed=supposed,
                budgets=budgets,
            )
        )

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
