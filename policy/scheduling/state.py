"""Where a cluster stands for whoever decides on it, and the two ways in which it moves on.

A snapshot and the revision that it is of are one value: a decision is recorded with the digest of
the one as made on the other, and can be replayed only where both agree. What others changed
advances the state; what was recorded here is committed to it. Nothing else changes it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Generic, Protocol, TypeVar

from policy.cluster.digest import Change, HistoryFigures
from policy.cluster.objects import ClusterObject, key_of, kind_of
from policy.cluster.snapshot import Snapshot

log = logging.getLogger("policy.scheduling")

ATTEMPTS: Final = 100
"""How often something is decided again because the cluster changed meanwhile."""


class StateMoved(Exception):  # what happened, not what went wrong
    """The cluster has a newer revision than the one that something was decided on."""


class StateLost(Exception):  # what happened, not what went wrong
    """The record is that of another past, as after a backup was restored."""


class Contended(Exception):  # told to people in the words of its message
    """The cluster kept changing while something was decided; it was not recorded."""


class Position(Protocol):
    """A revision that was written, and the digest of the state that it led to."""

    @property
    def revision(self) -> int: ...
    @property
    def state_digest(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDelta:
    """The net changes since a revision, and where they lead."""

    changes: Sequence[Change]
    revision: int
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A cluster's snapshot with the revision that it is of."""

    snapshot: Snapshot
    revision: int

    def at(self, now_ms: int, *, history: HistoryFigures | None = None) -> State:
        """The same state looked at at another instant."""
        return replace(self, snapshot=self.snapshot.at(now_ms, history=history))

    def advance(self, delta: StateDelta) -> State:
        """The state after what others changed, also where it has no net effect."""
        return self._to(delta.changes, delta)

    def commit(self, changes: Sequence[Change], recorded: Position | None) -> State:
        """The state after changes that were recorded; None for those of a dry run.

        A dry run stays at the revision that it began with: its changes are only supposed.
        """
        if recorded is None:
            return replace(self, snapshot=self.snapshot.apply(changes).packed())
        return self._to(changes, recorded)

    def supposing(self, changes: Sequence[Change]) -> State:
        """The state after changes that are to be recorded as the next revision."""
        if not changes:
            return self
        return State(snapshot=self.snapshot.apply(changes).packed(), revision=self.revision + 1)

    def _to(self, changes: Sequence[Change], position: Position) -> State:
        return State(
            snapshot=self.snapshot.apply(changes, state_digest=position.state_digest).packed(),
            revision=position.revision,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step from a state to the next, for those who follow what happens to the cluster."""

    before: Snapshot
    changes: Sequence[Change]
    after: Snapshot


T = TypeVar("T")
P = TypeVar("P", bound=Position)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(Generic[T]):
    """Something that was decided and is to be recorded."""

    state: State  #: that it was decided on
    result: T
    changes: Sequence[Change]
    #: what is to be recorded with it as the revision before, and so is in `state` by now
    taken: Sequence[Change] = ()
    taken_on: State | None = None  #: the state before that; None where nothing is taken

    @property
    def begins_on(self) -> State:
        """The newest state that was there before all of it."""
        return self.taken_on or self.state


class StateJournal(Protocol):
    """One cluster's states, as they are read and written."""

    def load(self, *, now_ms: int) -> State:
        """The newest state."""

    def delta(self, revision: int, *, state_digest: str) -> StateDelta:
        """What leads from the state at `revision` to the newest one.

        Raises StateLost where that revision is not in the record, or is of another state there.
        """

    def change(
        self,
        changes: Sequence[Change],
        *,
        source: str,
        at_ms: int,
        expected_revision: int,
        expected_digest: str,
    ) -> Position:
        """Make changes that no decision made. Raises StateMoved."""


class Commit(Protocol[R_co]):
    """The commit of what is recorded, under way: a `concurrent.futures.Future`."""

    def done(self) -> bool: ...
    def result(self) -> R_co:
        """What is recorded, when it is committed. Raises what the commit does."""

    def exception(self) -> BaseException | None:
        """Wait for it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[T, P]):
    """Things that were decided one after the other and are recorded together."""

    made: Sequence[Proposal[T]]
    leads_to: State
    commit: Commit[Sequence[P]]

    def recorded(self) -> list[tuple[Proposal[T], P]]:
        """Each with where it is recorded, when it is committed. Raises what the commit does."""
        return list(zip(self.made, self.commit.result(), strict=True))


class StateTracker:
    """The newest known state of one cluster; every change of it goes through here."""

    def __init__(
        self, journal: StateJournal, *, clock: Callable[[], int], dry_run: bool = False
    ) -> None:
        """clock: milliseconds since 1970 UTC.

        dry_run: change nothing but the state that is kept here.
        """
        self._journal = journal
        self._clock = clock
        self._dry_run = dry_run
        self._followers: list[Callable[[Transition], None]] = []
        self._ahead: deque[Row[Any, Any]] = deque()  #: rows whose commit is not known to have ended
        self._doubtful = False  #: has a commit failed since the state was read?
        self.state = journal.load(now_ms=clock())

    def follow(self, follower: Callable[[Transition], None]) -> None:
        """Call `follower` with every step that the state makes from now on, whoever made it."""
        self._followers.append(follower)

    def refresh(self) -> None:
        """Take over what others changed."""
        self.settle()
        if self._dry_run:
            return
        before = self.state.snapshot
        try:
            delta = self._journal.delta(self.state.revision, state_digest=before.state_digest)
        except StateLost as exc:
            found = self._journal.load(now_ms=before.now_ms)
            log.warning("the state is read anew: %s", exc)
            self._move(found, _differences(before, found.snapshot))
        else:
            self._move(self.state.advance(delta), delta.changes)
        self._doubtful = False

    def keep_up(self, head: int) -> None:
        """Take over what others changed, where the newest revision is none that is known here.

        Unlike `refresh` it does not wait for a commit that is under way, where that leads to it: if
        the revision is somebody else's, the commit fails. head: number of the newest revision,
        which comes before the one that is known here where the record is that of another past.
        """
        lost = head < self.state.revision
        self.settle_if_done()
        if self._doubtful or lost or head > self.supposed.revision:
            self.refresh()

    def commit(
        self,
        propose: Callable[[State], Proposal[T] | None],
        record: Callable[[Proposal[T]], P],
        *,
        subject: str,
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[Proposal[T], P | None] | None:
        """Decide something on the newest state and record it, both on the same revision.

        Where others were faster (`record` raises StateMoved) it is proposed again on the state
        that they left, unless it is not `wanted` any more: then None, as where nothing is proposed.
        In a dry run nothing is recorded. Raises Contended, naming the `subject`.
        """
        self.settle()
        if self._doubtful:
            self.refresh()
        for attempt in range(ATTEMPTS):
            if attempt and not wanted():
                return None
            proposal = propose(self.state)
            if proposal is None:
                return None
            position = None
            if not self._dry_run:
                try:
                    position = record(proposal)
                except StateMoved:
                    self._catch_up(proposal.state)
                    continue
            self._move(proposal.state.commit(proposal.changes, position), proposal.changes)
            return proposal, position
        raise _contended(subject)

    def commit_row(
        self,
        propose: Callable[[State], Proposal[T] | None],
        record: Callable[[Sequence[Proposal[T]]], Commit[Sequence[P]]],
        *,
        subject: str,
        more: Callable[[Sequence[Proposal[T]]], bool],
        again: Callable[[BaseException], None],
        ahead: int = 0,
    ) -> Row[T, P] | None:
        """Decide several things, each on the state that the one before leads to; record them all.

        It does not wait for the end of the commit: what comes next may be proposed meanwhile, on
        the state that this leads to. `settle` waits. Followers hear of a step when it is committed.

        propose: what comes next, None where nothing does. record: all of them or none. Where others
        were faster it raises StateMoved at once, and all are proposed again; or the commit does,
        and whoever waits for that has to propose them again. more: may another one be proposed
        before these are recorded? again: called before anything is proposed again because a commit
        before failed, with what it raised. ahead: commits that may be under way when `record` is
        called; it has to see to it that this one fails where one of them does and changes the
        state. None where nothing is proposed. Raises Contended, naming the `subject`. Not for a dry
        run.
        """
        for _ in range(ATTEMPTS):
            failure = self.settle_if_done()
            if failure is not None:
                again(failure)
            if self._doubtful:
                self.refresh()
            made, supposed = self._row(self.supposed, propose, more)
            if not made:
                return None
            failure = self.settle(left=ahead)
            if failure is not None:
                again(failure)
                continue
            try:
                commit = record(made)
            except StateMoved:
                self._catch_up(made[0].begins_on)
                continue
            leads_to = supposed or made[-1].state.supposing(made[-1].changes)
            row = Row(made=made, leads_to=leads_to, commit=commit)
            self._ahead.append(row)
            return row
        raise _contended(subject)

    @property
    def supposed(self) -> State:
        """The state that the commits lead to which are under way; the newest one without any."""
        return self._ahead[-1].leads_to if self._ahead else self.state

    @property
    def under_way(self) -> bool:
        """Is a commit waited for?"""
        return bool(self._ahead)

    @property
    def waiting(self) -> Iterator[Proposal[Any]]:
        """What was decided and waits for its commit."""
        return (proposal for row in self._ahead for proposal in row.made)

    @property
    def committed(self) -> State:
        """The newest state that is recorded; may be read by any thread."""
        rows, state = tuple(self._ahead), self.state
        for row in rows:
            if not row.commit.done() or row.commit.exception() is not None:
                break
            if row.leads_to.revision >= state.revision:  # the other thread may be ahead of this one
                state = row.leads_to
        return state

    def settle(self, *, left: int = 0) -> BaseException | None:
        """Wait until no more than `left` commits are under way; what one raised that failed."""
        while len(self._ahead) > left:
            failure = self._ahead[0].commit.exception()
            if failure is not None:
                self._fall_back()
                return failure
            self._follow(self._ahead[0])
            self._ahead.popleft()
        return None

    def settle_if_done(self) -> BaseException | None:
        """Keep nothing of commits that have ended; what one raised that failed."""
        done = takewhile(lambda row: row.commit.done(), self._ahead)
        return self.settle(left=len(self._ahead) - sum(1 for _ in done))

    def _fall_back(self) -> None:
        """Begin again where the first commit that is under way did, which failed.

        What was decided after it fails as well, or it was made on the same state.
        """
        for row in self._ahead:
            row.commit.exception()
        # What was derived from the state serves the next attempt as well.
        self.state = self._ahead[0].made[0].begins_on
        self._ahead.clear()
        self._doubtful = True  # some of it may be in the record all the same

    def _row(
        self,
        state: State,
        propose: Callable[[State], Proposal[T] | None],
        more: Callable[[Sequence[Proposal[T]]], bool],
    ) -> tuple[list[Proposal[T]], State | None]:
        """What is proposed, and the state that the last one leads to where one more may follow."""
        made: list[Proposal[T]] = []
        supposed: State | None = None
        while (proposal := propose(state)) is not None:
            made.append(proposal)
            supposed = None
            if not more(made):
                break
            state = supposed = proposal.state.supposing(proposal.changes)
        return made, supposed

    def _follow(self, row: Row[Any, Any]) -> None:
        """Take the steps of a row that is recorded."""
        after = [*(one.begins_on for one in row.made[1:]), row.leads_to]
        for proposal, position, then in zip(row.made, row.commit.result(), after, strict=True):
            self._move(_at(then, position), (*proposal.taken, *proposal.changes))

    def _catch_up(self, decided_on: State) -> None:
        """Others were faster than what was decided on a state: take over what they changed."""
        # What was derived from the state serves the next attempt as well.
        self.state = decided_on
        self.refresh()

    def change(self, propose: Callable[[Snapshot], Iterable[Change]], *, source: str) -> bool:
        """Change the cluster without a decision; computed again where others were faster.

        False where nothing is to be changed. Raises Contended.
        """

        def proposal(state: State) -> Proposal[None]:
            return Proposal(state=state, result=None, changes=tuple(propose(state.snapshot)))

        def record(found: Proposal[None]) -> Position:
            state = found.state
            if not found.changes:
                digest = state.snapshot.state_digest
                return StateDelta(changes=(), revision=state.revision, state_digest=digest)
            return self._journal.change(
                found.changes,
                source=source,
                at_ms=self._clock(),
                expected_revision=state.revision,
                expected_digest=state.snapshot.state_digest,
            )

        done = self.commit(proposal, record, subject=f"a step of `{source}`")
        return done is not None and bool(done[0].changes)

    def _move(self, state: State, changes: Sequence[Change]) -> None:
        before, self.state = self.state.snapshot, state
        if changes:
            step = Transition(before=before, changes=changes, after=state.snapshot)
            for follower in self._followers:
                follower(step)


def _differences(before: Snapshot, after: Snapshot) -> list[Change]:
    """What leads from one state to another one."""
    old, new = _by_key(before), _by_key(after)
    return [
        *((*which, None) for which in old if which not in new),
        *((*which, obj) for which, obj in new.items() if old.get(which) != obj),
    ]


def _by_key(snapshot: Snapshot) -> dict[tuple[str, str], ClusterObject]:
    return {(kind_of(obj), key_of(obj)): obj for obj in snapshot.objects()}


def _contended(subject: str) -> Contended:
    return Contended(f"the cluster changed {ATTEMPTS} times during {subject}; nothing was recorded")


def _at(state: State, position: Position) -> State:
    """The state that was supposed, now that it is recorded."""
    # INVARIANT: the store chains the digests of a row as the snapshots did.
    digest = state.snapshot.state_digest
    assert position.state_digest == digest, "the record is of another state"
    return replace(state, revision=position.revision)
