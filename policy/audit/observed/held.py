"""The latest states of a cluster in the memory of whoever writes them."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from policy.audit.observed.views import LAG_REVISIONS
from policy.cluster.budgets import BudgetIndex
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from policy.store.observed import FollowedRevision
from policy.store.state.past import RevisionStep

_MOST_CHANGES: Final = 10_000
"""Changes that are kept apart in memory; beyond, the older half of them becomes one state."""

_KEPT: Final = 2 * LAG_REVISIONS + 4
"""States that are kept while one preemption is looked at: those around it."""

_RESTING: Final = 4
"""Of these the last used that are kept for the next preemption. In a large cluster each is tens of
megabytes."""


class HeldStates:
    """A state, the revisions after it, and the last few states that were wanted.

    What a decision derived from one of these serves the later states, which are made of it.
    """

    def __init__(
        self, objects: Iterable[ClusterObject], *, revision: int, state_digest: str
    ) -> None:
        self._base = _prepared(Snapshot.from_objects(objects, now_ms=0, state_digest=state_digest))
        self._steps: deque[FollowedRevision | RevisionStep] = deque()
        self._changes = 0
        self._packing: _Packing | None = None
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()  # by revision, the last used last
        self.first = revision

    @property
    def last(self) -> int:
        return self.first + len(self._steps)

    def advance(self, step: FollowedRevision | RevisionStep) -> bool:
        """Whether it is the revision after the last one; it is taken then."""
        if step.revision != self.last + 1:
            return False
        self._take_packed()
        self._steps.append(step)
        self._changes += len(step.changes)
        if self._changes > _MOST_CHANGES:
            self._fold()
        return True

    def rest(self) -> None:
        """What was wanted so far is done with."""
        self._keep_last(_RESTING)

    def at(self, revision: int, now_ms: int) -> Snapshot:
        """The state at one of the revisions from `first` to `last`, looked at at an instant."""
        near = max((one for one in self._kept if one <= revision), default=self.first)
        if revision - near > LAG_REVISIONS:
            # Those before it may be wanted next: they are made of this one.
            self._keep(revision - LAG_REVISIONS, self._state(revision - LAG_REVISIONS))
        return self._keep(revision, self._state(revision).at(now_ms))

    def _keep(self, revision: int, state: Snapshot) -> Snapshot:
        self._kept[revision] = state
        self._kept.move_to_end(revision)
        self._keep_last(_KEPT)
        return state

    def _keep_last(self, number: int) -> None:
        while len(self._kept) > number:
            self._kept.popitem(last=False)

    def _state(self, revision: int) -> Snapshot:
        """The state at a revision, made of the nearest one that is kept."""
        near = max((one for one in self._kept if one <= revision), default=self.first)
        state = self._kept.get(near, self._base)
        if near == revision:
            return state
        steps = list(islice(self._steps, near - self.first, revision - self.first))
        changes = [change for step in steps for change in step.changes]
        return state.apply(changes, state_digest=steps[-1].state_digest)

    def _fold(self) -> None:
        number, changes = 0, 0
        while changes * 2 < _MOST_CHANGES:
            changes += len(self._steps[number].changes)
            number += 1
        self._base = self._state(self.first + number)
        for _ in range(number):
            self._steps.popleft()
        self._changes -= changes
        self.first += number
        for revision in [one for one in self._kept if one < self.first]:
            del self._kept[revision]
        self._packing = _Packing(self._base)

    def _take_packed(self) -> None:
        """Take the packed state, once it is there; later ones are made of it from then on."""
        if self._packing is None or self._packing.is_alive():
            return
        if self._packing.snapshot is not self._base:
            self._base = self._packing.snapshot
            self._kept.clear()
        self._packing = None


class _Packing(threading.Thread):
    """A state packed beside the work, which takes seconds where it is large."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(name="packing", daemon=True)
        self.snapshot = snapshot
        self.start()

    def run(self) -> None:
        packed = self.snapshot.packed()
        if packed is not self.snapshot:
            self.snapshot = _prepared(packed)


def _prepared(snapshot: Snapshot) -> Snapshot:
    """With what all states after it share, and what is slow to find of each of them anew."""
    BudgetIndex.of(snapshot)
    return snapshot
