"""What would follow from a change, before anybody makes it: the cascade of decisions.

A pod that is evicted comes back: its controller makes it again, pending, with its priority and
its age. That pod may preempt in turn. Pure: a snapshot and rules in, decisions out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import ObjectMeta, Pod, PodStatus, PriorityClass, key_of
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.preemption.columns import owner_of
from policy.preemption.decide import decide
from policy.preemption.tally import Tally
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of

LIFE: Final = "~"
"""Between a pod's name and the number of its life: no pod of a real cluster is named so."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposed:
    """The cluster under a supposition."""

    snapshot: Snapshot
    waiting: tuple[str, ...]  #: pods that have to find a node because of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One pod that looks for a node, in the order in which the scheduler would take them."""

    number: int
    pod: str
    priority: int
    depth: int  #: 1 for what was asked
    cause: int | None  #: number of the step of whose victims the pod is one
    was: str  #: the victim whose next life the pod is; "" for what was asked
    decision: Decision | None  #: None beyond the depth that was asked for
    history: Mapping[str, Mapping[str, int]] | None = None  #: the figures that it was made with


def suppose(snapshot: Snapshot, supposition: Supposition) -> Supposed:
    """The snapshot with everything supposed. Raises WhatIfError."""
    changes: list[Change] = []
    waiting: list[str] = []
    for name, value in supposition.priority_classes.items():
        changes += _revalued(snapshot, name, value)
    changed = {key: obj for kind, key, obj in changes if kind == "Pod"}
    for name in supposition.removed_nodes:
        if name not in snapshot.nodes.index:
            raise WhatIfError(f"there is no node `{name}` in the cluster", help=_close(snapshot))
        changes.append(("Node", name, None))
        for key, pod in _pods_on(snapshot, name):
            current = changed.get(key, pod)
            assert isinstance(current, Pod)
            changes.append(("Pod", key, None))
            if not owner_of(pod).startswith(_NOT_REPLACED) and not _leaving(pod):
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
    return Supposed(snapshot=snapshot.apply(changes), waiting=tuple(waiting))


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
    ]


def new_class(name: str, value: int) -> PriorityClass:
    """A priority class that nobody has made yet."""
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


def next_life(pod: Pod) -> Pod:
    """The pod as its controller makes it again: pending, of the same priority and age.

    It keeps its creation time, so that it stands in the queue where it stood.
    """
    meta = pod.metadata
    name, _, life = meta.name.partition(LIFE)
    again: ObjectMeta = replace(
        meta, name=f"{name}{LIFE}{int(life or 1) + 1}", uid="", deletion_timestamp=None
    )
    return replace(
        pod,
        metadata=again,
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending"),
    )


def foresee(
    snapshot: Snapshot, rules: RuleSet, pods: Iterable[str], *, depth: int, seed: int
) -> list[Step]:
    """The decisions that follow when the pods look for a node, in queue order.

    Victims are gone at once, and the preemptor takes their place; victims that were not leaving
    anyway come back as new pods, whose decisions follow down to `depth` (1: only the pods
    themselves). Higher priority first, then the older pod. Raises DecisionError for a pod that
    is unknown or placed.
    """
    run = _Run(snapshot, rules, depth=depth, seed=seed)
    for pod in dict.fromkeys(pods):
        run.enqueue(pod, depth=1, cause=None, was="")
    while run.queue:
        run.next()
    return run.steps


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    """A place in the queue; the order of the fields is the order of the queue."""

    below: int  # the priority, negated
    arrival: int
    pod: str
    depth: int = field(compare=False)
    cause: int | None = field(compare=False)
    was: str = field(compare=False)


class _Run:
    """The state between two steps."""

    def __init__(self, snapshot: Snapshot, rules: RuleSet, *, depth: int, seed: int) -> None:
        self.snapshot = snapshot
        self.rules = rules
        self.depth = depth
        self.seed = seed
        self.recorded = snapshot.history
        self.tally = Tally()
        self.queue: list[_Waiting] = []
        self.steps: list[Step] = []

    def enqueue(self, key: str, *, depth: int, cause: int | None, was: str) -> None:
        pod = self.snapshot.pod(key)
        priority, created = 0, times.MISSING
        if pod is not None:
            priority = pod.spec.priority or 0
            created = times.parse_optional(pod.metadata.creation_timestamp)
        # As in the queue itself, a pod without creation time counts as arriving now.
        arrival = self.snapshot.now_ms if created == times.MISSING else created
        waiting = _Waiting(-priority, arrival, key, depth, cause, was)
        heapq.heappush(self.queue, waiting)

    def next(self) -> None:
        waiting = heapq.heappop(self.queue)
        number = len(self.steps) + 1
        decision = None
        if waiting.depth <= self.depth:
            self._look_back()
            decision = decide(self.snapshot, self.rules, waiting.pod, seed=self.seed)
            self.tally.note(decision)
        self.steps.append(
            Step(
                number=number,
                pod=waiting.pod,
                priority=-waiting.below,
                depth=waiting.depth,
                cause=waiting.cause,
                was=waiting.was,
                decision=decision,
                history=self.snapshot.history,
            )
        )
        if decision is not None:
            self._follow(number, waiting, decision)

    def _look_back(self) -> None:
        """History figures count what happened in the cascade as well."""
        if self.recorded is not None:
            now_ms, needs = self.snapshot.now_ms, self.rules.history_needs
            history = self.tally.added_to(self.recorded, needs, now_ms=now_ms)
            self.snapshot = self.snapshot.at(now_ms, history=history)

    def _follow(self, number: int, waiting: _Waiting, decision: Decision) -> None:
        """Make the decision true, as if the victims' grace periods were over."""
        after = self.snapshot.apply(changes_of(self.snapshot, decision))
        if decision.outcome is not Outcome.PREEMPT:
            self.snapshot = after
            return
        changes: list[Change] = []
        back: list[tuple[str, str]] = []
        for victim in decision.victims:
            changes.append(("Pod", victim.pod, None))
            pod = self.snapshot.pod(victim.pod)
            if pod is not None and not victim.already_terminating:
                again = next_life(pod)
                changes.append(("Pod", key_of(again), again))
                back.append((key_of(again), victim.pod))
        preemptor = after.pod(decision.preemptor)
        assert preemptor is not None  # it has just decided
        placed = replace(
            preemptor,
            spec=replace(preemptor.spec, node_name=decision.node or ""),
            status=replace(preemptor.status, nominated_node_name=""),
        )
        changes.append(("Pod", decision.preemptor, placed))
        self.snapshot = after.apply(changes)
        for key, was in back:
            self.enqueue(key, depth=waiting.depth + 1, cause=number, was=was)
