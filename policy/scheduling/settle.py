"""Let a cluster settle: victims leave, preemptors get their place, evicted pods come back.

A simulation on a virtual clock. Every cycle is a decision like any other and is kept in the
journal; what is not decided (a victim is gone, a pod has started, an evicted pod is created anew by
its owner) is a change of state with its own cause. It ends when nothing more will happen: no pod
is active or in backoff, and none is leaving. What others change meanwhile takes part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import TERMINATING
from policy.decision.model import Outcome
from policy.rules.ruleset import RuleSet
from policy.scheduling.consequences import created_anew, departures, started
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.scheduling.disruption import budgets_after, with_budgets
from policy.scheduling.loop import DecisionLoop
from policy.scheduling.order import DEFAULT_SCHEDULER
from policy.scheduling.state import Transition

SOURCE: Final = "settle"
"""Source of the revisions that are written between two cycles, of single decisions or sessions."""


class VirtualClock:
    """Milliseconds since 1970 UTC that pass only when they are set."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How the simulation ended."""

    end_ms: int
    cycles: int
    finished: bool  #: False where the limit of cycles ended it
    waiting: tuple[str, ...]  #: pods that have no place


class Settler(DecisionLoop):
    """One simulation; iterate over it for its cycles, then read `result`."""

    def __init__(
        self,
        scheduler: Scheduler,
        rules: RuleSet,
        clock: VirtualClock,
        *,
        name: str = DEFAULT_SCHEDULER,
        max_cycles: int,
    ) -> None:
        """clock: the one that the scheduler reads too."""
        super().__init__(scheduler, rules, clock=clock, name=name)
        self._virtual = clock
        self._max_cycles = max_cycles
        self._leaving: list[tuple[int, int, str]] = []
        self._sequence = count()
        self._cycles = 0
        self._finished = False
        self._budgets: list[Change] = []
        snapshot = scheduler.snapshot
        leaving = snapshot.column(TERMINATING) & (snapshot.node >= 0)
        for _, key, pod in snapshot.in_order(among=leaving):
            self._expect(key, pod)

    @property
    def result(self) -> Settled:
        return Settled(
            end_ms=self._virtual.now_ms,
            cycles=self._cycles,
            finished=self._finished,
            waiting=self._feed.queue.pods(),
        )

    def _goes_on(self) -> bool:
        return self._cycles < self._max_cycles

    def _decided(self, step: Step) -> None:
        self._cycles += 1
        self._set_budgets()
        if step.decision.outcome is Outcome.BIND:
            self._change(partial(_start, (step.decision.preemptor,), self._virtual.now_ms))

    def _group_decided(self, step: GroupStep) -> None:
        self._cycles += 1
        self._set_budgets()
        if step.decision.effects.bind:
            bound = tuple(step.decision.effects.bind)
            self._change(partial(_start, bound, self._virtual.now_ms))

    def _followed(self, step: Transition) -> None:
        super()._followed(step)
        self._budgets += budgets_after(step.before, step.changes)
        for kind, key, obj in step.changes:
            if kind == "Pod" and isinstance(obj, Pod) and obj.spec.node_name:
                before = step.before.pod(key)
                known = before is not None and before.metadata == obj.metadata
                if obj.metadata.deletion_timestamp and not known:
                    self._expect(key, obj)

    def _expect(self, key: str, pod: Pod) -> None:
        """Remember when a terminating pod will be gone."""
        gone = times.parse_optional(pod.metadata.deletion_timestamp)
        if gone != times.MISSING:
            at = max(gone, self._virtual.now_ms)
            heapq.heappush(self._leaving, (at, next(self._sequence), key))

    def _idle(self) -> bool:
        """Pass the time until something happens; False where nothing will."""
        self._scheduler.refresh()
        self._set_budgets()
        if self._feed.ready():
            return True
        timer = self._feed.queue.next_timer(unschedulable=bool(self._leaving))
        gone = self._leaving[0][0] if self._leaving else None
        instants = [at for at in (timer, gone) if at is not None]
        if not instants:
            self._finished = True
            return False
        now = self._virtual.now_ms = max(self._virtual.now_ms, min(instants))
        due = []
        while self._leaving and self._leaving[0][0] <= now:
            due.append(heapq.heappop(self._leaving)[2])
        if due:
            self._change(partial(_depart, due, now))
        self._feed.flush()
        self._feed.time_passed()
        return True

    def _change(self, propose: Callable[[Snapshot], Sequence[Change]]) -> None:
        def followed(snapshot: Snapshot) -> Sequence[Change]:
            return with_budgets(snapshot, propose(snapshot))

        self._scheduler.change(followed, source=SOURCE)

    def _set_budgets(self) -> None:
        """What others and decisions did to pods moves their budgets, as a step of its own."""
        due = {key: (kind, key, budget) for kind, key, budget in self._budgets}
        self._budgets = []
        if due:
            self._scheduler.change(lambda _: tuple(due.values()), source=SOURCE)


def _start(keys: Sequence[str], now_ms: int, snapshot: Snapshot) -> Sequence[Change]:
    """The pods have started on their nodes, unless others removed them."""
    found = ((key, snapshot.pod(key)) for key in keys)
    return [
        ("Pod", key, started(pod, now_ms))
        for key, pod in found
        if pod is not None and pod.spec.node_name
    ]


def _depart(keys: Sequence[str], now_ms: int, snapshot: Snapshot) -> Sequence[Change]:
    """Those of the pods that are still leaving are gone, and their owners create them anew."""
    leaving = []
    for key in dict.fromkeys(keys):
        pod = snapshot.pod(key)
        gone = None if pod is None else pod.metadata.deletion_timestamp
        if gone and times.parse(gone) <= now_ms:
            leaving.append(key)
    return departures(snapshot, leaving, again=lambda pod: created_anew(pod, now_ms)).changes
