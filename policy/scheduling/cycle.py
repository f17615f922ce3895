"""The cycle that joins snapshot, decision and record.

A decision without its record does not exist: the record and the change it makes to the cluster
are one step of the journal, which refuses it where the cluster has changed since the snapshot was
taken. The cycle then reads what changed and decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from policy.cluster.digest import Change, HistoryFigures
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision
from policy.extenders.protocol import Extenders
from policy.groups.decide import decide_group
from policy.preemption.decide import DecisionError, decide
from policy.preemption.tally import Tally
from policy.rules.ruleset import RuleSet
from policy.scheduling.effects import changes_of
from policy.scheduling.group import DecisionGroups
from policy.scheduling.group_effects import changes_of_group
from policy.scheduling.order import DEFAULT_SCHEDULER, heads, pending, waiting
from policy.scheduling.second_look import look_again, look_again_at_group
from policy.scheduling.state import (
    Commit,
    Position,
    Proposal,
    Row,
    State,
    StateJournal,
    StateTracker,
    Transition,
)


class Recording(Position, Protocol):
    """Where a decision was kept, and the state that it led to."""

    @property
    def decision_id(self) -> int: ...


class Journal(StateJournal, Protocol):
    """One cluster's state and history."""

    def active_rules(self) -> RuleSet | None:
        """The rule set that decides now; None where the journal leaves it to its user."""

    def history(self, rules: RuleSet, *, now_ms: int) -> HistoryFigures | None:
        """The figures of the past that the rules read; None where they read none."""

    def record(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> Sequence[Recording]:
        """Keep decisions that follow one another and make their changes, all or none of them.

        expected_revision: that the first one was made on. Raises StateMoved.
        """

    def record_ahead(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> Commit[Sequence[Recording]]:
        """`record`, but for the end of the commit. Raises StateMoved at once."""

    def record_group(
        self,
        decision: GroupDecision,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> SessionRecording:
        """Keep the cycle of a pod group and make its changes, both or neither.

        Raises StateMoved.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision of a run; `recording` is None in a dry run."""

    decision: Decision
    recording: Recording | None


class SessionRecording(Position, Protocol):
    """Where a session, or the cycle of a pod group, was kept, and the state that it led to."""

    @property
    def session_id(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """One cycle of a pod group; `recording` is None in a dry run."""

    decision: GroupDecision
    recording: SessionRecording | None


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
        """clock: milliseconds since 1970 UTC, read once per decision.

        extenders: queries the extenders that a rule set names.

        paranoid: every so many decisions (cycles of pod groups are decisions, too) one is made
        again on the state put together anew; where it differs, `DecisionsDiffer` is raised and
        nothing of it recorded.

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
        self._tracker = StateTracker(journal, clock=clock, dry_run=dry_run)

    @property
    def state(self) -> State:
        """The state that the next decision is made on, with its revision."""
        return self._tracker.state

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of `state`."""
        return self._tracker.state.snapshot

    def follow(self, follower: Callable[[Transition], None]) -> None:
        """Call `follower` with every change of the cluster from now on, whoever made it."""
        self._tracker.follow(follower)

    def refresh(self) -> None:
        """Take over what others changed."""
        self._tracker.refresh()

    def change(self, propose: Callable[[Snapshot], Sequence[Change]], *, source: str) -> bool:
        """Change the cluster without a decision (a simulation's step).

        propose: the changes, computed again where others changed the cluster meanwhile; False
        where there are none. Raises Contended where others keep changing it.
        """
        return self._tracker.change(propose, source=source)

    def decide(self, pod: str) -> Step:
        """Decide one pod and keep the decision.

        Raises DecisionError for a pod that cannot be scheduled, Contended where others keep
        changing the cluster.
        """
        step = self.decide_if(pod, wanted=lambda: True)
        assert step is not None  # it was wanted all the time
        return step

    def decide_if(self, pod: str, *, wanted: Callable[[], bool]) -> Step | None:
        """Like `decide`; None where the decision is not wanted any more.

        wanted: called after changes of others overtook the decision.
        """
        done = self._tracker.commit(
            lambda state: self._propose(pod, state, self.rules()),
            lambda proposal: self._journal.record(
                [(proposal.result, proposal.changes)],
                expected_revision=proposal.state.revision,
                rules=self._rules,
            )[0],
            subject=f"the decision of `{pod}`",
            wanted=wanted,
        )
        if done is None:
            return None
        proposal, recording = done
        if self._dry_run:
            self._unrecorded.note(proposal.result)
        return Step(decision=proposal.result, recording=recording)

    def decide_group(self, group: str) -> GroupStep:
        """Run one cycle of a pod group (namespace/name) and keep it.

        Raises DecisionError for a group that no pod names and where the rules have none, Contended
        where others keep changing the cluster.
        """
        rules = self.rules()
        if rules.groups is None:
            raise DecisionError(f"rule set `{rules.name}` does not schedule pod groups")
        step = self.decide_group_if(group, wanted=lambda: True)
        assert step is not None  # it was wanted all the time
        return step

    def decide_group_if(self, group: str, *, wanted: Callable[[], bool]) -> GroupStep | None:
        """Like `decide_group`; None where the cycle is not wanted any more.

        Nor is it where the rules that decide now do not schedule groups.
        """
        done = self._tracker.commit(
            lambda state: self._propose_group(group, state, self.rules()),
            lambda proposal: self._journal.record_group(
                proposal.result,
                proposal.changes,
                expected_revision=proposal.state.revision,
                rules=self._rules,
            ),
            subject=f"the cycle of pod group `{group}`",
            wanted=wanted,
        )
        if done is None:
            return None
        proposal, recording = done
        if self._dry_run:
            self._unrecorded.note_group(proposal.result)
        return GroupStep(decision=proposal.result, recording=recording)

    def _propose_group(
        self, group: str, state: State, rules: RuleSet
    ) -> Proposal[GroupDecision] | None:
        if rules.groups is None:
            return None
        now_ms = self._clock()
        history = self._journal.history(rules, now_ms=now_ms)
        if history is not None and self._dry_run:
            history = self._unrecorded.added_to(history, rules.history_needs, now_ms=now_ms)
        base = state.at(now_ms, history=history)
        decision = decide_group(base.snapshot, rules, group, seed=self._seed)
        if self._is_looked_at_again():
            look_again_at_group(base.snapshot, rules, decision)
        changes = changes_of_group(base.snapshot, decision)
        return Proposal(state=base, result=decision, changes=changes)

    def _propose(self, pod: str, state: State, rules: RuleSet) -> Proposal[Decision]:
        now_ms = self._clock()
        history = self._journal.history(rules, now_ms=now_ms)
        if history is not None and self._dry_run:
            history = self._unrecorded.added_to(history, rules.history_needs, now_ms=now_ms)
        base = state.at(now_ms, history=history)
        decision = decide(
            base.snapshot,
            rules,
            pod,
            seed=self._seed,
            extenders=self._extenders,
            by_class=True,
        )
        if self._is_looked_at_again():
            look_again(base.snapshot, rules, decision)
        return Proposal(state=base, result=decision, changes=changes_of(base.snapshot, decision))

    def _is_looked_at_again(self) -> bool:
        """Is the decision that was just made one of those that `paranoid` makes again?"""
        self._made += 1
        return self._paranoid is not None and self._made % self._paranoid == 0

    def _record_ahead(self, made: Sequence[Proposal[Decision]]) -> Commit[Sequence[Recording]]:
        return self._journal.record_ahead(
            [(one.result, one.changes) for one in made],
            expected_revision=made[0].state.revision,
            rules=self._rules,
        )

    def rules(self) -> RuleSet:
        """The rule set that decides now."""
        self._rules = self._journal.active_rules() or self._rules
        return self._rules

    def run(self, *, scheduler: str = DEFAULT_SCHEDULER) -> Iterator[Step | GroupStep]:
        """Decide every pod that waits now, in queue order.

        A pod that was placed or removed by others in the meantime is left out. Decisions are
        recorded in groups, and given when they are recorded; the next group is decided while one is
        committed. Where the rules schedule pod groups, the first member of one brings the others
        with it.
        """
        if self._dry_run or self.rules().groups is not None:
            yield from self._run_heads(scheduler)
            return
        keys = pending(self.snapshot, scheduler=scheduler, order=self.rules().queue.order)
        groups = DecisionGroups(keys, self._propose, rules=self.rules, scheduler=scheduler)
        under_way: Row[Decision, Recording] | None = None
        while not groups.done:
            row = None
            try:
                if not groups.begin_alone() or under_way is None:
                    row = self._tracker.commit_row(
                        groups.propose,
                        self._record_ahead,
                        more=groups.more,
                        again=_give_up,
                        subject="a run over the pods that wait",
                    )
                    groups.recorded()
            except BaseException:
                if under_way is not None:
                    yield from self._committed(under_way)
                raise
            if under_way is not None:
                yield from _steps(under_way) if row else self._committed(under_way)
            under_way = row
        if under_way is not None:
            yield from self._committed(under_way)
        groups.fail()

    def _committed(self, row: Row[Decision, Recording]) -> Iterator[Step]:
        """The steps of the row that is under way, when it is committed."""
        self._tracker.settle()
        return _steps(row)

    def _run_heads(self, scheduler: str) -> Iterator[Step | GroupStep]:
        """Decide pods and pod groups one after the other."""
        for head in tuple(heads(self.snapshot, self.rules(), scheduler=scheduler)):
            if head.group:
                yield self.decide_group(head.group)
            elif self.waits(head.pods[0], scheduler):
                step = self.decide_if(
                    head.pods[0], wanted=partial(self.waits, head.pods[0], scheduler)
                )
                if step is not None:
                    yield step

    def waits(self, key: str, scheduler: str) -> bool:
        """Does the pod wait for that scheduler, as far as is known?"""
        pod = self.snapshot.pod(key)
        return pod is not None and waiting(pod, scheduler=scheduler)


def _steps(row: Row[Decision, Recording]) -> Iterator[Step]:
    """Raises what the commit of the row does."""
    for proposal, recording in row.recorded():
        yield Step(decision=proposal.result, recording=recording)


def _give_up(failure: BaseException) -> None:
    """A commit that failed ends a run."""
    raise failure
