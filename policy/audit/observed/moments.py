"""The states around observed preemptions, for who asks for them one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Final

from policy.audit.observed.held import HeldStates
from policy.audit.observed.views import LAG_REVISIONS, StateAt
from policy.audit.past import Past
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from policy.store import NotFound, Store, StoreError
from policy.store.observed import FollowedRevision

_KEPT: Final = 4 * LAG_REVISIONS


class Moments:
    """The last few states are kept: a look at the one before costs nothing.

    Who writes the states gives them on (`begin`, `advance`), and shares its objects. What another
    program wrote in between, as a service does that answers a scheduler, is read from the store
    once; so are older states, each time.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._past = Past(store, cluster)
        self._newest = 0
        self._read: OrderedDict[int, Snapshot] = OrderedDict()  # from the store
        self._held: HeldStates | None = None

    def begin(self, objects: Iterable[ClusterObject], *, revision: int, state_digest: str) -> None:
        """The state at a revision, as whoever wrote it has it in memory."""
        self._held = HeldStates(objects, revision=revision, state_digest=state_digest)

    def advance(self, written: Iterable[FollowedRevision]) -> None:
        """What was written next."""
        for one in written:
            held = self._held
            if held is not None and not (self._catch_up(held, one.revision) and held.advance(one)):
                self._held = None

    def _catch_up(self, held: HeldStates, revision: int) -> bool:
        """Take what others wrote before a revision; False where that is not there as written."""
        if revision <= held.last + 1:
            return True
        try:
            steps = self._store.state.steps(self._cluster, held.last, revision - 1)
        except StoreError:
            return False
        return all(step.intact and held.advance(step) for step in steps)

    @property
    def begun(self) -> bool:
        return self._held is not None

    def at(self, now_ms: int) -> StateAt:
        """The states, looked at at one instant; those of an earlier call are done with."""
        if self._held is not None:
            self._held.rest()
        return partial(self._state, now_ms)

    def _state(self, now_ms: int, revision: int) -> Snapshot:
        """Raises NotFound, Damaged, StoreError."""
        held = self._held
        if held is not None and held.first <= revision <= held.last:
            return held.at(revision, now_ms)
        if held is not None and revision > held.last:
            # What another program wrote since is known with the next revision.
            raise NotFound(f"there is no revision {revision} yet")
        return self._stored(revision).at(now_ms)

    def _stored(self, revision: int) -> Snapshot:
        known = self._read.get(revision)
        if known is not None:
            return known
        # Those before it may be wanted next, and lie on the way.
        first = max(1, revision - LAG_REVISIONS)
        if first <= self._newest < revision:
            first = self._newest + 1
        for number in range(first, revision + 1):
            if number not in self._read:
                self._read[number] = self._past.at(number, now_ms=0)
            self._read.move_to_end(number)
            self._newest = number
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return self._read[revision]
