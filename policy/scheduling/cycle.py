"""The cycle that joins snapshot, decision and record.

A decision without its record does not exist: the record and the change it makes to the cluster
are one step of the journal, which refuses it where the cluster has changed since the snapshot was
taken. The cycle then reads what changed and decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from policy.cluster.digest import Change
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.extenders.protocol import Extenders
from policy.preemption.decide import DecisionError, decide
from policy.preemption.tally import Tally
from policy.rules.ruleset import RuleSet
from policy.scheduling.effects import changes_of
from policy.scheduling.order import DEFAULT_SCHEDULER, pending, waiting
from policy.scheduling.second_look import look_again

_ATTEMPTS: Final = 100


class StateMoved(Exception):  # what happened, not what went wrong
    """The cluster has a newer revision than the one that a decision was made on."""


class Contended(Exception):  # told to people in the words of its message
    """The cluster kept changing while a decision was made; it was not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Where a decision was kept, and the state that it led to."""

    decision_id: int
    revision: int
    state_digest: str


History: TypeAlias = Mapping[str, Mapping[str, int]]
"""Figures of the past by `function/window` and key, as a snapshot carries them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The net changes since a revision, and where they lead."""

    changes: Sequence[Change]
    revision: int
    state_digest: str


class Journal(Protocol):
    """One cluster's state and history."""

    def load(self, *, now_ms: int) -> tuple[Snapshot, int]:
        """The newest state, and its revision."""

    def news(self, revision: int) -> News:
        """What leads from the state at `revision` to the newest one."""

    def active_rules(self) -> RuleSet | None:
        """The rule set that decides now; None where the journal leaves it to its user."""

    def history(self, rules: RuleSet, *, now_ms: int) -> History | None:
        """The figures of the past that the rules read; None where they read none."""

    def record(
        self,
        decision: Decision,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rules: RuleSet,
        history: History | None,
    ) -> Recording:
        """Keep the decision and make its changes, both or neither. Raises StateMoved."""

    def change(
        self, changes: Sequence[Change], *, source: str, at_ms: int, expected_revision: int
    ) -> tuple[int, str]:
        """Make changes that no decision made; the revision and its state digest.

        Raises StateMoved.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision of a run; `recording` is None in a dry run."""

    decision: Decision
    recording: Recording | None


class Scheduler:
    """Decides pods of one cluster one after the other, each on the state the last one left."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleSet,
        *,
        clock: Callable[[], int],
        seed: int,
        dry_run: bool = False,
        extenders: Extenders | None = None,
        paranoid: int | None = None,
    ) -> None:
        """clock: milliseconds since 1970 UTC, asked once per decision.

        extenders: asks the extenders that a rule set names.

        paranoid: every so many decisions one is made again on the state put together anew; where
        it differs, `DecisionsDiffer` is raised and nothing recorded.

        rules: what decides where the journal has no active rule set of its own.
        """
        self._journal = journal
        self._rules = rules
        self._clock = clock
        self._seed = seed
        self._dry_run = dry_run
        self._extenders = extenders
        self._paranoid = paranoid
        self._made = 0
        self._unrecorded = Tally()
        self._snapshot, self._revision = journal.load(now_ms=clock())

    @property
    def snapshot(self) -> Snapshot:
        """The state that the next decision is made on."""
        return self._snapshot

    def decide(self, pod: str) -> Step:
        """Decide one pod and keep the decision.

        Raises DecisionError for a pod that cannot be scheduled, Contended where others keep
        changing the cluster.
        """
        step = self.decide_if(pod, wanted=lambda *_: True)
        assert step is not None  # it was wanted all the time
        return step

    def decide_if(
        self, pod: str, *, wanted: Callable[[str, Sequence[Change]], bool]
    ) -> Step | None:
        """Like `decide`; None where the decision is not wanted any more.

        wanted: asked with the pod and the changes of others that overtook the decision.
        """
        for _ in range(_ATTEMPTS):
            now_ms = self._clock()
            rules = self.rules()
            history = self._journal.history(rules, now_ms=now_ms)
            if history is not None and self._dry_run:
                needs = rules.history_needs
                history = self._unrecorded.added_to(history, needs, now_ms=now_ms)
            snapshot = self._snapshot.at(now_ms, history=history)
            decision = decide(snapshot, rules, pod, seed=self._seed, extenders=self._extenders)
            self._made += 1
            if self._paranoid and self._made % self._paranoid == 0:
                look_again(snapshot, rules, decision)
            changes = changes_of(snapshot, decision)
            if self._dry_run:
                self._snapshot = snapshot.apply(changes).packed()
                self._unrecorded.note(decision)
                return Step(decision=decision, recording=None)
            try:
                recording = self._journal.record(
                    decision,
                    changes,
                    expected_revision=self._revision,
                    rules=rules,
                    history=history,
                )
            except StateMoved:
                if not wanted(pod, self.refresh()):
                    return None
                continue
            self._snapshot = snapshot.apply(changes, state_digest=recording.state_digest).packed()
            self._revision = recording.revision
            return Step(decision=decision, recording=recording)
        raise Contended(
            f"the cluster changed {_ATTEMPTS} times while `{pod}` was decided; nothing was recorded"
        )

    def refresh(self) -> Sequence[Change]:
        """Take over what others changed; the changes."""
        if self._dry_run:
            return ()
        news = self._journal.news(self._revision)
        if news.changes:
            self._snapshot = self._snapshot.apply(
                news.changes, state_digest=news.state_digest
            ).packed()
        self._revision = news.revision
        return news.changes

    def rules(self) -> RuleSet:
        """The rule set that decides now."""
        self._rules = self._journal.active_rules() or self._rules
        return self._rules

    @property
    def rules_in_use(self) -> RuleSet:
        """The rule set that decided last, without asking for a newer one."""
        return self._rules

    def change(self, changes: Sequence[Change], *, source: str) -> None:
        """Change the cluster without a decision (a simulation's step).

        Raises Contended where somebody else changed the cluster in the meantime: what follows was
        computed for another state.
        """
        at_ms = self._clock()
        if self._dry_run:
            self._snapshot = self._snapshot.apply(changes).packed()
            return
        try:
            self._revision, state_digest = self._journal.change(
                changes, source=source, at_ms=at_ms, expected_revision=self._revision
            )
        except StateMoved as moved:
            raise Contended(
                "somebody else changed the cluster during the simulation; it ends here"
            ) from moved
        self._snapshot = self._snapshot.apply(changes, state_digest=state_digest).packed()

    def run(self, *, scheduler: str = DEFAULT_SCHEDULER) -> Iterator[Step]:
        """Decide every pod that waits now, in queue order.

        A pod that somebody else placed or removed in the meantime is left out.
        """
        for key in pending(self._snapshot, scheduler=scheduler):
            if not self.waits(key, scheduler):
                continue
            try:
                step = self.decide(key)
            except DecisionError:
                # Others may have placed or removed the pod while it was decided.
                if self.waits(key, scheduler):
                    raise
                continue
            yield step

    def waits(self, key: str, scheduler: str) -> bool:
        """Does the pod wait for that scheduler, as far as is known?"""
        pod = self._snapshot.pod(key)
        return pod is not None and waiting(pod, scheduler=scheduler)


def counts(steps: Sequence[Step]) -> dict[Outcome, int]:
    """How many decisions ended in each way, in the order of the outcomes."""
    return {
        outcome: n
        for outcome in Outcome
        if (n := sum(step.decision.outcome is outcome for step in steps))
    }
