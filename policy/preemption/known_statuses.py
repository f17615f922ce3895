"""The statuses that a class of equal pods has met (`classes`), by number.

A node's status is kept as a number that means the same for as long as the class lasts. A decision
lists statuses in the order in which the filters give them, which depends on the ones that there
are and on nothing else: it is found once for each set of them, from one node of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.filters.pipeline import NONE_JUDGED, Judged, StatusOfNode


class KnownStatuses:
    """The statuses that were met, and the order in which the filters list them."""

    def __init__(self) -> None:
        self._ids: dict[StatusOfNode, int] = {}
        self._orders: dict[tuple[bool, bytes], Judged] = {}

    def ids_of(self, judged: Judged) -> NDArray[np.int32]:
        """The number of each node's status."""
        return self.ids(judged.statuses)[judged.index]

    def ids(self, statuses: Iterable[StatusOfNode]) -> NDArray[np.int32]:
        """The number of each status."""
        ids = [self._ids.setdefault(status, len(self._ids)) for status in statuses]
        return np.array(ids, dtype=np.int32)

    def ordered(
        self,
        status: NDArray[np.int32],
        nodes: Rows,
        judge: Callable[[Rows], Judged],
        *,
        nominated: Rows,
    ) -> Judged:
        """What the filters would say of some nodes at once.

        status: (n,) of the nodes, as `ids_of` numbers them. judge: asks the filters about a few
        nodes. nominated: one more node, that has nominated pods, where there are any and some of
        the nodes pass.
        """
        if not nodes.size:
            return NONE_JUDGED
        there = np.bincount(status, minlength=len(self._ids)).nonzero()[0]
        key = (bool(nominated.size), there.tobytes())
        order = self._orders.get(key)
        if order is None:
            # One node of each status, and one with a nominated pod where there are any, are
            # judged together: the order of statuses does not depend on how many nodes have them.
            first = nodes[[int(np.argmax(status == i)) for i in there.tolist()]]
            judged = judge(np.concatenate([first, nominated]))
            places = np.zeros(len(self._ids), dtype=np.int64)
            places[there] = judged.index[: there.size]
            codes = np.zeros(len(self._ids), dtype=np.int8)
            codes[there] = judged.codes[: there.size]
            order = Judged(codes=codes, index=places, statuses=judged.statuses)
            self._orders[key] = order
        return Judged(
            codes=order.codes.take(status), index=order.index.take(status), statuses=order.statuses
        )
