"""The scheduling queue: which pod is tried next, and which ones wait for what.

Four parts: *active* pods are tried, the most important first; pods in *backoff* failed lately;
*unschedulable* pods wait until something happens that may help; *gated* ones until the gate of
their group opens. The clock is the caller's: every method that depends on time takes the instant,
in milliseconds.

Source: kube-scheduler's PriorityQueue (and the FIFO of 1.13); specification, section 8; for pod
groups kube-scheduler 1.36.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from policy.rules.ruleset import QueueKind, QueueRules
from policy.scheduling.nominator import Nominator


@dataclass(slots=True)
class _Entry:
    pod: str
    priority: int
    queued_ms: int  #: when it entered the queue, or returned to it
    attempts: int = 0
    failed_ms: int = 0  #: when its last cycle failed


_Place: TypeAlias = tuple[int, int, int, _Entry]
"""An active pod's place: by priority, by the time of its coming, and by a number of its own."""


class _Timed:
    """Pods that wait, each at the latest until an instant that its entry gives.

    Kept in the order of these instants: a queue that is full is looked at after every cycle.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[int, int, _Entry]] = []
        self._sequence = count()

    def add(self, entry: _Entry, until_ms: int) -> None:
        self._entries[entry.pod] = entry
        heapq.heappush(self._heap, (until_ms, next(self._sequence), entry))

    def discard(self, pod: str) -> None:
        self._entries.pop(pod, None)

    def due(self, now_ms: int) -> list[_Entry]:
        """Those whose instant has come, no longer kept here; in the order in which they came."""
        if not self._heap or self._heap[0][0] > now_ms:
            return []  # as after most cycles
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, came, entry = heapq.heappop(self._heap)
            if self._entries.get(entry.pod) is entry:
                del self._entries[entry.pod]
                found.append((came, entry))
        found.sort()  # the numbers are of one entry each, so that entries are never compared
        return [entry for _, entry in found]

    def drained(self) -> list[_Entry]:
        """All of them, in the order in which they came; none is kept here any longer."""
        found = list(self._entries.values())
        self._entries.clear()
        self._heap.clear()
        return found

    def quiet_until(self, last_ms: int) -> int:
        """An instant up to which none is due, `last_ms` at the latest."""
        return min(self._heap[0][0], last_ms) if self._heap else last_ms

    def next(self) -> int | None:
        """The first instant, None without any."""
        while self._heap:
            until_ms, _, entry = self._heap[0]
            if self._entries.get(entry.pod) is entry:
                return until_ms
            heapq.heappop(self._heap)
        return None

    def pods(self) -> Collection[str]:
        """Their keys."""
        return self._entries.keys()

    def __contains__(self, pod: object) -> bool:
        return pod in self._entries

    def __getitem__(self, pod: str) -> _Entry:
        return self._entries[pod]

    def __iter__(self) -> Iterator[_Entry]:
        return iter(self._entries.values())


class SchedulingQueue:
    """Pods of one scheduler between their cycles."""

    def __init__(self, rules: QueueRules) -> None:
        self.nominator = Nominator()
        self._rules = rules
        self._fifo = rules.kind is QueueKind.FIFO
        self._sequence = count()
        self._active: dict[str, _Entry] = {}
        self._heap: list[_Place] = []
        self._backoff = _Timed()
        self._unschedulable = _Timed()
        self._gated: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._move_requested = False

    # --- pods come and go ----------------------------------------------------------------------

    def add(self, pod: str, *, priority: int, now_ms: int, nominated: str = "") -> None:
        """A new pod is active; a copy of it in another part is forgotten."""
        self._take_out(pod)
        self._activate(_Entry(pod=pod, priority=priority, queued_ms=now_ms))
        self.nominator.add(pod, status_node=nominated)

    def update(
        self,
        pod: str,
        *,
        priority: int,
        may_help: bool,
        now_ms: int,
        nominated: str = "",
        was_nominated: str = "",
    ) -> None:
        """The pod changed; `may_help`: in a way that may make it schedulable.

        An unschedulable pod is moved only then; elsewhere the pod keeps its place.
        """
        self.nominator.update(pod, status_node=nominated, was_status_node=was_nominated)
        if pod in self._active:
            self._activate(
                _Entry(pod=pod, priority=priority, queued_ms=self._active[pod].queued_ms)
            )
        elif pod in self._backoff:
            self._backoff[pod].priority = priority
        elif pod in self._unschedulable:
            entry = self._unschedulable[pod]
            entry.priority = priority
            if may_help:
                self._move([entry], now_ms)
        else:
            self.add(pod, priority=priority, now_ms=now_ms, nominated=nominated)

    def delete(self, pod: str) -> None:
        """The pod is placed or gone: no part of the queue and no nomination keeps it."""
        self._take_out(pod)
        self._attempts.pop(pod, None)
        self.nominator.delete(pod)

    def __contains__(self, pod: object) -> bool:
        return (
            pod in self._active
            or pod in self._backoff
            or pod in self._unschedulable
            or pod in self._gated
        )

    # --- cycles --------------------------------------------------------------------------------

    def pop(self, *, without: Collection[str] = ()) -> str | None:
        """The pod to try next, None while no pod is active. Clears the move-request mark.

        without: pods that stay where they are.
        """
        place = self._first(without)
        return None if place is None else self._popped(place[-1])

    def pass_over(
        self,
        fails: Callable[[str], bool],
        *,
        tried: set[str],
        now_ms: int,
        cycle_ms: int,
        until_ms: int,
    ) -> int:
        """Try the next pods for as long as each is certain to fail as before; how many there were.

        What `pop`, `failed_again` and `flush` do for one after the other, in one go: on a full
        cluster nearly all cycles are such ones. Each takes `cycle_ms`; none begins at `until_ms` or
        later. fails: of the pod that is next. tried: pods that stay where they are; those that fail
        are added.
        """
        number = 0
        quiet_until_ms = self._quiet_until(now_ms)
        while now_ms < until_ms and (place := self._first(tried)) is not None:
            entry = place[-1]
            if not fails(entry.pod):
                heapq.heappush(self._heap, place)
                break
            tried.add(self._popped(entry))
            self.failed_again(entry.pod, priority=entry.priority, now_ms=now_ms)
            number += 1
            now_ms += cycle_ms
            if quiet_until_ms <= now_ms < until_ms:
                self.flush(now_ms=now_ms)
                quiet_until_ms = self._quiet_until(now_ms)
        return number

    def take(self, pod: str) -> None:
        """The pod is tried with the popped one, as a member of its group, wherever it waits."""
        self._take_out(pod)
        self._attempts[pod] = self._attempts.get(pod, 0) + 1

    def hold_back(self, pod: str) -> None:
        """The gate of the popped pod's group is closed: it was not tried."""
        self._attempts[pod] -= 1
        self._gated.add(pod)

    def gated(self) -> Collection[str]:
        """Pods that wait for the gate of their group, in no order."""
        return self._gated

    def active(self) -> Collection[str]:
        """Pods that are tried as soon as they are popped."""
        return self._active.keys()

    def attempts(self, pod: str) -> int:
        """How often the pod has been popped."""
        return self._attempts.get(pod, 0)

    def failed(self, pod: str, *, priority: int, now_ms: int, nominated: str = "") -> None:
        """The pod's cycle ended without a place.

        It waits until something happens; if something happened during the cycle it is tried again
        (after its backoff, where there is one). A nomination survives the return.
        """
        self.nominator.add(pod, node=nominated)
        self.failed_again(pod, priority=priority, now_ms=now_ms)

    def failed_again(self, pod: str, *, priority: int, now_ms: int) -> None:
        """`failed` where the nomination stays what it was."""
        entry = _Entry(pod, priority, now_ms, self._attempts.get(pod, 0), now_ms)
        if self._fifo:
            self._activate(entry)
        elif self._move_requested:
            self._move([entry], now_ms)
        else:
            self._wait(entry)

    def failed_with_group(
        self, pod: str, *, priority: int, now_ms: int, nominated: str, moved: bool
    ) -> None:
        """The cycle of the pod's group ended without a place for it.

        moved: the cycle changed the cluster. Then the pod is tried again after its backoff;
        otherwise it waits until something happens, since the same cycle would end the same way.
        """
        self._move_requested |= moved
        self.failed(pod, priority=priority, now_ms=now_ms, nominated=nominated)

    def failed_elsewhere(
        self, pod: str, *, priority: int, now_ms: int, nominated: str = ""
    ) -> None:
        """Another scheduler tried the pod in vain: it waits until something happens."""
        self._take_out(pod)
        self.nominator.add(pod, node=nominated)
        self._wait(_Entry(pod=pod, priority=priority, queued_ms=now_ms, failed_ms=now_ms))

    def cycle_restarted(self) -> None:
        """The cycle began anew on a newer state: what happened before it is seen by it."""
        self._move_requested = False

    # --- events --------------------------------------------------------------------------------

    def move_all(self, *, now_ms: int) -> None:
        """Something happened that may help any pod: a node or a deletion, a budget, a volume."""
        self._move_requested = True
        self._move(self._unschedulable.drained(), now_ms)

    def move(self, pods: Collection[str], *, now_ms: int) -> None:
        """An assigned pod came or changed: pods whose affinity it matches may now fit."""
        self._move_requested = True
        found = [e for e in self._unschedulable if e.pod in pods] if pods else []
        for entry in found:
            self._unschedulable.discard(entry.pod)
        self._move(found, now_ms)

    def flush(self, *, now_ms: int) -> None:
        """Timers: backoffs that are over, and pods that have been unschedulable for too long."""
        for entry in self._backoff.due(now_ms):
            self._activate(entry)
        self._move(self._unschedulable.due(now_ms), now_ms)

    def next_timer(self, *, unschedulable: bool = True) -> int | None:
        """The next instant at which `flush` moves a pod; None without any.

        unschedulable: count the pods that only time moves, beside those in backoff.
        """
        first = self._backoff.next()
        other = self._unschedulable.next() if unschedulable else None
        if first is None or other is None:
            return other if first is None else first
        return min(first, other)

    def unschedulable(self) -> Collection[str]:
        """Pods that wait until something happens, in no order."""
        return self._unschedulable.pods()

    def waiting(self) -> tuple[str, ...]:
        """Unschedulable pods, by name."""
        return tuple(sorted(self._unschedulable.pods()))

    def pods(self) -> tuple[str, ...]:
        """All pods of the queue, by name."""
        timed = (*self._backoff.pods(), *self._unschedulable.pods())
        return tuple(sorted({*self._active, *timed, *self._gated}))

    # --- inside --------------------------------------------------------------------------------

    def _first(self, without: Collection[str]) -> _Place | None:
        """The place of the active pod to try next, taken out of the heap."""
        passed_over = []
        found = None
        while self._heap and found is None:
            place = heapq.heappop(self._heap)
            entry = place[-1]
            if self._active.get(entry.pod) is not entry:
                continue
            if entry.pod in without:
                passed_over.append(place)
            else:
                found = place
        for place in passed_over:
            heapq.heappush(self._heap, place)
        return found

    def _popped(self, entry: _Entry) -> str:
        """The pod is active no longer: it is tried."""
        pod = entry.pod
        del self._active[pod]
        self._attempts[pod] = self._attempts.get(pod, 0) + 1
        self._move_requested = False
        return pod

    def _quiet_until(self, now_ms: int) -> int:
        """Until when at least `flush` moves nothing, pods that fail from now on included."""
        failing = now_ms + 1000 * self._rules.unschedulable_seconds
        return self._backoff.quiet_until(self._unschedulable.quiet_until(failing))

    def _take_out(self, pod: str) -> None:
        self._active.pop(pod, None)
        self._backoff.discard(pod)
        self._unschedulable.discard(pod)
        self._gated.discard(pod)

    def _activate(self, entry: _Entry) -> None:
        place = 0 if self._fifo else -entry.priority
        self._active[entry.pod] = entry
        # The number is of this entry alone, so that entries are never compared.
        heapq.heappush(self._heap, (place, entry.queued_ms, next(self._sequence), entry))

    def _move(self, entries: list[_Entry], now_ms: int) -> None:
        """They wait for nothing any longer."""
        for entry in entries:
            ends_ms = self._backoff_ends(entry)
            if ends_ms > now_ms:
                self._backoff.add(entry, ends_ms)
            else:
                self._activate(entry)

    def _backoff_ends(self, entry: _Entry) -> int:
        initial = self._rules.initial_backoff_seconds
        if not initial or not entry.attempts:
            return entry.failed_ms
        # Doubling is cut off where it passes the limit: attempts may be many.
        doubled = initial << min(entry.attempts - 1, 32)
        return entry.failed_ms + 1000 * min(doubled, self._rules.max_backoff_seconds)

    def _wait(self, entry: _Entry) -> None:
        """It failed: until something happens, or for as long as the rules say."""
        until_ms = entry.failed_ms + 1000 * self._rules.unschedulable_seconds
        self._unschedulable.add(entry, until_ms)
