"""Keep deciding: pods that appear are decided, those that failed are tried again when it may help.

Several watchers may work on one cluster. What one of them decides, the others see as a change of
the cluster; a pod that somebody else has tried is not tried again for its own sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.decision.model import Outcome
from policy.scheduling.cycle import Scheduler, Step
from policy.scheduling.order import DEFAULT_SCHEDULER, pending


class Watcher:
    """Iterate over it for the decisions, until it is told to stop."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock: Callable[[], int],
        pause: Callable[[], bool],
        name: str = DEFAULT_SCHEDULER,
    ) -> None:
        """pause: waits until it is worth looking again; False where the end has come.

        It is asked when there is nothing to decide. Whoever iterates may stop at any time.
        """
        self._scheduler = scheduler
        self._clock = clock
        self._pause = pause
        self._name = name
        self._tried: dict[str, int] = {}  # pod -> when
        self._rules = ""

    def __iter__(self) -> Iterator[Step]:
        while True:
            self._look()
            decided = False
            order = self._scheduler.rules().queue.order
            for key in pending(self._scheduler.snapshot, scheduler=self._name, order=order):
                # What overtook an earlier decision may have placed or removed the pod.
                if not self._due(key) or not self._scheduler.waits(key, self._name):
                    continue
                step = self._scheduler.decide_if(key, wanted=self._still_wanted)
                if step is not None:
                    self._tried[key] = self._clock()
                    if step.decision.outcome is Outcome.BIND:
                        del self._tried[key]
                    decided = True
                    yield step
            if not decided and not self._pause():
                return

    def _look(self) -> None:
        self._note(self._scheduler.refresh())
        rules = self._scheduler.rules().digest
        if rules != self._rules:  # others may be allowed now
            self._tried.clear()
        self._rules = rules

    def _due(self, key: str) -> bool:
        """Not tried yet, or so long ago that it may be different by now."""
        tried = self._tried.get(key)
        patience = self._scheduler.rules_in_use.queue.unschedulable_seconds * 1000
        return tried is None or self._clock() - tried >= patience

    def _still_wanted(self, key: str, news: Sequence[Change]) -> bool:
        """Has nobody else decided the pod, among the changes that overtook a decision?"""
        before = self._tried.get(key)
        self._note(news)
        return self._tried.get(key) == before and self._scheduler.waits(key, self._name)

    def _note(self, news: Sequence[Change]) -> None:
        """What changes mean for the pods that failed."""
        # Placed pods help nobody who failed; room, new nodes, budgets and claims may.
        if any(kind != "Pod" or obj is None for kind, _, obj in news):
            self._tried.clear()
        for _, key, obj in news:
            if isinstance(obj, Pod) and not obj.spec.node_name:
                if _failed(obj):
                    self._tried.setdefault(key, self._clock())
                else:
                    self._tried.pop(key, None)


def _failed(pod: Pod) -> bool:
    """Somebody has tried to place the pod, in vain."""
    return any(
        condition.type == "PodScheduled" and condition.status == "False"
        for condition in pod.status.conditions or ()
    )
