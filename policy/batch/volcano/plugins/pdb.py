"""pdb: victims never take a pod disruption budget below what it allows.

Pods without labels are never victims: the original drops them from its answer.

Source: Volcano `pkg/scheduler/plugins/pdb`.
"""

from __future__ import annotations

from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin
from policy.cluster.selectors import compile_selector


class Pdb(Plugin):
    name = "pdb"
    doc = "Spares pods whose disruption budget allows no further eviction."

    def open(self, session: Session) -> None:
        self._budgets = [
            (
                budget.metadata.namespace or "default",
                compile_selector(budget.spec.selector),
                budget.status.disruptions_allowed,
            )
            for budget in session.snapshot.budgets
        ]
        session.register(
            self.name,
            preemptable=lambda claimant, tasks: self.allowed(tasks),
            reclaimable=lambda claimant, tasks: self.allowed(tasks),
            victims=self.allowed,
        )

    def allowed(self, tasks: list[Task]) -> list[Task]:
        left = [allowed for _, _, allowed in self._budgets]
        found = []
        for task in tasks:
            meta = task.pod.metadata
            if not meta.labels:
                continue
            spared = False
            for i, (namespace, selector, _) in enumerate(self._budgets):
                matches = namespace == (meta.namespace or "default") and (
                    not selector.empty and selector.matches(meta.labels)
                )
                if matches:
                    left[i] -= 1
                    spared |= left[i] < 0
            if not spared:
                found.append(task)
        return found
