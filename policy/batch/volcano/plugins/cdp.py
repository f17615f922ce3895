"""cdp: a pod that started a short while ago is not evicted again at once.

Source: Volcano `pkg/scheduler/plugins/cdp` (cooldown protection).
"""

from __future__ import annotations

from policy.batch.model import TaskStatus
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.spans import milliseconds
from policy.batch.volcano.framework.world import annotation_or_label
from policy.batch.volcano.plugins.base import Plugin
from policy.cluster import times

COOLDOWN = "volcano.sh/cooldown-time"


class Cdp(Plugin):
    name = "cdp"
    doc = "Spares running pods within their cooldown time after they were scheduled."

    def open(self, session: Session) -> None:
        self._now = session.snapshot.now_ms
        session.register(self.name, preemptable=self.evictable, reclaimable=self.evictable)

    def evictable(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        return [task for task in tasks if not self._cools(task)]

    def _cools(self, task: Task) -> bool:
        if task.status is not TaskStatus.RUNNING:
            return False
        span = milliseconds(annotation_or_label(task.pod.metadata, COOLDOWN) or "")
        if span is None:
            return False
        for condition in task.pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "True":
                since = times.parse_optional(condition.last_transition_time)
                return since + span > self._now
        return False
