"""Keep deciding: pods that appear are decided, those that failed are tried again when it may help.

Several watchers may work on one cluster. What one of them decides, the others see as a change of
the cluster; a pod that another scheduler has tried is not tried again for its own sake.
"""

from __future__ import annotations

from collections.abc import Callable

from policy.scheduling.cycle import Scheduler
from policy.scheduling.loop import DecisionLoop
from policy.scheduling.order import DEFAULT_SCHEDULER


class Watcher(DecisionLoop):
    """Iterate over it for the decisions, until `pause` says that the end has come."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock: Callable[[], int],
        pause: Callable[[], bool],
        name: str = DEFAULT_SCHEDULER,
    ) -> None:
        """clock: the real time, by which failed pods wait, in milliseconds.

        pause: waits until it is worth looking again; False where the end has come. It is called
        when there is nothing to decide. Whoever iterates may stop at any time.
        """
        rules = scheduler.rules()
        super().__init__(scheduler, rules, clock=clock, name=name)
        self._pause = pause
        self._rules = rules.digest

    def _idle(self) -> bool:
        self._scheduler.refresh()
        rules = self._scheduler.rules()
        if rules.digest != self._rules:  # what they refused may be allowed now
            self._feed = self._filled(rules)
            self._rules = rules.digest
        self._feed.flush()
        if self._feed.ready():
            return True
        goes_on = self._pause()
        self._feed.time_passed()
        return goes_on
