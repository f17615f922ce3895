"""Decide the pods of the scheduling queue, one after the other, for as long as there are any.

The first member of a pod group that is popped brings the others with it: they have one cycle.

What others change, what the decisions change and what a simulation changes all move the pods of
the queue in the same way; watching and settling differ in what they do while none is ready.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

from policy.rules.ruleset import RuleSet
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.scheduling.events import QueueFeed
from policy.scheduling.order import QueueHead
from policy.scheduling.state import Transition


class DecisionLoop(ABC):
    """Iterate over it for the decisions."""

    def __init__(
        self, scheduler: Scheduler, rules: RuleSet, *, clock: Callable[[], int], name: str
    ) -> None:
        """clock: milliseconds since 1970 UTC, by which pods wait.

        name: of the scheduler whose pods take part.
        """
        self._scheduler = scheduler
        self._clock = clock
        self._name = name
        self._feed = self._filled(rules)
        scheduler.follow(self._followed)

    def __iter__(self) -> Iterator[Step | GroupStep]:
        while self._goes_on():
            if self._passes_over():
                continue
            pod = self._feed.pop()
            if pod is None:
                if not self._idle():
                    return
                continue
            if self._feed.grouped:
                head = self._feed.gather(pod, self._scheduler.snapshot)
                if head is None:
                    continue
                if head.group:
                    done = self._scheduler.decide_group_if(
                        head.group, wanted=partial(self._group_wanted, head)
                    )
                    if done is None:
                        self._feed.dropped(self._scheduler.snapshot)
                        continue
                    self._feed.group_decided(done.decision, self._scheduler.snapshot)
                    self._group_decided(done)
                    yield done
                    continue
            if self._failed_without_cycle(pod):
                continue
            step = self._scheduler.decide_if(pod, wanted=partial(self._wanted, pod))
            if step is None:
                self._feed.dropped(self._scheduler.snapshot)
                continue
            self._feed.decided(step.decision)
            self._decided(step)
            yield step

    @abstractmethod
    def _idle(self) -> bool:
        """No pod is ready: wait for something that may change that; False where the end is."""

    def _goes_on(self) -> bool:
        """May another pod be decided?"""
        return True

    def _failed_without_cycle(self, pod: str) -> bool:
        """Where a cycle is certain to fail: write what it would, for the queue too; make none."""
        return False

    def _passes_over(self) -> bool:
        """Where the cycles of the next pods are certain to fail and change nothing: pass them over.

        False where there are none.
        """
        return False

    def _decided(self, step: Step) -> None:  # noqa: B027 (most have nothing to add)
        """Another decision was made."""

    def _group_decided(self, step: GroupStep) -> None:  # noqa: B027 (most have nothing to add)
        """Another cycle of a pod group was made."""

    def _followed(self, step: Transition) -> None:
        """The cluster changed, by whomever."""
        self._feed.follow(step)

    def _filled(self, rules: RuleSet) -> QueueFeed:
        """A queue of every pod that waits."""
        feed = QueueFeed(rules.queue, scheduler=self._name, clock=self._clock, groups=rules.groups)
        feed.fill(self._scheduler.snapshot)
        return feed

    def _wanted(self, pod: str) -> bool:
        """Others changed the cluster: does the pod still wait, and have they not tried it?"""
        return not self._feed.tried_elsewhere() and self._scheduler.waits(pod, self._name)

    def _group_wanted(self, head: QueueHead) -> bool:
        """Others changed the cluster: does a member still wait, and have they not tried it?"""
        waits = any(self._scheduler.waits(pod, self._name) for pod in head.pods)
        return waits and not self._feed.tried_elsewhere()
