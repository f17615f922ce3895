"""Which pods of a snapshot name which pod group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.objects import Pod, SchedulingPodGroup
from policy.cluster.pod_groups import GROUP_MODE, KIND, disruption_mode, group_key
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import Bools, PodColumn, Pools, terminated


def _group_id(pod: Pod, pools: Pools) -> int:
    key = group_key(pod)
    return pools.named("pod groups").intern(key, key) if key else -1


GROUP: Final = PodColumn(
    "pod group",
    np.int32,
    _group_id,
    part=lambda p: (
        (p.metadata.namespace, id(p.spec.scheduling_group)) if p.spec.scheduling_group else None
    ),
)
"""Index of the pod's group in the pool `pod groups`; NOWHERE without one."""


def groups_of(snapshot: Snapshot) -> Mapping[str, SchedulingPodGroup]:
    """The pod groups by namespace and name."""
    found = snapshot.of_kind(KIND)
    return {key: group for key, group in found.items() if isinstance(group, SchedulingPodGroup)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Members:
    """Rows of the pods that name each group; Succeeded and Failed pods do not count."""

    by_group: Mapping[str, Rows]  #: namespace/name -> rows, in snapshot order

    @staticmethod
    def of(snapshot: Snapshot, group: str) -> Rows:
        """Rows of the group's pods, pending and placed, in snapshot order."""
        found = snapshot.derived("pod group members", _members).by_group.get(group)
        return np.zeros(0, dtype=np.int64) if found is None else found

    @staticmethod
    def groups(snapshot: Snapshot) -> Mapping[str, Rows]:
        """Every group that a pod names, whether or not it exists."""
        return snapshot.derived("pod group members", _members).by_group

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> Members | None:
        known = delta.rows[: delta.rows.size - delta.added]
        touched = (before.column(GROUP)[known] >= 0).any() or (
            after.column(GROUP)[delta.rows] >= 0
        ).any()
        return None if touched else self


def _members(snapshot: Snapshot) -> Members:
    column = snapshot.column(GROUP)
    names = snapshot.pools.named("pod groups").values
    found: dict[str, list[int]] = {}
    for row, _, pod in snapshot.in_order(column >= 0):
        if not terminated(pod):
            found.setdefault(names[column[row]], []).append(row)
    return Members(by_group={key: np.array(rows, np.int64) for key, rows in found.items()})


def leaving_together(snapshot: Snapshot) -> Bools:
    """Pods on nodes of groups in disruption mode `PodGroup` that have several; shape (pods,)."""
    together = np.zeros(len(snapshot.pods), dtype=np.bool_)
    groups = groups_of(snapshot)
    for key, rows in Members.groups(snapshot).items():
        group = groups.get(key)
        running = rows[snapshot.node[rows] >= 0]
        if group is not None and running.size > 1 and disruption_mode(group) == GROUP_MODE:
            together[running] = True
    return together
