"""conformance: pods that the cluster itself needs are never evicted.

The class that counts is the pod's own, not that of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from policy.batch.model import Task
from policy.batch.plugins.base import Plugin
from policy.batch.views import PluginView
from policy.cluster.objects import Pod
from policy.cluster.tables import Bools

CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})
NAMESPACE: Final = "kube-system"


class Conformance(Plugin):
    name = "conformance"
    doc = "Spares pods of the two system-critical classes and of namespace kube-system."

    def open(self, session: PluginView) -> None:
        self._free = np.array([not is_critical(t.pod) for t in session.tasks], dtype=np.bool_)
        session.register(
            self.name,
            preemptable=self.evictable,
            preemptable_tasks=self.evictable_tasks,
            reclaimable=self.evictable,
            reclaimable_tasks=self.evictable_tasks,
        )

    def evictable(self, claimant: Task, tasks: Sequence[Task]) -> list[Task]:
        return [t for t in tasks if not is_critical(t.pod)]

    def evictable_tasks(self, claimant: Task) -> Bools:
        return self._free


def is_critical(pod: Pod) -> bool:
    return (
        pod.spec.priority_class_name in CRITICAL
        or (pod.metadata.namespace or "default") == NAMESPACE
    )
