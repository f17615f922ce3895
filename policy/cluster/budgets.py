"""Which pods each pod disruption budget selects, and which removals would break one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policy.cluster.occupancy import PodsByNode
from policy.cluster.selectors import Selector, compile_selector
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import LABELS, NOWHERE, Bools, Ints, LabelSet, positions

_KINDS: Final = frozenset({"PodDisruptionBudget"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Budget:
    """One budget, compiled."""

    key: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str]  #: names of pods already counted as disrupted


@dataclass(slots=True, eq=False, kw_only=True)
class BudgetIndex:
    """Budgets of a snapshot, and for every label set the budgets that select it.

    Label sets are only ever added, so the answers grow and are never computed twice.
    """

    budgets: tuple[Budget, ...]
    by_namespace: dict[str, list[int]]
    allowed: Ints  #: (budgets,)
    disrupted: bool  #: some budget names pods that it counts as disrupted already
    #: CSR over label sets: (offsets, selecting), set i is selected by
    #: `selecting[offsets[i]:offsets[i + 1]]`; replaced as one, as others may decide meanwhile
    selected: tuple[Rows, Rows]

    @staticmethod
    def of(snapshot: Snapshot) -> BudgetIndex:
        index = snapshot.derived("budgets", _build)
        index._extend(snapshot.pools.labels.values)
        return index

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> BudgetIndex | None:
        if not delta.other_kinds & _KINDS:
            return self
        # Most changes of budgets are of their status: who is selected stays.
        changed = _build(after)
        if [(b.key, b.selector) for b in changed.budgets] == [
            (b.key, b.selector) for b in self.budgets
        ]:
            changed.selected = self.selected
        return changed

    def carried(self, labels: Rows) -> BudgetIndex:
        offsets, selecting = self.selected
        # Sets that are not answered yet come last, and stay so.
        known = labels[: np.searchsorted(labels, offsets.size - 1)]
        starts, counts = offsets[known], offsets[known + 1] - offsets[known]
        kept = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(kept[-1]) + np.repeat(starts - kept[:-1], counts)
        return replace(self, selected=(kept, selecting[places]))

    def _extend(self, sets: list[LabelSet]) -> None:
        offsets, selecting = self.selected
        done = offsets.size - 1
        if done == len(sets):
            return
        found = [self._selecting(s) for s in sets[done:]]
        counts = np.array([len(f) for f in found], dtype=np.int64)
        flat = np.array([i for f in found for i in f], dtype=np.int64)
        self.selected = (
            np.concatenate([offsets, offsets[-1] + np.cumsum(counts)]),
            np.concatenate([selecting, flat]),
        )

    def _selecting(self, pod: LabelSet) -> list[int]:
        if not pod.labels:
            return []
        return [
            i
            for i in self.by_namespace.get(pod.namespace, ())
            if self.budgets[i].selector.matches(pod.labels)
        ]

    def pairs(self, labels: Rows) -> tuple[Rows, Rows]:
        """All (pod, budget) pairs for pods with these label sets: positions and budget indexes.

        Positions ascend; the budgets of one pod keep their order.
        """
        offsets, selecting = self.selected
        starts, ends = offsets[labels], offsets[labels + 1]
        counts = ends - starts
        selected = np.flatnonzero(counts)
        if not selected.size:
            return selected, selected
        counts = counts[selected]
        positions = np.repeat(selected, counts)
        within = np.arange(positions.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return positions, selecting[np.repeat(starts[selected], counts) + within]

    def counts(self, labels: Rows) -> Ints:
        """Number of budgets that select pods with these label sets; shape (pods,)."""
        offsets, _ = self.selected
        return np.asarray(offsets[labels + 1] - offsets[labels])


def _build(snapshot: Snapshot) -> BudgetIndex:
    budgets: list[Budget] = []
    by_namespace: dict[str, list[int]] = {}
    for pdb in snapshot.budgets:
        selector = compile_selector(pdb.spec.selector)
        # A nil, empty or invalid selector selects nothing here, unlike elsewhere.
        if selector.nothing or selector.empty:
            continue
        namespace = pdb.metadata.namespace or "default"
        by_namespace.setdefault(namespace, []).append(len(budgets))
        budgets.append(
            Budget(
                key=f"{namespace}/{pdb.metadata.name}",
                selector=selector,
                allowed=pdb.status.disruptions_allowed,
                disrupted=frozenset(pdb.status.disrupted_pods or ()),
            )
        )
    return BudgetIndex(
        budgets=tuple(budgets),
        by_namespace=by_namespace,
        allowed=np.array([b.allowed for b in budgets], dtype=np.int64),
        disrupted=any(b.disrupted for b in budgets),
        selected=(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BudgetUse:
    """Who uses up which budget, in the order in which potential victims are counted.

    One pair per pod and budget that selects it, grouped by node and budget, most important pod
    first.
    """

    order: PodsByNode
    rows: Rows  #: (pairs,) pods
    budgets: Rows  #: (pairs,) budget indexes
    first: Rows  #: (pairs,) position of the first pair of the group

    @staticmethod
    def of(snapshot: Snapshot, order: PodsByNode, *, skip_disrupted: bool) -> BudgetUse:
        def build(snapshot: Snapshot) -> BudgetUse:
            return _budget_use(snapshot, order, skip_disrupted=skip_disrupted)

        if not any(kept is order for kept in snapshot.kept()):
            return build(snapshot)
        # The keys of an order stay the same object through deltas; they stand for the rule set.
        return snapshot.derived(("budget-use", skip_disrupted, order.keys), build)

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> BudgetUse | None:
        unmoved = any(kept is self.order for kept in after.kept())
        if not unmoved or delta.nodes_changed or delta.other_kinds & _KINDS:
            return None
        # Pods that came or went are on no node, or the order would not be the same.
        stayed = delta.rows[delta.new_node != NOWHERE]
        old, new = before.column(LABELS)[stayed], after.column(LABELS)[stayed]
        return self if np.array_equal(old, new) else None


def _budget_use(snapshot: Snapshot, order: PodsByNode, *, skip_disrupted: bool) -> BudgetUse:
    index = BudgetIndex.of(snapshot)
    none = np.zeros(0, dtype=np.int64)
    if not index.budgets:
        return BudgetUse(order=order, rows=none, budgets=none, first=none)
    rows = order.rows
    positions, budgets = index.pairs(snapshot.column(LABELS)[rows].astype(np.int64))
    if skip_disrupted and index.disrupted and positions.size:
        names = [snapshot.keys[row].split("/", 1)[1] for row in rows[positions].tolist()]
        counted = np.array(
            [n not in index.budgets[b].disrupted for n, b in zip(names, budgets, strict=True)],
            dtype=np.bool_,
        )
        positions, budgets = positions[counted], budgets[counted]
    nodes = snapshot.node[rows[positions]].astype(np.int64)
    groups = nodes * max(1, len(index.budgets)) + budgets
    by_group = np.argsort(groups, kind="stable")
    groups = groups[by_group]
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))[: groups.size]
    lengths = np.diff(np.concatenate([starts, [groups.size]]))
    return BudgetUse(
        order=order,
        rows=rows[positions[by_group]],
        budgets=budgets[by_group],
        first=np.repeat(starts, lengths) if groups.size else none,
    )


def violations(snapshot: Snapshot, use: BudgetUse, potential: Bools, *, decrement: bool) -> Bools:
    """Which potential victims would break a budget if all of them left, in importance order.

    potential: (pods,) bool. With `decrement` every pod uses up one disruption of each budget that
    selects it, node by node from the budget's own number; without, a pod violates where any of
    its budgets allows no disruption at all. Returns (pods,) bool.
    """
    flags = np.zeros(len(snapshot.pods), dtype=np.bool_)
    if not use.rows.size:
        return flags
    counted = potential[use.rows]
    allowed = BudgetIndex.of(snapshot).allowed[use.budgets]
    if decrement:
        total = _used_up(snapshot, use, potential)
        broken = counted & (total[1:] - total[use.first] > allowed)
    else:
        broken = counted & (allowed <= 0)
    flags[use.rows[broken]] = True
    return flags


def _used_up(snapshot: Snapshot, use: BudgetUse, potential: Bools) -> Ints:
    """Pairs of potential victims before each pair, and all of them; shape (pairs + 1,)."""

    def build() -> Ints:
        total = np.zeros(use.rows.size + 1, dtype=np.int64)
        np.cumsum(potential[use.rows], out=total[1:])
        return total

    return snapshot.remembered("budget-totals", (use, potential), build)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BudgetCounts:
    """What some pods use of the budgets that select them: one pair per pod and budget.

    In the order of the pods; after < 0 means that the pod would break the budget.
    """

    rows: Rows  #: (pairs,) pods
    budgets: Rows  #: (pairs,) indexes into `BudgetIndex.budgets`
    before: Ints  #: (pairs,) disruptions that more important pods of the node leave
    after: Ints  #: (pairs,) disruptions that are left with this pod gone as well

    def some(self, pairs: Bools) -> BudgetCounts:
        """Those of some of the pairs; pairs: (pairs,) bool."""
        return BudgetCounts(
            rows=self.rows[pairs],
            budgets=self.budgets[pairs],
            before=self.before[pairs],
            after=self.after[pairs],
        )


def _by_row(use: BudgetUse) -> tuple[Ints, Ints]:
    """The pairs by pod and budget, and the pod of each."""
    by_row = np.lexsort((use.budgets, use.rows))
    return by_row, use.rows[by_row]


def counted(
    snapshot: Snapshot, use: BudgetUse, potential: Bools, rows: Rows, *, decrement: bool
) -> BudgetCounts:
    """How `violations` counts the pods `rows` (distinct, all of them potential victims)."""
    if not use.rows.size:
        none = np.zeros(0, dtype=np.int64)
        return BudgetCounts(rows=none, budgets=none, before=none, after=none)
    by_row, ordered = snapshot.remembered("budget-pairs", (use,), lambda: _by_row(use))
    first = np.searchsorted(ordered, rows)
    counts = np.searchsorted(ordered, rows, side="right") - first
    pairs = by_row[positions(first, counts)]
    allowed = BudgetIndex.of(snapshot).allowed[use.budgets[pairs]]
    used = np.ones(pairs.size, dtype=np.int64)
    if decrement and pairs.size:
        total = _used_up(snapshot, use, potential)
        used = total[pairs + 1] - total[use.first[pairs]]
    return BudgetCounts(
        rows=use.rows[pairs],
        budgets=use.budgets[pairs],
        before=allowed - used + 1,
        after=allowed - used,
    )
