"""The states around observed preemptions, for who asks for them one after the other."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from policy.audit.observed.views import LAG_REVISIONS, StateAt
from policy.audit.past import Past
from policy.cluster.budgets import BudgetIndex
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from policy.store import NotFound, Store
from policy.store.observed import FollowedRevision

_KEPT: Final = 4 * LAG_REVISIONS

_MOST_CHANGES: Final = 10_000
"""Changes that are kept apart in memory; beyond, the older half of them becomes one state."""


class Moments:
    """The last few states are kept: a look at the one before costs nothing.

    Who writes the states gives them on (`begin`, `advance`), and shares its objects. Older states,
    and those that another program wrote, are read from the store.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._past = Past(store, cluster)
        self._newest = 0
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()
        self._held: _Held | None = None

    def begin(self, objects: Iterable[ClusterObject], *, revision: int, state_digest: str) -> None:
        """The state at a revision, as whoever wrote it has it in memory."""
        self._held = _Held(objects, revision=revision, state_digest=state_digest)

    def advance(self, written: Iterable[FollowedRevision]) -> None:
        """What was written next."""
        for one in written:
            if self._held is not None and not self._held.advance(one):
                # Another program wrote to the cluster in between.
                self._held = None

    @property
    def begun(self) -> bool:
        return self._held is not None

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
        held = self._held
        if held is not None and held.first <= revision <= held.last:
            for number in range(max(first, held.first), revision + 1):
                self._keep(number, lambda at: held.at(at, after=self._kept.get(at - 1)))
            return self._kept[revision]
        if held is not None and revision > held.last:
            # What another program wrote since is known with the next revision.
            raise NotFound(f"there is no revision {revision} yet")
        if first <= self._newest < revision:
            first = self._newest + 1
        for number in range(first, revision + 1):
            self._keep(number, lambda at: self._past.at(at, now_ms=0))
            self._newest = number
        return self._kept[revision]

    def _keep(self, number: int, state: Callable[[int], Snapshot]) -> None:
        if number not in self._kept:
            self._kept[number] = state(number)
        self._kept.move_to_end(number)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


class _Held:
    """A state in memory, and the revisions after it."""

    def __init__(
        self, objects: Iterable[ClusterObject], *, revision: int, state_digest: str
    ) -> None:
        self._snapshot = _prepared(
            Snapshot.from_objects(objects, now_ms=0, state_digest=state_digest)
        )
        self._steps: deque[FollowedRevision] = deque()
        self._changes = 0
        self._packing: _Packing | None = None
        self.first = revision

    @property
    def last(self) -> int:
        return self.first + len(self._steps)

    def advance(self, step: FollowedRevision) -> bool:
        """Whether it is the revision after the last one; it is taken then."""
        if step.revision != self.last + 1:
            return False
        self._pack()
        self._steps.append(step)
        self._changes += len(step.changes)
        if self._changes > _MOST_CHANGES:
            self._fold()
        return True

    def at(self, revision: int, *, after: Snapshot | None) -> Snapshot:
        """The state at a revision; after: that at the one before, where it is known."""
        number = revision - self.first
        if number == 0:
            return self._snapshot
        if after is not None:
            step = self._steps[number - 1]
            return after.apply(step.changes, state_digest=step.state_digest)
        return self._applied(number)

    def _applied(self, number: int) -> Snapshot:
        steps = [self._steps[place] for place in range(number)]
        changes: list[Change] = [change for step in steps for change in step.changes]
        return self._snapshot.apply(changes, state_digest=steps[-1].state_digest)

    def _fold(self) -> None:
        number, changes = 0, 0
        while changes * 2 < _MOST_CHANGES:
            changes += len(self._steps[number].changes)
            number += 1
        self._snapshot = self._applied(number)
        for _ in range(number):
            self._changes -= len(self._steps.popleft().changes)
        self.first += number
        self._packing = _Packing(self._snapshot)

    def _pack(self) -> None:
        """Take the packed state, once it is there."""
        if self._packing is not None and not self._packing.is_alive():
            self._snapshot, self._packing = self._packing.snapshot, None


class _Packing(threading.Thread):
    """A state packed beside the work, which takes seconds where it is large."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(name="packing", daemon=True)
        self.snapshot = snapshot
        self.start()

    def run(self) -> None:
        self.snapshot = _prepared(self.snapshot.packed())


def _prepared(snapshot: Snapshot) -> Snapshot:
    """With what all states after it share, and what is slow to find of each of them anew."""
    BudgetIndex.of(snapshot)
    return snapshot
