"""Let a cluster settle: victims leave, preemptors get their place, evicted pods come back.

A simulation on a virtual clock. Every cycle is a decision like any other and is kept in the
journal; what nobody decides (a victim is gone, a pod has started, an evicted pod is created anew by
its owner) is a change of state with its own cause. It ends when nothing more will happen: no pod
is active or in backoff, and nobody is leaving.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Pod, PodStatus
from policy.cluster.tables import TERMINATING
from policy.decision.model import NominationChange, Outcome
from policy.rules.ruleset import QueueOrder, RuleSet
from policy.scheduling.cycle import Scheduler, Step
from policy.scheduling.order import DEFAULT_SCHEDULER, pending, waiting
from policy.scheduling.queue import SchedulingQueue

SOURCE: Final = "settle"
"""Source of the revisions that the simulation writes."""


class VirtualClock:
    """Milliseconds since 1970 UTC that pass only when told to."""

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
    waiting: tuple[str, ...]  #: pods that found no place


class Settler:
    """One simulation; iterate over it for its cycles, then ask for `result`."""

    def __init__(
        self,
        scheduler: Scheduler,
        rules: RuleSet,
        clock: VirtualClock,
        *,
        name: str = DEFAULT_SCHEDULER,
        max_cycles: int,
    ) -> None:
        """clock: the one that the scheduler asks too."""
        self._scheduler = scheduler
        self._clock = clock
        self._name = name
        self._max_cycles = max_cycles
        self._queue = SchedulingQueue(rules.queue)
        self._order = rules.queue.order
        self._leaving: list[tuple[int, int, str]] = []
        self._sequence = count()
        self._cycles = 0
        self._finished = False

    def __iter__(self) -> Iterator[Step]:
        self._begin()
        while True:
            pod = self._queue.pop()
            if pod is None:
                if not self._wait():
                    self._finished = True
                    return
                continue
            if self._cycles == self._max_cycles:
                return
            self._cycles += 1
            step = self._scheduler.decide(pod)
            self._follow(step)
            yield step

    @property
    def result(self) -> Settled:
        return Settled(
            end_ms=self._clock.now_ms,
            cycles=self._cycles,
            finished=self._finished,
            waiting=self._queue.waiting(),
        )

    def _begin(self) -> None:
        snapshot = self._scheduler.snapshot
        by_arrival = self._order is QueueOrder.ARRIVAL
        for key in pending(snapshot, scheduler=self._name, order=self._order):
            pod = snapshot.pod(key)
            assert pod is not None
            created = times.parse_optional(pod.metadata.creation_timestamp)
            self._queue.add(
                key,
                priority=pod.spec.priority or 0,
                now_ms=created if by_arrival and created != times.MISSING else self._clock.now_ms,
                nominated=pod.status.nominated_node_name,
            )
        leaving = snapshot.column(TERMINATING) & (snapshot.node >= 0)
        for _, key, pod in snapshot.in_order(among=leaving):
            self._expect(key, pod)

    def _expect(self, key: str, pod: Pod) -> None:
        """Remember when a terminating pod will be gone."""
        gone = times.parse_optional(pod.metadata.deletion_timestamp)
        if gone != times.MISSING:
            at = max(gone, self._clock.now_ms)
            heapq.heappush(self._leaving, (at, next(self._sequence), key))

    def _follow(self, step: Step) -> None:
        """What the decision means for the queue."""
        decision = step.decision
        key, now = decision.preemptor, self._clock.now_ms
        snapshot = self._scheduler.snapshot
        if decision.outcome is Outcome.BIND:
            self._queue.delete(key)
            pod = snapshot.pod(key)
            assert pod is not None
            self._change((("Pod", key, _started(pod, now)),))
            return
        for cleared in decision.effects.clear_nominations:
            self._queue.nominator.delete(cleared)
        nominated = self._queue.nominator.node_of(key)
        if decision.effects.nomination is NominationChange.SET:
            nominated = decision.node or ""
        elif decision.effects.nomination is NominationChange.CLEAR:
            nominated = ""
        self._queue.failed(
            key, priority=decision.preemptor_priority, now_ms=now, nominated=nominated
        )
        for victim in decision.effects.evict:
            leaving = snapshot.pod(victim)
            if leaving is not None:
                self._expect(victim, leaving)

    def _wait(self) -> bool:
        """Pass the time until something happens; False where nothing will."""
        timer = self._queue.next_timer(unschedulable=bool(self._leaving))
        gone = self._leaving[0][0] if self._leaving else None
        instants = [at for at in (timer, gone) if at is not None]
        if not instants:
            return False
        self._clock.now_ms = max(self._clock.now_ms, min(instants))
        now = self._clock.now_ms
        changes: list[Change] = []
        returned: list[tuple[str, Pod]] = []
        while self._leaving and self._leaving[0][0] <= now:
            key = heapq.heappop(self._leaving)[2]
            pod = self._scheduler.snapshot.pod(key)
            if pod is None or not pod.metadata.deletion_timestamp:
                continue
            anew = _created_anew(pod, now)
            changes.append(("Pod", key, anew))
            returned.append((key, anew))
        if changes:
            self._change(tuple(changes))
            self._queue.move_all(now_ms=now)
            for key, anew in returned:
                if waiting(anew, scheduler=self._name):
                    self._queue.add(key, priority=anew.spec.priority or 0, now_ms=now)
        self._queue.flush(now_ms=now)
        return True

    def _change(self, changes: tuple[Change, ...]) -> None:
        self._scheduler.change(changes, source=SOURCE)


def _started(pod: Pod, now_ms: int) -> Pod:
    status = replace(pod.status, phase="Running", start_time=times.to_text(now_ms))
    return replace(pod, status=status)


def _created_anew(pod: Pod, now_ms: int) -> Pod:
    """The pod as its owner creates it again: same name and spec, nothing of its past."""
    base, _, number = pod.metadata.uid.rpartition("~")
    generation = int(number) + 1 if base and number.isascii() and number.isdigit() else 1
    return replace(
        pod,
        metadata=replace(
            pod.metadata,
            uid=f"{base or pod.metadata.uid}~{generation}",
            creation_timestamp=times.to_text(now_ms),
            deletion_timestamp=None,
        ),
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", qos_class=pod.status.qos_class),
    )
