"""Which pods each pod disruption budget selects, and which removals would break one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.selectors import Selector, compile_selector
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import LABELS, Bools, Ints, LabelSet

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
    #: CSR over label sets: set i is selected by `selecting[offsets[i]:offsets[i + 1]]`
    offsets: Rows
    selecting: Rows

    @staticmethod
    def of(snapshot: Snapshot) -> BudgetIndex:
        index = snapshot.derived("budgets", _build)
        index._extend(snapshot.pools.labels.values)
        return index

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> BudgetIndex | None:
        return None if delta.other_kinds & _KINDS else self

    def _extend(self, sets: list[LabelSet]) -> None:
        done = self.offsets.size - 1
        if done == len(sets):
            return
        found = [self._selecting(s) for s in sets[done:]]
        counts = np.array([len(f) for f in found], dtype=np.int64)
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + np.cumsum(counts)])
        flat = np.array([i for f in found for i in f], dtype=np.int64)
        self.selecting = np.concatenate([self.selecting, flat])

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
        starts, ends = self.offsets[labels], self.offsets[labels + 1]
        counts = ends - starts
        selected = np.flatnonzero(counts)
        if not selected.size:
            return selected, selected
        counts = counts[selected]
        positions = np.repeat(selected, counts)
        within = np.arange(positions.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return positions, self.selecting[np.repeat(starts[selected], counts) + within]

    def counts(self, labels: Rows) -> Ints:
        """Number of budgets that select pods with these label sets; shape (pods,)."""
        return np.asarray(self.offsets[labels + 1] - self.offsets[labels])


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
        offsets=np.zeros(1, dtype=np.int64),
        selecting=np.zeros(0, dtype=np.int64),
    )


def violating(
    snapshot: Snapshot, rows: Rows, groups: Rows, *, decrement: bool, skip_disrupted: bool
) -> Bools:
    """Which potential victims would break a budget if all of them left, in this order.

    rows: pods grouped by node and in importance order within each node; groups: (rows,) node of
    each, ascending. With `decrement` every pod uses up one disruption of each budget that selects
    it, node by node from the budget's own number; without, a pod violates where any of its
    budgets allows no disruption at all. Returns (rows,) bool.
    """
    result = np.zeros(rows.size, dtype=np.bool_)
    index = BudgetIndex.of(snapshot)
    if not index.budgets or not rows.size:
        return result
    positions, budgets = index.pairs(snapshot.column(LABELS)[rows].astype(np.int64))
    if not positions.size:
        return result
    if skip_disrupted and index.disrupted:
        names = [snapshot.keys[row].split("/", 1)[1] for row in rows[positions].tolist()]
        counted = np.array(
            [n not in index.budgets[b].disrupted for n, b in zip(names, budgets, strict=True)],
            dtype=np.bool_,
        )
        positions, budgets = positions[counted], budgets[counted]
    allowed = index.allowed[budgets]
    if not decrement:
        result[positions[allowed <= 0]] = True
        return result
    keys = groups[positions] * len(index.budgets) + budgets
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.concatenate([starts, [ordered.size]]))
    used = np.arange(ordered.size) - np.repeat(starts, lengths) + 1
    broken = used > allowed[order]
    result[positions[order[broken]]] = True
    return result
