"""The cycle of batch sessions: snapshot, session and record joined.

Like the cycle of single decisions: a session and the changes it makes are one step of the journal,
which refuses it where the cluster has changed since the snapshot was taken. What changed is then
read, and the session is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from policy.batch.result import SessionResult
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cluster.objects import PodGroup
from policy.cluster.snapshot import Snapshot
from policy.scheduling.consequences import passed
from policy.scheduling.cycle import SessionRecording
from policy.scheduling.settle import SOURCE
from policy.scheduling.state import Proposal, State, StateJournal, StateTracker


class SessionJournal(StateJournal, Protocol):
    """One cluster's state and history, as sessions need it."""

    def active_batch_rules(self) -> BatchRules | None:
        """The rules that are active in the journal's environment; None without one."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSession:
    """One session of a run; `recording` is None in a dry run."""

    before: Snapshot
    base_revision: int
    rules: BatchRules
    result: SessionResult
    queues: Mapping[str, str]  #: job -> queue
    recording: SessionRecording | None

    @property
    def now_ms(self) -> int:
        return self.before.now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _InQueues:
    """A session with its rules and the queues of its jobs."""

    rules: BatchRules
    result: SessionResult
    queues: Mapping[str, str]


class SessionScheduler:
    """Runs sessions on one cluster, each on the state the last one left."""

    def __init__(
        self,
        journal: SessionJournal,
        rules: BatchRules,
        *,
        clock: Callable[[], int],
        dry_run: bool = False,
    ) -> None:
        """clock: milliseconds since 1970 UTC, read once per session.

        rules: those of a journal without an environment; else what is active there decides.
        """
        self._journal = journal
        self._rules = rules
        self._clock = clock
        self._tracker = StateTracker(journal, clock=clock, dry_run=dry_run)

    @property
    def snapshot(self) -> Snapshot:
        """The state that the next session is run on."""
        return self._tracker.state.snapshot

    def run(self) -> CompletedSession:
        """Run one session and keep it. Raises Contended where others keep changing the cluster."""
        done = self._tracker.commit(self._propose, self._record, subject="the session")
        assert done is not None  # it was wanted all the time
        proposal, recording = done
        return CompletedSession(
            before=proposal.state.snapshot,
            base_revision=proposal.state.revision,
            rules=proposal.result.rules,
            result=proposal.result.result,
            queues=proposal.result.queues,
            recording=recording,
        )

    def _propose(self, state: State) -> Proposal[_InQueues]:
        base = state.at(self._clock())
        rules = self._journal.active_batch_rules() or self._rules
        result = run_session(base.snapshot, rules)
        queues = queues_of(base.snapshot, result, rules)
        found = _InQueues(rules=rules, result=result, queues=queues)
        return Proposal(state=base, result=found, changes=result.changes)

    def _record(self, proposal: Proposal[_InQueues]) -> SessionRecording:
        return self._journal.record_session(
            proposal.result.result,
            proposal.result.queues,
            now_ms=proposal.state.snapshot.now_ms,
            expected_revision=proposal.state.revision,
            rules=proposal.result.rules,
        )

    def until_settled(self) -> Iterator[CompletedSession]:
        """Sessions until one leaves no pod that is leaving and none that has yet to start.

        Between two of them leaving pods go and placed pods start; no new pods are made in their
        stead, so it comes to an end where others add none. What they change meanwhile takes part.
        Raises Contended.
        """
        while True:
            yield self.run()
            if not self._tracker.change(passed, source=SOURCE):
                return


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
