"""Which pods of a snapshot name which pod group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.objects import Pod, SchedulingPodGroup
from policy.cluster.pod_groups import GROUP_MODE, KIND, disruption_mode, group_key
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import NOWHERE, PodColumn, Pools, terminated


def _group_id(pod: Pod, pools: Pools) -> int:
    key = group_key(pod)
    return pools.named("pod groups").intern(key, key) if key else -1


GROUP: Final = PodColumn(
    "pod group",
    np.int32,
    _group_id,
    parts=lambda pods: [
        (p.metadata.namespace, id(p.spec.scheduling_group)) if p.spec.scheduling_group else None
        for p in pods
    ],
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Together:
    """The running pods of each group in disruption mode `PodGroup`, on whichever nodes."""

    groups: tuple[SchedulingPodGroup, ...]
    rows: Rows  #: pods, group by group, in snapshot order
    offsets: Rows  #: (groups + 1,) group i holds `rows[offsets[i]:offsets[i + 1]]`
    of: Rows  #: (pods,) index of the pod's group; NOWHERE for a pod that leaves alone

    @staticmethod
    def on(snapshot: Snapshot) -> Together:
        members, known = Members.groups(snapshot), snapshot.of_kind(KIND)
        inputs = (members, known, snapshot.node)
        return snapshot.remembered("pods leaving together", inputs, lambda: _together(snapshot))


def _together(snapshot: Snapshot) -> Together:
    known = groups_of(snapshot)
    found: list[tuple[SchedulingPodGroup, Rows]] = []
    of = np.full(len(snapshot.pods), NOWHERE, dtype=np.int64)
    for key, rows in Members.groups(snapshot).items():
        group = known.get(key)
        running = rows[snapshot.node[rows] >= 0]
        if group is not None and running.size and disruption_mode(group) == GROUP_MODE:
            of[running] = len(found)
            found.append((group, running))
    return Together(
        groups=tuple(group for group, _ in found),
        rows=np.concatenate([np.zeros(0, dtype=np.int64), *(rows for _, rows in found)]),
        offsets=np.cumsum([0, *(rows.size for _, rows in found)], dtype=np.int64),
        of=of,
    )
