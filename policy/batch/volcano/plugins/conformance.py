"""conformance: pods that the cluster itself needs are never evicted."""

from __future__ import annotations

from policy.batch.plugins.conformance import is_critical
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin


class Conformance(Plugin):
    name = "conformance"
    doc = "Spares system-critical pods and those of kube-system."

    def open(self, session: Session) -> None:
        session.register(self.name, preemptable=self.evictable, reclaimable=self.evictable)

    def evictable(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        return [task for task in tasks if not is_critical(task.pod)]
