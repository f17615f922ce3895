"""Who is kept first: the importance order of pods on each node, as the rule set says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster import times
from policy.cluster.occupancy import PodsByNode
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import PRIORITY, START
from policy.lazy import once
from policy.preemption.columns import Lazy, lasting_columns, starts_or_now, victim_variables
from policy.rules.expressions import Columns, History, ValueType
from policy.rules.ruleset import ImportanceKey

#: What these read never changes while a pod stays as it is, so an order by them can be kept.
_LASTING: Final = frozenset(
    {
        "victim.name",
        "victim.namespace",
        "victim.key",
        "victim.uid",
        "victim.priority",
        "victim.preemptionPolicy",
        "victim.priorityClassName",
        "victim.labels",
        "victim.annotations",
        "victim.owner",
        "victim.workload",
        "victim.schedulerName",
        "victim.phase",
        "victim.qosClass",
        "victim.cpuMilli",
        "victim.memoryBytes",
        "victim.requests",
        "victim.started",
        "victim.terminating",
        "victim.terminatingByPreemption",
    }
)
_FIRST: Final = int(np.iinfo(np.int64).min)
_LAST: Final = int(np.iinfo(np.int64).max)


#: Keys that tell pods apart and mean nothing else: equals stay equals without them.
_IDENTITY: Final = frozenset({"victim.key", "victim.uid", "victim.name"})


class Importance:
    """The importance order of one rule set on one snapshot."""

    sorts_all_again = False
    """Victims are listed by `listed` also where the reprieve left them in importance order."""

    def __init__(
        self,
        snapshot: Snapshot,
        keys: tuple[ImportanceKey, ...],
        variables: Lazy,
        history: History,
    ) -> None:
        self.snapshot = snapshot
        self._keys = keys
        self._columns = Columns(len(snapshot.pods), variables, history)

    def order(self) -> PodsByNode:
        """Pods of each node from the most important down; snapshot order ends every order."""
        if self.lasting:
            return PodsByNode.of(
                self.snapshot,
                ("importance", self._keys),
                partial(_lasting_keys, self._keys),
                # Texts sort by their ranks among the values that there are in a snapshot.
                comparable=all(
                    key.expression.source.strip() == "victim.key"
                    or key.expression.type is not ValueType.STRING
                    for key in self._keys
                ),
                reads=partial(_read, self._keys) if _known(self._keys) else None,
            )
        return PodsByNode.build(
            self.snapshot,
            lambda s, rows: [*(self._values(key, rows) for key in self._keys), s.rank[rows]],
        )

    def listed(self, rows: Rows, groups: Rows) -> Rows:
        """Positions that list pods by importance within their groups.

        rows: pods in the order of their reprieve; groups: (rows,) ascending. Pods that are equal
        but for their name stay in that order: the sort of the original is stable for up to twelve.
        """
        return np.lexsort((*reversed(self.values(rows)), groups))

    def values(self, rows: Rows) -> list[NDArray[np.int64]]:
        """Sort keys of the pods, most significant first, without those that only name a pod."""
        return [
            self._values(key, rows)
            for key in self._keys
            if key.expression.source.strip() not in _IDENTITY
        ]

    def keys(self, rows: Rows) -> list[NDArray[np.int64]]:
        """Sort keys that leave no two pods equal, most significant first."""
        return [
            *(self._values(key, rows) for key in self._keys),
            self.snapshot.rank[rows].astype(np.int64),
        ]

    def deciding_keys(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        """For each pair of pods (rows) the key that puts one ahead of the other, as expression."""
        named = ["victim.key"] * len(pairs)
        undecided = list(range(len(pairs)))
        for key in self._keys:
            if not undecided:
                break
            rows = np.array([pairs[place] for place in undecided], dtype=np.int64)
            values = self._values(key, rows.ravel()).tolist()
            equal = []
            for place, one, other in zip(undecided, values[::2], values[1::2], strict=True):
                if one == other:
                    equal.append(place)
                else:
                    named[place] = key.expression.source.strip()
            undecided = equal
        return named

    @once
    def lasting(self) -> bool:
        """Does the order hold for as long as the pods stay as they are?

        A pod without start time counts as started now: behind every other, unless one of them
        starts at this very instant (they are equal then) or in the future.
        """
        start = self.snapshot.column(START)
        latest = self.snapshot.remembered(
            "latest-start", (start,), lambda: int(start.max()) if start.size else times.MISSING
        )
        return latest < self.snapshot.now_ms and all(
            key.expression.source.strip() == "victim.startTime"
            or (set(key.expression.variables) <= _LASTING and not key.expression.history_needs)
            for key in self._keys
        )

    def _values(self, key: ImportanceKey, rows: Rows) -> NDArray[np.int64]:
        return _directed(key, _plain_values(self.snapshot, key, self._columns, rows))


def _known(keys: tuple[ImportanceKey, ...]) -> bool:
    """Are the columns known that the keys read?"""
    return all(name in _OWN or lasting_columns(name) for name in _names(keys))


def _read(keys: tuple[ImportanceKey, ...], snapshot: Snapshot) -> list[object]:
    """The columns of the snapshot that the keys read."""
    found: list[object] = []
    for name in _names(keys):
        if name == "victim.startTime":
            found.append(snapshot.column(START))
        elif name not in _OWN:
            columns = lasting_columns(name)
            assert columns is not None
            found += columns(snapshot)
    return found


def _names(keys: tuple[ImportanceKey, ...]) -> set[str]:
    return {name for key in keys for name in key.expression.variables}


_OWN: Final = frozenset({"victim.startTime", "victim.key"})
"""`victim.key` reads the row's own name, which no pod ever changes."""


_PLAIN: Final[Mapping[str, Callable[[Snapshot, Rows], NDArray[Any]]]] = {
    "victim.key": lambda s, rows: s.rank[rows],
    "victim.priority": lambda s, rows: s.column(PRIORITY)[rows],
    "victim.startTime": starts_or_now,
}
"""What most keys are: columns that need no expression."""


def _directed(key: ImportanceKey, values: NDArray[np.int64]) -> NDArray[np.int64]:
    # Bitwise not reverses the order without overflow at the smallest integer.
    return ~values if key.descending else values


def _plain_values(
    snapshot: Snapshot, key: ImportanceKey, columns: Columns, rows: Rows
) -> NDArray[np.int64]:
    plain = _PLAIN.get(key.expression.source.strip())
    if plain is not None:
        return np.asarray(plain(snapshot, rows))
    found = key.expression.evaluate(columns.take(rows.astype(np.intp, copy=False)))
    # Fails closed: a pod without a value is kept as if it were the most important.
    best = _LAST if key.descending else _FIRST
    return found.broadcast(rows.size).order_keys(errors_as=best)


def _lasting_keys(
    keys: tuple[ImportanceKey, ...], snapshot: Snapshot, rows: Rows
) -> list[NDArray[Any]]:
    """Sort keys that can be asked of every snapshot that follows."""
    arrays = []
    for key in keys:
        source = key.expression.source.strip()
        if source == "victim.startTime":
            start = snapshot.column(START)[rows]
            values = np.where(start == times.MISSING, _LAST, start)
        elif source == "victim.priority":  # the first key of nearly every order
            values = snapshot.column(PRIORITY)[rows]
        else:
            variables = Lazy(*victim_variables(snapshot))
            columns = Columns(len(snapshot.pods), variables)
            values = _plain_values(snapshot, key, columns, rows)
        arrays.append(_directed(key, values))
    return [*arrays, snapshot.rank[rows]]
