"""Units: what is preempted as one. Found node by node, allowed, ordered, split by budgets.

Source: kube-scheduler 1.36, workload-aware preemption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster.budgets import BudgetIndex
from policy.cluster.members import GROUP, groups_of
from policy.cluster.objects import Node, SchedulingPodGroup
from policy.cluster.pod_groups import GROUP_MODE, disruption_mode
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import LABELS, NOWHERE, PRIORITY, Bools, Ints
from policy.preemption.columns import starts_or_now
from policy.rules.group_rules import MemberPriority, UnitBudgets, UnitRules, UnitStart

_REGION: Final = "topology.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """Every unit of a snapshot, in the order found."""

    snapshot: Snapshot
    rules: UnitRules
    rows: Rows  #: pods on nodes, unit by unit, each unit's in the order found
    offsets: Rows  #: (units + 1,) unit i holds `rows[offsets[i]:offsets[i + 1]]`
    whole: Bools  #: (units,) all running pods of a group in disruption mode `PodGroup`

    def __len__(self) -> int:
        return self.offsets.size - 1

    def pods(self, unit: int) -> Rows:
        """Rows of its pods, in the order found."""
        return self.rows[self.offsets[unit] : self.offsets[unit + 1]]

    @cached_property
    def first(self) -> Rows:
        """(units,) row of the pod that was found first."""
        return self.rows[self.offsets[:-1]]

    @property
    def sizes(self) -> Ints:
        return np.diff(self.offsets)

    @cached_property
    def groups(self) -> Ints:
        """(units,) index into the pool `pod groups` of the first pod's group; NOWHERE without."""
        return self.snapshot.column(GROUP)[self.first].astype(np.int64)

    @cached_property
    def of_pool(self) -> Sequence[SchedulingPodGroup | None]:
        """The groups of the pool `pod groups`, None for one that does not exist."""
        known = groups_of(self.snapshot)
        return [known.get(key) for key in self.snapshot.pools.named("pod groups").values]

    def group(self, unit: int) -> str:
        """`namespace/name` of the group that the first pod names; "" without one."""
        names = self.snapshot.pools.named("pod groups").values
        return str(names[self.groups[unit]]) if self.groups[unit] != NOWHERE else ""

    def of_group(self, value: Sequence[int], *, without: int) -> Ints:
        """(units,) a figure of each unit's group; `value` is parallel to the pool."""
        # One slot more than groups: index NOWHERE reads the last one.
        return np.array([*value, without], dtype=np.int64)[self.groups]

    @cached_property
    def priority(self) -> Ints:
        """(units,) of a whole group its own, of a lone pod the pod's (or its group's)."""
        pods = self.snapshot.column(PRIORITY)[self.first]
        numbers = [0 if g is None else g.spec.priority or 0 for g in self.of_pool]
        exists = self.of_group([g is not None for g in self.of_pool], without=0) > 0
        by_group = exists & (self.rules.member_priority is MemberPriority.GROUP)
        return np.where(self.whole | by_group, self.of_group(numbers, without=0), pods)

    @cached_property
    def start(self) -> Ints:
        """(units,) start in milliseconds; a pod without start time counts as starting now."""
        if self.rules.start is UnitStart.OLDEST:
            return self.oldest
        return np.asarray(starts_or_now(self.snapshot, self.first))

    @cached_property
    def oldest(self) -> Ints:
        """(units,) start of each unit's oldest pod."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.minimum.reduceat(starts_or_now(self.snapshot, self.rows), self.offsets[:-1])

    def summed(self, values: NDArray[Any]) -> Ints:
        """(units,) sum over each unit's pods of a value of all pods of the snapshot."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(values[self.rows].astype(np.int64), self.offsets[:-1])


def find_units(snapshot: Snapshot, rules: UnitRules) -> Units:
    """The units of all pods on nodes, in snapshot order of the nodes, then of the pods."""
    places = node_places(snapshot)
    here = np.flatnonzero(snapshot.node >= 0)
    rows = here[np.lexsort((snapshot.rank[here], places[snapshot.node[here]]))]
    group = snapshot.column(GROUP)[rows].astype(np.int64)
    known = groups_of(snapshot)
    modes = [
        key in known and disruption_mode(known[key]) == GROUP_MODE
        for key in snapshot.pools.named("pod groups").values
    ]
    together = np.array([*modes, False], dtype=np.bool_)[group] & rules.whole_groups
    # A pod that leaves with others takes the place of the first one found of its group.
    place = np.arange(rows.size)
    firsts: dict[int, int] = {}
    for position in np.flatnonzero(together).tolist():
        place[position] = firsts.setdefault(int(group[position]), position)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    return Units(
        snapshot=snapshot,
        rules=rules,
        rows=rows[order],
        offsets=np.append(starts, rows.size),
        whole=together[order][starts],
    )


def node_places(snapshot: Snapshot) -> Ints:
    """(nodes,) place of each node: zones in turn, one node of each, nodes by name."""
    zones: dict[tuple[str, str], int] = {}
    rounds: list[int] = []
    turns: list[int] = []
    seen: dict[tuple[str, str], int] = {}
    for node in snapshot.nodes.nodes:
        zone = _zone(node)
        turns.append(zones.setdefault(zone, len(zones)))
        rounds.append(seen.get(zone, 0))
        seen[zone] = rounds[-1] + 1
    places = np.empty(len(rounds), dtype=np.int64)
    places[np.lexsort((turns, rounds))] = np.arange(len(rounds))
    return places


def _zone(node: Node) -> tuple[str, str]:
    labels = node.metadata.labels or {}
    return labels.get(_REGION, ""), labels.get(_ZONE, "")


def violating(
    units: Units, ordered: Rows, *, count: UnitBudgets, skip_disrupted: bool
) -> list[bool]:
    """Which of the units, the most important first, would break a budget; parallel to them."""
    index = BudgetIndex.of(units.snapshot)
    left = index.allowed.tolist()
    if not left:
        return [False] * ordered.size
    flags = []
    for unit in ordered.tolist():
        broken = False
        for budget in _budgets(units, unit, index, skip_disrupted=skip_disrupted):
            if count is not UnitBudgets.STATIC:
                left[budget] -= 1
            if left[budget] < 0 or (count is UnitBudgets.STATIC and left[budget] == 0):
                broken = True
                if count is UnitBudgets.STOP_AT_FIRST:
                    break
        flags.append(broken)
    return flags


def _budgets(units: Units, unit: int, index: BudgetIndex, *, skip_disrupted: bool) -> Iterator[int]:
    """The budgets that select the unit's pods, pod by pod, each pod's by namespace and name."""
    snapshot = units.snapshot
    rows = units.pods(unit)
    labels = snapshot.column(LABELS)[rows].astype(np.int64)
    positions, budgets = index.pairs(labels)
    for position, budget in zip(positions.tolist(), budgets.tolist(), strict=True):
        if skip_disrupted and index.budgets[budget].disrupted:
            name = snapshot.keys[rows[position]].split("/", 1)[1]
            if name in index.budgets[budget].disrupted:
                continue
        yield budget


def labels_of(snapshot: Snapshot, rows: Rows) -> list[Mapping[str, str]]:
    """Labels of the pods."""
    found = []
    for row in rows.tolist():
        pod = snapshot.pods[row]
        assert pod is not None
        found.append(pod.metadata.labels or {})
    return found
