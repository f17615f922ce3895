"""Importance with another order among equals: what the original might have decided as well.

The original sorts with an unstable sort, once before the reprieve and once when the victims are
listed: pods that are equal but for their name may stand in any order, and in two different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from policy.cluster.occupancy import PodsByNode
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Ints
from policy.preemption.columns import Lazy
from policy.preemption.importance import Importance
from policy.rules.expressions import History
from policy.rules.ruleset import ImportanceKey


class TiedImportance(Importance):
    """The rule set's importance order; places decide among pods that are equal but for their name.

    order: before the reprieve; listing: when the victims are listed. Both map pods
    (namespace/name) to places; the others keep their place in snapshot order.
    """

    sorts_all_again = True

    def __init__(
        self,
        snapshot: Snapshot,
        keys: tuple[ImportanceKey, ...],
        variables: Lazy,
        history: History,
        *,
        order: Mapping[str, int],
        listing: Mapping[str, int],
    ) -> None:
        super().__init__(snapshot, keys, variables, history)
        self._places = _places(snapshot, order)
        self._listing = _places(snapshot, listing)

    def order(self) -> PodsByNode:
        return PodsByNode.build(
            self.snapshot,
            lambda s, rows: [*self.values(rows), self._places[rows], s.rank[rows]],
        )

    def listed(self, rows: Rows, groups: Rows) -> Rows:
        return np.lexsort((self._listing[rows], *reversed(self.values(rows)), groups))


def tied(order: Mapping[str, int], listing: Mapping[str, int]) -> Callable[..., Importance]:
    """What `decide_by` makes of a rule set's importance keys."""
    return partial(TiedImportance, order=order, listing=listing)


def _places(snapshot: Snapshot, order: Mapping[str, int]) -> Ints:
    places = snapshot.rank.copy()
    for key, place in order.items():
        row = snapshot.row(key)
        if row is not None:
            places[row] = place
    return places
