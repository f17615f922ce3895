"""The loop of a simulation: what the trace brings, what the engine decides, what follows.

The queue, the cycles, nominations, grace periods and effects are the engine's own
(`policy.scheduling`). Here is what a cluster adds: pods come, start, end and come back, and a cycle
takes its time. At one instant what ends comes first, then what comes back, then what is new.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Node, Pod
from policy.cluster.requests import amounts
from policy.decision.model import Outcome, Victim
from policy.preemption.columns import owner_of
from policy.rules.ruleset import RuleSet
from policy.scheduling.consequences import created_anew, started
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.scheduling.effects import unschedulable
from policy.scheduling.foregone import Foregone
from policy.scheduling.loop import DecisionLoop
from policy.scheduling.settle import VirtualClock
from policy.scheduling.state import Transition
from policy.simulation.budgets import DisruptionController
from policy.simulation.lives import Life, Lives, Where
from policy.simulation.nominations import NominationCounter
from policy.simulation.options import Options
from policy.simulation.trace import Trace, TraceEvent

SOURCE: Final = "simulate"
"""Source of the revisions of a kept simulation; saved queries know it by that."""

_DONE, _GONE, _CHANGED, _WITHDRAWN, _RETURNED, _ARRIVED = range(6)
"""Kinds of events, in the order in which they happen at one instant."""


_ENDED: Final = frozenset({Where.DONE, Where.WITHDRAWN, Where.LOST})


class Simulator(DecisionLoop):
    """Goes through a trace; iterate over it for the decisions, then read what it counted."""

    def __init__(
        self,
        scheduler: Scheduler,
        rules: RuleSet,
        clock: VirtualClock,
        trace: Trace,
        options: Options,
        *,
        every_cycle: bool = False,
        on_event: Callable[[int, str], None] | None = None,
    ) -> None:
        """scheduler: stands at the beginning of the trace, and reads the same clock.

        every_cycle: make those too that are certain to fail. on_event: see `Lives`.
        """
        length = options.length_ms
        self._end = trace.end_ms if length is None else trace.start_ms + length
        self._options = options
        self._virtual = clock
        self._sequence = count()
        self._events: list[tuple[int, int, int, str, int]] = []
        self._others: Sequence[TraceEvent] = trace.events
        self._starting: list[tuple[str, str]] = []
        self._changed = True  # since time passed last
        self._last_life: dict[str, Pod] = {}
        self.lives = Lives(trace, options.restart, self._end, on_event)
        self.nominations = NominationCounter()
        self.cycles = 0
        self.outcomes: dict[str, int] = {}
        self._foregone = None if every_cycle else Foregone(rules, scheduler.snapshot)
        snapshot = scheduler.snapshot
        self._budgets = DisruptionController(
            snapshot.budgets, (pod for _, _, pod in snapshot.in_order()), trace.events
        )
        super().__init__(scheduler, rules, clock=clock, name=options.scheduler)
        self._room: dict[str, Mapping[str, int]] = {}  # by node
        for node in snapshot.nodes.nodes:
            self._count_room(node.metadata.name, node, trace.start_ms)
        self._expect_trace()

    def finish(self) -> None:
        """Close the book at the end of the simulated time."""
        self._virtual.now_ms = max(self._virtual.now_ms, self._end)
        self.lives.finish()

    # --- the loop -------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        return self._virtual.now_ms < self._end

    def _failed_without_cycle(self, pod: str) -> bool:
        found = None if self._foregone is None else self._scheduler.snapshot.pod(pod)
        if self._foregone is None or found is None:
            return False
        if self._foregone.may_not_preempt(pod, found, self._scheduler.snapshot):
            self._count(Outcome.NOT_ELIGIBLE)
        elif self._foregone.fails_like_others(pod, found):
            failed = unschedulable(found, self._virtual.now_ms)
            self._make((("Pod", pod, failed),) if failed != found else ())
        else:
            return False
        self._feed.failed_again(pod, self._scheduler.snapshot)
        self._cycles_end(1)
        return True

    def _passes_over(self) -> bool:
        if self._foregone is None:
            return False
        now = self._virtual.now_ms
        # One where something has happened that the end of its cycle takes over.
        until = min(self._next_event(), self._end) if self._nothing_happened(now) else now + 1
        number = self._feed.pass_over(
            self._foregone.fails_again, cycle_ms=self._options.cycle_ms, until_ms=until
        )
        if number:
            self._cycles_end(number)
        return number > 0

    def _decided(self, step: Step) -> None:
        decision = step.decision
        self._count(decision.outcome)
        self.nominations.decided(decision)
        if decision.outcome is Outcome.BIND:
            self._starting.append((decision.preemptor, decision.effects.bind))
        else:
            self._evict(
                decision.effects.evict,
                decision.victims,
                preemptor=decision.preemptor,
                priority=decision.preemptor_priority,
            )
            if self._foregone is not None:
                self._foregone.failed(decision, self._scheduler.snapshot)
        self._cycles_end(1)

    def _group_decided(self, step: GroupStep) -> None:
        decision = step.decision
        self._count(decision.outcome)
        self.nominations.group_decided(decision)
        self._starting += decision.effects.bind.items()
        self._evict(
            decision.effects.evict,
            decision.victims,
            preemptor=decision.group,
            priority=decision.group_priority,
        )
        self._cycles_end(1)

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _cycles_end(self, number: int) -> None:
        self.cycles += number
        self._virtual.now_ms += number * self._options.cycle_ms
        self._pass_time()

    def _followed(self, step: Transition) -> None:
        super()._followed(step)
        self._changed = True
        if self._foregone is not None:
            self._foregone.follow(step)
        self._budgets.follow(step)
        for kind, key, obj in step.changes:
            if kind == "Pod" and isinstance(obj, Pod) and obj.metadata.deletion_timestamp:
                before = step.before.pod(key)
                if before is None or not before.metadata.deletion_timestamp:
                    self._expect_gone(key, obj)

    def _idle(self) -> bool:
        """Pass the time until something happens; False where nothing will."""
        instants = [self._events[0][0]] if self._events else []
        timer = self._feed.queue.next_timer()
        if timer is not None:
            instants.append(timer)
        if not instants or min(instants) >= self._end:
            return False
        self._virtual.now_ms = max(self._virtual.now_ms, min(instants))
        self._pass_time()
        self._feed.time_passed()
        return True

    # --- what the trace brings, and what follows ------------------------------------------------

    def _expect_trace(self) -> None:
        for key, life in self.lives.by_key.items():
            task = life.task
            if not task.running:
                self._expect(task.arrives_ms, _ARRIVED, key, 0)
            elif task.pod.metadata.deletion_timestamp:
                self._expect_gone(key, task.pod)
            else:
                self._budgets.comes(key, task.pod)
                if task.left_ms is not None:
                    self._expect(self.lives.start_ms + task.left_ms, _DONE, key, life.run)
            if task.withdrawn_ms is not None:
                self._expect(task.withdrawn_ms, _WITHDRAWN, key, 0)
        for number, event in enumerate(self._others):
            self._expect(event.at_ms, _CHANGED, "", number)
        self._pass_time()

    def _expect(self, at_ms: int, kind: int, key: str, number: int) -> None:
        heapq.heappush(self._events, (at_ms, kind, next(self._sequence), key, number))

    def _expect_gone(self, key: str, pod: Pod) -> None:
        gone = times.parse(pod.metadata.deletion_timestamp or "")
        self._expect(max(gone, self._virtual.now_ms), _GONE, key, 0)

    def _pass_time(self) -> None:
        """Everything that has happened until now, as one change of the cluster."""
        now = self._virtual.now_ms
        if self._nothing_happened(now):
            self._feed.flush()
            return
        self._changed = False
        changes: dict[tuple[str, str], Change] = {}
        while self._events and self._events[0][0] <= now and self._events[0][0] < self._end:
            at, kind, _, key, number = heapq.heappop(self._events)
            for change in self._happens(at, kind, key, number):
                changes[change[0], change[1]] = change
        if now < self._end:
            for change in self._starts(now):
                changes[change[0], change[1]] = change
        self._make(tuple(changes.values()))
        self._make(tuple(self._budgets.changes()))
        self._feed.flush()

    def _nothing_happened(self, now: int) -> bool:
        """Is the cluster what it was when time passed last, with nothing to come until now?"""
        event = self._next_event()
        return not (self._changed or self._starting) and (event > now or event >= self._end)

    def _next_event(self) -> int:
        """The instant of the next event, the end where there is none."""
        return self._events[0][0] if self._events else self._end

    def _make(self, changes: Sequence[Change]) -> None:
        if changes:
            self._scheduler.change(lambda _: changes, source=SOURCE)

    def _happens(self, at: int, kind: int, key: str, number: int) -> Sequence[Change]:
        """What one event changes."""
        if kind == _CHANGED:
            event = self._others[number]
            kind_, name, obj = event.change
            self.lives.note(at, f"{'removed' if obj is None else 'changed'} {kind_} {name}")
            if kind_ == "Node":
                assert obj is None or isinstance(obj, Node)
                self._count_room(name, obj, at)
            if kind_ == "Node" and obj is None:
                return (event.change, *self._node_is_gone(name, at))
            return (event.change,)
        life = self.lives.by_key[key]
        match kind:
            case _ if kind == _ARRIVED and life.where is Where.AHEAD:
                self.lives.arrived(key, at)
                self._budgets.comes(key, life.task.pod)
                return (("Pod", key, _created(life.task.pod, at)),)
            case _ if kind == _DONE and life.run == number:
                self.lives.done(key, at)
                self._budgets.ends(key, life.task.pod)
                return (("Pod", key, None),)
            case _ if kind == _GONE and self._is_leaving(life, at):
                return self._leaves(life, at)
            case _ if kind == _RETURNED and life.where is Where.AWAY:
                return self._returns(life, at)
            case _ if kind == _WITHDRAWN and life.where not in _ENDED:
                return self._withdraws(life, at)
        return ()

    def _is_leaving(self, life: Life, at: int) -> bool:
        """Is the grace period over of the run that is on?"""
        if life.where not in {Where.LEAVING, Where.RUNNING}:
            return False
        pod = self._scheduler.snapshot.pod(life.task.key)
        gone = None if pod is None else pod.metadata.deletion_timestamp
        return bool(gone) and times.parse(gone or "") <= at

    def _leaves(self, life: Life, at: int) -> Sequence[Change]:
        key = life.task.key
        owned = bool(owner_of(life.task.pod))
        delay = self._options.return_ms if owned else self._options.bare_return_ms
        if life.where is Where.RUNNING:  # it was leaving when the trace began
            self.lives.withdrawn(key, at)
            return (("Pod", key, None),)
        self.lives.gone(key, at, returns=delay is not None)
        if delay == 0:
            return self._returns(life, at)
        if delay is None:
            self._budgets.ends(key, life.task.pod)
        else:
            self._expect(at + delay, _RETURNED, key, 0)
        return (("Pod", key, None),)

    def _node_is_gone(self, name: str, at: int) -> Sequence[Change]:
        """Its pods are gone with it, and come back as evicted ones do."""
        snapshot = self._scheduler.snapshot
        index = snapshot.nodes.index.get(name)
        found: list[Change] = []
        if index is not None:
            for _, key, pod in snapshot.in_order(among=snapshot.node == index):
                life = self.lives.by_key[key]
                placed = (key, name) in self._starting
                # Any other that waits has come back by now, and the node is gone a second time.
                if placed or life.where in {Where.RUNNING, Where.LEAVING}:
                    # One that was leaving when the trace began does not come back, here either.
                    if not pod.metadata.deletion_timestamp:
                        self.lives.stranded(key, at)
                    found += self._leaves(life, at)
            # Those that were placed there in the cycle that has just ended do not start.
            self._starting = [(key, node) for key, node in self._starting if node != name]
        return found

    def _returns(self, life: Life, at: int) -> Sequence[Change]:
        key = life.task.key
        last = self._last_life.get(key, life.task.pod)
        again = self._last_life[key] = created_anew(last, at)
        self.lives.arrived(key, at)
        return (("Pod", key, again),)

    def _withdraws(self, life: Life, at: int) -> Sequence[Change]:
        key = life.task.key
        before = life.where
        self.lives.withdrawn(key, at)
        self._budgets.ends(key, life.task.pod)
        self.nominations.ended(key)
        return () if before in {Where.AHEAD, Where.AWAY} else (("Pod", key, None),)

    def _starts(self, now: int) -> Sequence[Change]:
        """Pods that were bound in the cycle that has ended are running."""
        found: list[Change] = []
        for key, node in self._starting:
            pod = self._scheduler.snapshot.pod(key)
            if pod is None or self.lives.by_key[key].where is not Where.WAITING:
                continue  # withdrawn while it was placed
            done = self.lives.started(key, node, now)
            if done is not None:
                self._expect(done, _DONE, key, self.lives.by_key[key].run)
            found.append(("Pod", key, started(pod, now)))
        self._starting.clear()
        return found

    def _evict(
        self, keys: Sequence[str], victims: Sequence[Victim], *, preemptor: str, priority: int
    ) -> None:
        leaving = {victim.pod: victim for victim in victims}
        for key in keys:
            if leaving[key].already_terminating:
                continue  # some generations delete it once more
            self.lives.evicted(
                key,
                self._virtual.now_ms,
                preemptor=preemptor,
                preemptor_priority=priority,
                pdb_violating=leaving[key].pdb_violating,
            )

    def _count_room(self, name: str, node: Node | None, at: int) -> None:
        """What there is from now on, which cycles that are on learn of at their end."""
        before = self._room.pop(name, {})
        after = {} if node is None else amounts(node.status.allocatable)
        for resource, series in self.lives.capacity.items():
            series.add(at, after.get(resource, 0) - before.get(resource, 0))
        if node is not None:
            self._room[name] = after


def _created(pod: Pod, at_ms: int) -> Pod:
    """The pod as it is created in the simulation: its age counts from its arrival there."""
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=times.to_text(at_ms)))
