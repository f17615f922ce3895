"""Budgets as the disruption controller sets them while pods go and come.

A healthy pod is one that runs on a node and is not leaving; what its readiness probe would say is
not known. `desiredHealthy` stays what it was: owners make their pods again, and the scale that it
is computed from does not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from policy.cluster.budgets import BudgetIndex
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Pod, PodDisruptionBudget, key_of
from policy.cluster.snapshot import Snapshot

KIND = "PodDisruptionBudget"


def with_budgets(snapshot: Snapshot, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes, and those of the budgets that follow from them."""
    return (*changes, *budgets_after(snapshot, changes))


def budgets_after(snapshot: Snapshot, changes: Sequence[Change]) -> tuple[Change, ...]:
    """What becomes of the budgets of a snapshot through changes of its pods, in the order of names.

    Budgets that the changes set themselves are left to them.
    """
    set_already = {key for kind, key, _ in changes if kind == KIND}
    index = BudgetIndex.of(snapshot)
    deltas: dict[int, int] = {}
    for kind, key, after in changes:
        if kind == "Pod":
            _count(deltas, index, snapshot.pod(key), -1)
            _count(deltas, index, after, 1)
    touched = {index.budgets[i].key: (i, delta) for i, delta in deltas.items() if delta}
    if not touched:
        return ()
    found: list[Change] = []
    for budget in snapshot.budgets:
        key = key_of(budget)
        if key in touched and key not in set_already:
            i, delta = touched[key]
            found.append((KIND, key, _moved(snapshot, index, i, budget, delta)))
    return tuple(sorted(found, key=lambda change: change[1]))


def _count(
    deltas: dict[int, int], index: BudgetIndex, pod: ClusterObject | None, sign: int
) -> None:
    if not isinstance(pod, Pod) or not _healthy(pod):
        return
    labels = pod.metadata.labels or {}
    for i in index.by_namespace.get(pod.metadata.namespace or "default", ()) if labels else ():
        if index.budgets[i].selector.matches(labels):
            deltas[i] = deltas.get(i, 0) + sign


def _healthy(pod: Pod) -> bool:
    return bool(
        pod.spec.node_name
        and not pod.metadata.deletion_timestamp
        and pod.status.phase in ("", "Running")
    )


def _moved(
    snapshot: Snapshot, index: BudgetIndex, number: int, budget: PodDisruptionBudget, delta: int
) -> PodDisruptionBudget:
    status = budget.status
    if not (status.expected_pods or status.current_healthy or status.desired_healthy):
        # A status that only says what is allowed: what is desired follows from who is healthy.
        healthy: dict[int, int] = {}
        for _, _, pod in snapshot.in_order():
            _count(healthy, index, pod, 1)
        current = healthy.get(number, 0)
        status = replace(
            status,
            current_healthy=current,
            expected_pods=current,
            desired_healthy=max(0, current - status.disruptions_allowed),
        )
    current = max(0, status.current_healthy + delta)
    allowed = max(0, current - status.desired_healthy)
    return replace(
        budget, status=replace(status, current_healthy=current, disruptions_allowed=allowed)
    )
