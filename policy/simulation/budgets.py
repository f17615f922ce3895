"""The disruption controller's part: how many pods each budget still allows to be disrupted.

Source: Kubernetes' disruption controller, `status.disruptionsAllowed`: the healthy pods beyond the
desired number. How many are desired stays what the budget's status says at the start; where the
status holds the allowed number alone, as many as were healthy then, less that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.objects import Pod, PodDisruptionBudget, key_of
from policy.cluster.selectors import Selector, compile_selector
from policy.cluster.snapshot import Snapshot
from policy.scheduling.state import Transition


@dataclass(slots=True)
class _Watched:
    selector: Selector
    namespace: str
    healthy: int = 0
    desired: int = 0

    def selects(self, pod: Pod) -> bool:
        return (
            (pod.metadata.namespace or "default") == self.namespace
            and bool(pod.metadata.labels)
            and self.selector.matches(pod.metadata.labels or {})
        )


class DisruptionController:
    """Follows the pods of the budgets, and says which statuses have to change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets: dict[str, _Watched] = {}
        for budget in snapshot.budgets:
            selector = compile_selector(budget.spec.selector)
            if not (selector.nothing or selector.empty):
                namespace = budget.metadata.namespace or "default"
                self._budgets[key_of(budget)] = _Watched(selector, namespace)
        if self._budgets:
            for _, _, pod in snapshot.in_order():
                self._count(pod, 1)
        for key, watched in self._budgets.items():
            status = _budget(snapshot, key).status
            counted = status.expected_pods > 0
            allowed = watched.healthy - status.disruptions_allowed
            watched.desired = status.desired_healthy if counted else max(0, allowed)

    def follow(self, step: Transition) -> None:
        """Take over a step of the cluster."""
        if not self._budgets:
            return
        for key in {key: None for kind, key, _ in step.changes if kind == "Pod"}:
            before, after = step.before.pod(key), step.after.pod(key)
            if before is not None:
                self._count(before, -1)
            if after is not None:
                self._count(after, 1)

    def changes(self, snapshot: Snapshot) -> Iterator[Change]:
        """Budgets whose status is another one now."""
        for key, watched in self._budgets.items():
            if key not in snapshot.of_kind("PodDisruptionBudget"):
                continue  # the trace took it away
            budget = _budget(snapshot, key)
            allowed = max(0, watched.healthy - watched.desired)
            if budget.status.disruptions_allowed != allowed:
                status = replace(
                    budget.status, disruptions_allowed=allowed, current_healthy=watched.healthy
                )
                yield "PodDisruptionBudget", key, replace(budget, status=status)

    def _count(self, pod: Pod, amount: int) -> None:
        if not pod.spec.node_name or pod.metadata.deletion_timestamp:
            return
        for watched in self._budgets.values():
            if watched.selects(pod):
                watched.healthy += amount


def _budget(snapshot: Snapshot, key: str) -> PodDisruptionBudget:
    found = snapshot.of_kind("PodDisruptionBudget")[key]
    assert isinstance(found, PodDisruptionBudget)
    return found
