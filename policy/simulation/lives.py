"""What becomes of every pod of a simulation: its runs, its waiting, the work it does and loses.

INVARIANT: a pod is in one state at a time. In milliseconds, exactly: over the time that it ran,
`elapsed == done + lost - before`, where `before` is what of the lost work had been done before the
simulated time; where its work has an end, `done + left` is that work, and `before` once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policy.cluster import times
from policy.cluster.requests import CPU, pod_requests
from policy.preemption.columns import workload_of
from policy.simulation.options import Restart
from policy.simulation.series import TimeSeries
from policy.simulation.trace import Trace, TracePod

PARTS: Final = 240
"""Stretches of equal length into which the time is cut for pictures."""


class Where(StrEnum):
    """Where a pod is in its life."""

    AHEAD = "ahead"  # it has not come yet
    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"  # evicted, in its grace period: it takes up room and does no work
    AWAY = "away"  # evicted and gone; its owner will make it again
    DONE = "done"
    WITHDRAWN = "withdrawn"  # its user took it away
    LOST = "lost"  # evicted and gone for good


_TAKES_ROOM: Final = frozenset({Where.RUNNING, Where.LEAVING})


@dataclass(slots=True, kw_only=True)
class Life:
    """One pod of the trace, through all its runs."""

    task: TracePod
    workload: str
    priority: int
    cpu_milli: int
    requests: Mapping[str, int]
    where: Where = Where.AHEAD
    run: int = 0  #: number of the run or of what follows it; events of older ones are void
    started_ms: int | None = None  #: of the run that is on
    left_ms: int | None = None  #: work that is left; None: without end
    first_start_ms: int | None = None
    ended_ms: int | None = None
    starts: int = 0
    evictions: int = 0
    done_ms: int = 0  #: work that counts
    lost_ms: int = 0  #: work that was thrown away
    before_ms: int = 0  #: how long the run that is on had lasted when the simulated time began
    lost_before_ms: int = 0  #: of `lost_ms`, the work that was done before the simulated time


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEviction:
    """A pod lost its place."""

    at_ms: int
    pod: str
    workload: str
    priority: int
    preemptor: str
    preemptor_priority: int
    pdb_violating: bool


class Lives:
    """Keeps the book of one simulation."""

    def __init__(
        self,
        trace: Trace,
        restart: Restart,
        end_ms: int,
        on_event: Callable[[int, str], None] | None = None,
    ) -> None:
        """on_event: called with everything that happens: when (ms), and what, in words."""
        self._restart = restart
        self._on_event = on_event
        self._trail = hashlib.sha256()
        self.end_ms = end_ms
        self.start_ms = trace.start_ms
        self.by_key = {task.key: _life(task) for task in trace.tasks}
        self.evictions: list[SimulatedEviction] = []
        names = {CPU} | {r for life in self.by_key.values() for r in life.requests}
        self.waiting = self._series()
        self.running = self._series()
        self.used = {name: self._series() for name in sorted(names)}
        self.capacity = {name: self._series() for name in sorted(names)}
        priorities = {life.priority for life in self.by_key.values()}
        self.waiting_of = {priority: self._series() for priority in priorities}
        self.cpu_of = {priority: self._series() for priority in priorities}
        for life in self.by_key.values():
            if life.task.running:
                self._running_at_start(life)

    def _series(self) -> TimeSeries:
        return TimeSeries(start_ms=self.start_ms, end_ms=self.end_ms, parts=PARTS)

    def _running_at_start(self, life: Life) -> None:
        self._go(life, Where.RUNNING, self.start_ms, "running")
        life.started_ms = life.first_start_ms = self.start_ms
        life.left_ms = life.task.left_ms
        began = times.parse_optional(life.task.pod.status.start_time)
        life.before_ms = 0 if began == times.MISSING else max(0, self.start_ms - began)
        life.starts = 1

    # --- what happens ---------------------------------------------------------------------------

    def arrived(self, key: str, at_ms: int) -> None:
        self._go(self.by_key[key], Where.WAITING, at_ms, "arrived")

    def started(self, key: str, node: str, at_ms: int) -> int | None:
        """The pod starts on the node; when its work will be done, None for never."""
        life = self.by_key[key]
        assert life.where is Where.WAITING, f"`{key}` starts while it is {life.where}"
        self._go(life, Where.RUNNING, at_ms, f"started {node}")
        life.started_ms = at_ms
        life.starts += 1
        if life.first_start_ms is None:
            life.first_start_ms = at_ms
        return None if life.left_ms is None else at_ms + life.left_ms

    def evicted(
        self,
        key: str,
        at_ms: int,
        *,
        preemptor: str,
        preemptor_priority: int,
        pdb_violating: bool,
    ) -> None:
        life = self.by_key[key]
        if life.where is not Where.RUNNING:
            return  # its run ended at this instant
        self._stop(life, at_ms, keep=self._restart is Restart.REMAINING)
        life.evictions += 1
        self._go(life, Where.LEAVING, at_ms, f"evicted for {preemptor}")
        self.evictions.append(
            SimulatedEviction(
                at_ms=at_ms,
                pod=key,
                workload=life.workload,
                priority=life.priority,
                preemptor=preemptor,
                preemptor_priority=preemptor_priority,
                pdb_violating=pdb_violating,
            )
        )

    def stranded(self, key: str, at_ms: int) -> None:
        """The pod's node is gone. That is no eviction, but its work is lost like that of one."""
        life = self.by_key[key]
        if life.where is Where.RUNNING:
            self._stop(life, at_ms, keep=self._restart is Restart.REMAINING)
            self._go(life, Where.LEAVING, at_ms, "lost its node")

    def gone(self, key: str, at_ms: int, *, returns: bool) -> None:
        life = self.by_key[key]
        self._go(life, Where.AWAY if returns else Where.LOST, at_ms, "gone")
        if not returns:
            life.ended_ms = at_ms

    def done(self, key: str, at_ms: int) -> None:
        life = self.by_key[key]
        self._stop(life, at_ms, keep=True)
        self._go(life, Where.DONE, at_ms, "done")
        life.ended_ms = at_ms

    def withdrawn(self, key: str, at_ms: int) -> None:
        life = self.by_key[key]
        if life.where is Where.RUNNING:
            self._stop(life, at_ms, keep=True)
        self._go(life, Where.WITHDRAWN, at_ms, "withdrawn")
        life.ended_ms = at_ms

    def finish(self) -> None:
        """The simulation is over: what runs has done its work so far."""
        for life in self.by_key.values():
            if life.where is Where.RUNNING:
                self._stop(life, self.end_ms, keep=True)
        for series in (
            self.waiting,
            self.running,
            *self.used.values(),
            *self.capacity.values(),
            *self.waiting_of.values(),
            *self.cpu_of.values(),
        ):
            series.move(self.end_ms)

    def note(self, at_ms: int, what: str) -> None:
        """Something that belongs to the trail of what happened, and to no pod of the trace."""
        self._trail.update(f"{at_ms} {what}\n".encode())
        if self._on_event is not None:
            self._on_event(at_ms, what)

    @property
    def trail(self) -> str:
        """`sha256:` and the SHA-256 of everything that happened, in order."""
        return f"sha256:{self._trail.hexdigest()}"

    # --- inside ---------------------------------------------------------------------------------

    def _go(self, life: Life, where: Where, at_ms: int, what: str) -> None:
        before, life.where = life.where, where
        life.run += 1
        self.note(at_ms, f"{life.task.key} {what}")
        waits = (where is Where.WAITING) - (before is Where.WAITING)
        self.waiting.add(at_ms, waits)
        if waits:
            self.waiting_of[life.priority].add(at_ms, waits)
        self.running.add(at_ms, (where is Where.RUNNING) - (before is Where.RUNNING))
        change = (where in _TAKES_ROOM) - (before in _TAKES_ROOM)
        if change:
            self.cpu_of[life.priority].add(at_ms, change * life.cpu_milli)
            for name, amount in life.requests.items():
                self.used[name].add(at_ms, change * amount)

    def _stop(self, life: Life, at_ms: int, *, keep: bool) -> None:
        """A run ends; what it did counts, or is lost with what it did before the simulated time."""
        assert life.started_ms is not None
        ran = at_ms - life.started_ms
        assert ran >= 0, "time runs backwards"
        life.started_ms = None
        before, life.before_ms = life.before_ms, 0
        if keep:
            life.done_ms += ran
            if life.left_ms is not None:
                life.left_ms -= ran
            return
        life.lost_ms += before + ran
        life.lost_before_ms += before
        life.left_ms = life.task.work_ms


def _life(task: TracePod) -> Life:
    requests = pod_requests(task.pod, on_node=True)
    return Life(
        task=task,
        workload=workload_of(task.pod),
        priority=task.pod.spec.priority or 0,
        cpu_milli=requests.get(CPU, 0),
        requests={name: amount for name, amount in requests.items() if amount},
        left_ms=task.work_ms,
    )
