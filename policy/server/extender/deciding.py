"""Questions of schedulers, decided one after the other and recorded together.

A commit costs as much as a decision or more. Questions that wait are decided in a row, each on the
state that the one before leads to, and recorded in one transaction: all of them, or none. No answer
is given before that. While a row is recorded, by a process of its own, the next one is decided;
where that fails it is decided again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.decision.record import DecisionRecord, record_of
from policy.preemption import messages
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of
from policy.scheduling.state import Contended, Proposal, State, StateMoved, StateTracker
from policy.server.extender.brought import BodyNeeded, brought
from policy.server.extender.call import GivenUp
from policy.server.extender.record_channel import DecidedCall, Row
from policy.server.extender.recorder import Recorder, RulesMoved
from policy.server.extender.warming import warmed
from policy.server.extender.wire import BadRequest, PreemptRequest
from policy.server.tracing import UNTRACED, Trace
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.model.decisions import Origin, Recorded, ServedCall
from policy.store.model.state import Cause
from policy.store.record.rule_sets import RuleSetText

log = logging.getLogger("policy.server")

ACTOR: Final = "extender"
_LATE_ATTEMPTS: Final = 3
"""How often a call that was answered before is decided, where its pod leaves meanwhile."""
LARGEST: Final = 16
"""Questions of a row: the first one waits for the decisions of all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingRequest:
    """A request that waits for a decision, and what is to become of that."""

    request: PreemptRequest
    caller: str  #: name of the token or certificate; "" where there are none
    effective: bool  #: does the scheduler obey, so that the state changes?
    #: the call with its answer; gets the decision and the pods taken over from the request
    served: Callable[[Decision, tuple[str, ...]], ServedCall]
    body: bytes = b""  #: of the request; empty where it is not given
    withdrawn: Callable[[], bool] = lambda: False  #: was it answered in another way?
    #: the last step before the commit, and what takes it back. `claim` raises GivenUp.
    claim: Callable[[], None] = lambda: None
    reopen: Callable[[], None] = lambda: None
    #: may it wait for a newer state? Gets the pods taken over from the request by now
    hold: Callable[[tuple[str, ...]], bool] = lambda taken: False
    #: it will be decided once more. Gets those pods, too
    again: Callable[[tuple[str, ...]], None] = lambda taken: None
    trace: Trace = UNTRACED


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A decision that is in the record."""

    question: WaitingRequest
    decision: Decision
    recorded: Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of the first questions; withdrawn ones are in none of the results."""

    questions: Sequence[WaitingRequest]
    others: Sequence[NotDecidable | Held]
    #: in the record, when their commit has ended. It raises StateMoved where they are to be decided
    #: again, and otherwise what `Recorder.record` does.
    answered: Future[list[Answered]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDecidable:
    """A question that cannot be decided, whatever the state."""

    question: WaitingRequest
    reason: BadRequest | BodyNeeded | DecisionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A question that proves that the state is behind: it waits, and is put again."""

    question: WaitingRequest
    revision: int  #: of that state


class Decider:
    """Decides by the active rules of one environment, on the state of its cluster."""

    def __init__(
        self, store: Store, environment: str, *, clock: Callable[[], int], recorder: Recorder
    ) -> None:
        """Loads the state. Raises StoreError. clock: milliseconds since 1970 UTC."""
        self._store = store
        self._recorder = recorder
        self._environment = environment
        self._clock = clock
        self._cluster = store.read.environment(environment).cluster
        self._journal = StoreJournal(
            store,
            self._cluster,
            actor=ACTOR,
            clock=clock,
            environment=environment,
            origin=Origin.EXTENDER,
            cause=Cause.EXTENDER,
        )
        self._rules: RuleSet | None = self._journal.active_rules()
        self._rules_moved = False  #: is another rule set active by now?
        self._contended = False  #: was somebody faster than the last row?
        self._tracker = StateTracker(self._journal, clock=clock)
        self._warm_up()
        #: by key, pods that wait for a decision that changes nothing, and what they were before
        self._returned: dict[str, tuple[str, Pod | None]] = {}

    def _warm_up(self) -> None:
        """Do before the first call what would make it slower than later ones."""
        _ = self._store.record  # is imported where it is first asked for
        if self._rules is None:
            return
        state, now_ms = self._tracker.state, self._clock()
        base = state.at(now_ms, history=self._journal.history(self._rules, now_ms=now_ms))
        try:
            snapshot = warmed(base.snapshot, self._rules)
        except AssertionError:
            # Whatever else goes wrong is a decision with outcome `error`. A broken invariant of a
            # made-up pod says nothing about calls: they are decided, the first one more slowly.
            log.exception("the first call will be slower than later ones")
        else:
            self._tracker.state = replace(state, snapshot=snapshot.at(state.snapshot.now_ms))

    @property
    def state(self) -> State:
        """The newest state that is known here; may be read by any thread."""
        return self._tracker.committed

    def refresh(self) -> None:
        """Take over what others changed. Raises StoreError."""
        self._tracker.keep_up(self._store.state.head_revision(self._cluster))

    def settle(self) -> None:
        """Wait for the commit that is under way, if one is; nothing is left behind then.

        Raises StoreError, Contended.
        """
        self._tracker.settle()
        self.see_off()

    def settle_if_done(self) -> None:
        """Keep nothing of a row whose commit has ended."""
        self._tracker.settle_if_done()

    def see_off(self) -> None:
        """Let pods be gone or bound again that were waiting for a decision alone.

        Raises StoreError, Contended.
        """

        def as_before(snapshot: Snapshot) -> list[Change]:
            found: list[Change] = []
            for key, (uid, before) in self._returned.items():
                pod = snapshot.pod(key)
                if pod is not None and pod.metadata.uid == uid and not pod.spec.node_name:
                    found.append(("Pod", key, before))
            return found

        if self._returned:
            self._tracker.change(as_before, source=ACTOR)
            self._returned.clear()

    def record_late(self, question: WaitingRequest) -> list[Answered]:
        """Decide and record a call that was answered before, on the newest state.

        Raises BadRequest and DecisionError where it is no question that can be decided, StoreError,
        Contended, RecorderError.
        """
        failure: Exception | None = None
        for _ in range(_LATE_ATTEMPTS):
            # On an older state its pod would seem to be there, and be gone when it is decided.
            self.refresh()
            decided = self.decide([question])
            refused = [one.reason for one in decided.others if isinstance(one, NotDecidable)]
            if refused:
                failure = refused[0]
                continue
            try:
                return decided.answered.result()
            except StateMoved as exc:
                failure = Contended(str(exc))
        assert failure is not None
        raise failure

    def decide(self, questions: Sequence[WaitingRequest]) -> Decided:
        """Decide and record the first questions, as many as go together.

        Raises StoreError, Contended: then none is recorded.
        """
        self.see_off()
        row = _Row(questions[: _together(questions)])
        self._take_rules()
        if self._rules is None or self._rules.history_needs or self._contended:
            # Figures of the past are read from the record, with the row before in it. And where
            # somebody is faster, two rows would be decided in vain instead of one.
            self._tracker.settle()
        self._take_over(row)
        self._tracker.commit_row(
            lambda state: self._proposed(row, state),
            lambda made: self._record(row, made),
            subject=f"the decision of `{row.questions[0].request.key}`",
            more=lambda made: not row.rules_of(made).history_needs,
            again=lambda _: row.restart(),
        )
        return row.result()

    def _take_rules(self) -> None:
        # What is recorded is checked against the active rules in its own transaction: only where
        # these are others by now they are read again.
        if self._rules_moved:
            self._rules_moved = False
            self._rules = None
        self._rules = self._rules or self._journal.active_rules()

    def _take_over(self, row: _Row) -> None:
        """Record the pods that the requests know better than the state does."""

        def changes(snapshot: Snapshot) -> list[Change]:
            found: dict[tuple[str, str], Change] = {}
            for question in row.questions:
                try:
                    pods, returned = brought(
                        snapshot, question.request, question.body, gone=self._gone
                    )
                    if returned and question.effective:
                        raise BadRequest(f"`Pod`: `{question.request.key}` is gone")
                except (BadRequest, BodyNeeded) as exc:
                    row.refused[question] = exc
                    continue
                if not question.effective:
                    request = question.request
                    known = snapshot.pod(request.key)
                    if returned or (known is not None and known.spec.node_name):
                        self._returned[request.key] = request.uid, known
                row.taken[question] = tuple(key for _, key, _ in pods)
                found |= {change[:2]: change for change in pods}
            return list(found.values())

        # Mostly there is nothing, and no commit is waited for.
        if changes(self._tracker.supposed.snapshot):
            self._tracker.change(changes, source=ACTOR)

    def _gone(self, pods: Mapping[str, str]) -> Collection[str]:
        return self._store.state.gone_pods(self._cluster, pods)

    def _proposed(self, row: _Row, state: State) -> Proposal[Decision] | None:
        """The decision of the next question of the row; None behind the last one."""
        if not row.decided:
            self._take_rules()
            row.rules = self._rules
        rules = row.rules
        assert rules is not None  # an environment of a desk has active rules
        while (question := row.following()) is not None:
            now_ms, began_ns = self._clock(), time.time_ns()
            base = state.at(now_ms, history=self._journal.history(rules, now_ms=now_ms))
            request = question.request
            try:
                decision = decide(
                    base.snapshot, rules, request.key, offer=request.offer, by_class=True
                )
            except DecisionError as exc:
                row.refused[question] = exc
                continue
            if _behind(decision) and question.hold(row.taken.get(question, ())):
                row.held.append(Held(question=question, revision=base.revision))
                continue
            row.decided.append(question)
            question.trace.add(
                "decide",
                began_ns,
                time.time_ns(),
                {
                    "policy.outcome": decision.outcome.value,
                    "policy.candidates": len(request.offer),
                    "policy.rule_set": rules.name,
                },
            )
            changes = changes_of(base.snapshot, decision) if question.effective else ()
            # All that is kept of it is worked out here, while the row before is recorded.
            row.records.append(record_of(decision, keep=rules.audit_candidates))
            return Proposal(state=base, result=decision, changes=changes)
        return None

    def _record(self, row: _Row, made: Sequence[Proposal[Decision]]) -> Future[list[Recorded]]:
        """Have the row recorded as far as it was decided."""
        rules, began_ns = row.rules_of(made), time.time_ns()
        commit = self._recorder.record(
            Row(
                cluster=self._cluster,
                environment=self._environment,
                actor=row.decided[0].caller or ACTOR,
                rules=RuleSetText.of(rules),
                expected_revision=made[0].state.revision,
                decided=[
                    DecidedCall(
                        record=record,
                        pods=[(key, _pod(obj)) for _, key, obj in proposal.changes],
                        at_ms=self._clock(),
                        served=question.served(proposal.result, row.taken.get(question, ())),
                    )
                    for question, record, proposal in zip(
                        row.decided, row.records, made, strict=True
                    )
                ],
            ),
            claim=row.claim,
        )
        decisions = [proposal.result for proposal in made]
        told: Future[list[Recorded]] = Future()
        commit.add_done_callback(partial(self._ended, row, decisions, began_ns, told))
        return told

    def _ended(
        self,
        row: _Row,
        decisions: Sequence[Decision],
        began_ns: int,
        told: Future[list[Recorded]],
        commit: Future[list[Recorded]],
    ) -> None:
        """A commit has ended. Whoever waits for that hears it when the row's calls have."""
        failure = commit.exception()
        self._contended = isinstance(failure, StateMoved)
        if isinstance(failure, RulesMoved):
            self._rules_moved = True
        try:
            row.committed(decisions, began_ns, commit)
        finally:
            if failure is None:
                told.set_result(commit.result())
            else:
                told.set_exception(failure)


def _pod(obj: ClusterObject | None) -> Pod | None:
    assert obj is None or isinstance(obj, Pod)  # decisions change nothing else
    return obj


class _Row:
    """Questions that are decided together, and how far that is."""

    def __init__(self, questions: Sequence[WaitingRequest]) -> None:
        self.questions = questions
        self.rules: RuleSet | None = None
        self.taken: dict[WaitingRequest, tuple[str, ...]] = {}
        self.refused: dict[WaitingRequest, BadRequest | BodyNeeded | DecisionError] = {}
        self.decided: list[WaitingRequest] = []  #: in this attempt
        self.records: list[DecisionRecord] = []  #: of `decided`
        self.held: list[Held] = []  #: in this attempt
        self._answered: Future[list[Answered]] = Future()
        self._next = 0

    def following(self) -> WaitingRequest | None:
        while self._next < len(self.questions):
            question = self.questions[self._next]
            self._next += 1
            if question not in self.refused and not question.withdrawn():
                return question
        return None

    def rules_of(self, made: Sequence[Proposal[Decision]]) -> RuleSet:
        rules = self.rules
        # INVARIANT: one rule set decides a row; another one begins the row anew.
        assert rules is not None
        assert all(proposal.result.rule_set_digest == rules.digest for proposal in made)
        return rules

    def claim(self) -> None:
        """Claim all that is decided. Raises GivenUp where one of it was answered meanwhile."""
        try:
            for question in self.decided:
                question.claim()
        except GivenUp:
            self._reopen()
            raise

    def restart(self) -> None:
        """Nothing was sent to be recorded."""
        self.decided, self.records, self.held, self._next = [], [], [], 0

    def _reopen(self) -> None:
        for question in self.decided:
            question.reopen()

    def committed(
        self, decisions: Sequence[Decision], began_ns: int, commit: Future[list[Recorded]]
    ) -> None:
        """Called by the thread that waited for the commit, when that has ended."""
        failure = commit.exception()
        if failure is not None:
            self._reopen()
            if isinstance(failure, StateMoved):
                for question in self.decided:
                    question.again(self.taken.get(question, ()))
            self._answered.set_exception(failure)
            return
        answered = []
        for question, decision, one in zip(self.decided, decisions, commit.result(), strict=True):
            question.trace.add(
                "record",
                began_ns,
                time.time_ns(),
                {"policy.decision": one.decision_id, "policy.recorded_together": len(decisions)},
            )
            answered.append(Answered(question=question, decision=decision, recorded=one))
        self._answered.set_result(answered)

    def result(self) -> Decided:
        """What became of the row; what was decided is on its way into the record."""
        refused = [NotDecidable(question=q, reason=reason) for q, reason in self.refused.items()]
        if not self.decided:
            self._answered.set_result([])
        return Decided(
            questions=self.questions,
            others=[*refused, *self.held],
            answered=self._answered,
        )


_UNKNOWN: Final = frozenset({messages.UNKNOWN_NODE, messages.UNKNOWN_VICTIM})


def _behind(decision: Decision) -> bool:
    """Was the pod refused for what the scheduler, by its call, has seen change already?

    It offers no candidates for a pod that waits for victims to leave, and none that it does not
    know.
    """
    if decision.outcome is Outcome.PREEMPT:
        return False
    unknown = (not _UNKNOWN.isdisjoint(s.reasons) for s in decision.trace.dry_run_statuses.statuses)
    return bool(decision.trace.waits_for) or any(unknown)


def _together(questions: Sequence[WaitingRequest]) -> int:
    """How many of the first questions may be decided in a row.

    Two about one pod go apart: the second scheduler may know what became of the first decision.
    A ledger entry names one actor, so do the decisions of a transaction.
    """
    seen: set[str] = set()
    for count, question in enumerate(questions):
        key = question.request.key
        if key in seen or question.caller != questions[0].caller or count == LARGEST:
            return count
        seen.add(key)
    return len(questions)
