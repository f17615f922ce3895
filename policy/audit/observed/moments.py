"""The states around observed preemptions, for who asks for them one after the other."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from policy.audit.observed.views import LAG_REVISIONS, StateAt
from policy.audit.past import Past
from policy.cluster.snapshot import Snapshot
from policy.store import Store

_KEPT: Final = 4 * LAG_REVISIONS


class Moments:
    """The last few states are kept: a look at the one before costs nothing.

    Going on is cheap; going further back than what is kept reads a whole state.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._past = Past(store, cluster)
        self._newest = 0
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()

    def at(self, now_ms: int) -> StateAt:
        """The states, looked at at one instant."""
        return lambda revision: self._state(revision).at(now_ms)

    def _state(self, revision: int) -> Snapshot:
        """Raises NotFound, Damaged, StoreError."""
        known = self._kept.get(revision)
        if known is not None:
            return known
        # Those before it may be wanted next, and lie on the way.
        first = max(1, revision - LAG_REVISIONS)
        if first <= self._newest < revision:
            first = self._newest + 1
        for number in range(first, revision + 1):
            self._keep(number)
        return self._kept[revision]

    def _keep(self, number: int) -> None:
        self._kept[number] = self._past.at(number, now_ms=0)
        self._newest = number
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
