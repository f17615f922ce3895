"""States of the past, rebuilt one after the other so that neighbours share the work."""

from __future__ import annotations

from collections import deque
from typing import Final

from policy.cluster.digest import HistoryFigures
from policy.cluster.snapshot import Snapshot
from policy.store import NotFound, Store
from policy.store.state.past import RevisionStep

_AHEAD: Final = 200
"""Revisions read at once, where the later ones will be needed too."""

_FAR: Final = 200
_PODS_PER_REVISION: Final = 60
"""A state that is further ahead than `_FAR` revisions, and one more for so many pods, is loaded
whole: that takes as long as the steps would."""


class Damaged(Exception):  # what happened to a record, told in the words of its message
    """The rows of a revision do not have the digest that was recorded for them."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"the rows of revision {revision} do not have its digest")
        self.revision = revision


class Past:
    """The states of one cluster; asking in ascending order is cheap."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._state = store.state
        self._cluster = cluster
        self._until = 0
        self._snapshot: Snapshot | None = None
        self._revision = 0
        self._ahead: deque[RevisionStep] = deque()
        self._damaged: int | None = None
        self._checked: int | None = None

    def expect(self, revision: int) -> None:
        """Say that a revision will be asked for: what leads there is read in one go."""
        self._until = max(self._until, revision)

    def at(self, revision: int, *, now_ms: int, history: HistoryFigures | None = None) -> Snapshot:
        """The state at a revision, looked at at an instant with the history figures of then.

        Raises NotFound where the revision is not kept, Damaged where the rows that lead to it
        are not those that were written.
        """
        behind = revision - self._revision
        if self._snapshot is None or behind < 0 or self._is_far(behind, self._snapshot):
            self._load(revision)
        while self._revision < revision:
            self._step()
        if self._damaged is not None:
            raise Damaged(self._damaged)
        assert self._snapshot is not None
        # Kept as it is handed out: what a decision derives from it serves the next one.
        self._snapshot = self._snapshot.at(now_ms, history=history)
        return self._snapshot

    @staticmethod
    def _is_far(behind: int, snapshot: Snapshot) -> bool:
        return behind > _FAR + len(snapshot.pods) // _PODS_PER_REVISION

    def check(self, revision: int) -> None:
        """Compute everything that leads to a revision again. Raises NotFound, Damaged."""
        checked = self._checked
        if checked is None:
            checked = self._state.oldest_revision(self._cluster)
            # What was there before the oldest revision that is kept cannot be computed again.
            checked = 0 if checked == 1 else checked
        digest: str | None = None
        while checked < revision:
            last = min(checked + _AHEAD, revision)
            for step in self._state.steps(self._cluster, checked, last):
                if not step.intact or step.previous != (digest or step.previous):
                    raise Damaged(step.revision)
                digest = step.state_digest
            checked = last
        self._checked = checked

    def _load(self, revision: int) -> None:
        self._snapshot = None
        loaded, intact = self._state.load_checked(self._cluster, revision)
        self._damaged = self._damage(revision) if intact else revision
        self._snapshot = Snapshot.from_objects(
            loaded.objects, now_ms=loaded.at_ms, state_digest=loaded.state_digest
        )
        self._revision = revision
        self._ahead.clear()

    def _damage(self, revision: int) -> int | None:
        """The revision itself where its rows are not those that were written."""
        try:
            steps = self._state.steps(self._cluster, max(revision - 2, 0), revision)
        except NotFound:
            # The oldest revision that is kept: what it ended went with the revisions before it.
            return None
        return next((s.revision for s in steps if s.revision == revision and not s.intact), None)

    def _step(self) -> None:
        assert self._snapshot is not None
        if not self._ahead:
            last = min(self._revision + _AHEAD, self._until)
            self._ahead.extend(
                self._state.steps(self._cluster, self._revision, max(last, self._revision + 1))
            )
        step = self._ahead.popleft()
        before = self._snapshot
        if not step.intact or step.previous != before.state_digest:
            self._damaged = step.revision if self._damaged is None else self._damaged
        after = before.apply(step.changes, state_digest=step.state_digest)
        self._snapshot = after.packed()
        self._revision = step.revision
