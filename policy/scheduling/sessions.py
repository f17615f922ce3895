"""The cycle of batch sessions: snapshot, session and record joined.

Like the cycle of single decisions: a session and the changes it makes are one step of the journal,
which refuses it where the cluster has changed since the snapshot was taken. What changed is then
read, and the session is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from policy.batch.changes import passed
from policy.batch.result import SessionResult
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cluster.digest import Change
from policy.cluster.objects import PodGroup
from policy.cluster.snapshot import Snapshot
from policy.scheduling.cycle import Contended, StateMoved

ATTEMPTS: Final = 100

SOURCE: Final = "settle"
"""Source of the revisions that are written between two sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecording:
    """Where a session was kept, and the state that it led to."""

    session_id: int
    revision: int
    state_digest: str


class SessionJournal(Protocol):
    """One cluster's state and history, as sessions need it."""

    def load(self, *, now_ms: int) -> tuple[Snapshot, int]:
        """The newest state, and its revision."""

    def catch_up(self, snapshot: Snapshot, revision: int) -> tuple[Snapshot, int]:
        """The newest state, from the one at `revision`."""

    def record_session(
        self,
        result: SessionResult,
        queues: Mapping[str, str],
        *,
        now_ms: int,
        expected_revision: int,
        rules: BatchRules,
    ) -> SessionRecording:
        """Keep the session and make its changes, both or neither. Raises StateMoved.

        queues: job -> queue.
        """

    def change(
        self, changes: Sequence[Change], *, source: str, at_ms: int, expected_revision: int
    ) -> tuple[int, str]:
        """Make changes that no session made; the revision and its state digest.

        Raises StateMoved.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One session that was held; `recording` is None in a dry run."""

    now_ms: int
    base_revision: int
    result: SessionResult
    queues: Mapping[str, str]  #: job -> queue
    recording: SessionRecording | None


class SessionScheduler:
    """Holds sessions on one cluster, each on the state that the last one left."""

    def __init__(
        self,
        journal: SessionJournal,
        rules: BatchRules,
        *,
        clock: Callable[[], int],
        dry_run: bool = False,
    ) -> None:
        """clock: milliseconds since 1970 UTC, asked once per session."""
        self._journal = journal
        self._rules = rules
        self._clock = clock
        self._dry_run = dry_run
        self._snapshot, self._revision = journal.load(now_ms=clock())

    @property
    def snapshot(self) -> Snapshot:
        """The state that the next session is held on."""
        return self._snapshot

    def run(self) -> Held:
        """Hold one session and keep it. Raises Contended where others keep changing the cluster."""
        for _ in range(ATTEMPTS):
            now_ms = self._clock()
            snapshot = self._snapshot.at(now_ms)
            result = run_session(snapshot, self._rules)
            queues = queues_of(snapshot, result, self._rules)
            base = self._revision
            recording: SessionRecording | None = None
            if not self._dry_run:
                try:
                    recording = self._journal.record_session(
                        result, queues, now_ms=now_ms, expected_revision=base, rules=self._rules
                    )
                except StateMoved:
                    self._snapshot, self._revision = self._journal.catch_up(snapshot, base)
                    continue
                self._revision = recording.revision
            digest = None if recording is None else recording.state_digest
            self._snapshot = snapshot.apply(result.changes, state_digest=digest).packed()
            return Held(
                now_ms=now_ms,
                base_revision=base,
                result=result,
                queues=queues,
                recording=recording,
            )
        raise Contended(
            f"the cluster changed {ATTEMPTS} times during the session; nothing was recorded"
        )

    def until_settled(self) -> Iterator[Held]:
        """Sessions until one leaves nobody who is going and nobody who has yet to start.

        Between two of them leaving pods go and placed pods start; nobody makes new pods in their
        stead, so it comes to an end. Raises Contended.
        """
        while True:
            yield self.run()
            between = tuple(passed(self._snapshot))
            if not between:
                return
            self._change(between)

    def _change(self, changes: Sequence[Change]) -> None:
        digest: str | None = None
        if not self._dry_run:
            try:
                self._revision, digest = self._journal.change(
                    changes,
                    source=SOURCE,
                    at_ms=self._clock(),
                    expected_revision=self._revision,
                )
            except StateMoved as moved:
                raise Contended(
                    "somebody else changed the cluster between two sessions; it ends here"
                ) from moved
        self._snapshot = self._snapshot.apply(changes, state_digest=digest).packed()


def queues_of(snapshot: Snapshot, result: SessionResult, rules: BatchRules) -> dict[str, str]:
    """The queue of every job that the result names; "" where it is in none."""
    groups = snapshot.of_kind("PodGroup")
    named = {step.job for step in result.steps}.union(result.drf, result.pod_groups, result.reasons)
    found = {}
    for job in sorted(named):
        reason, group = result.reasons.get(job), groups.get(job)
        if reason is not None:
            found[job] = reason.queue
        elif isinstance(group, PodGroup) and group.spec.queue:
            found[job] = group.spec.queue
        else:
            found[job] = rules.naming.default_queue
    return found
