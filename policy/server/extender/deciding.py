"""Questions of schedulers, decided one after the other while those before are recorded.

Each is decided on the state that the one before leads to, and sent to the process that records,
where those that wait share a transaction. No answer is given before that is committed; where it
fails, what was decided in it and after it is decided again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

import msgspec

from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, OfferedNode
from policy.decision.record import record_of
from policy.preemption.decide import DecisionError, decide
from policy.preemption.obstacles import by_priority
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of
from policy.scheduling.state import Contended, Proposal, State, StateMoved, StateTracker
from policy.server.extender.behind import Awaited, is_behind, misses_victims
from policy.server.extender.brought import (
    BodyNeeded,
    is_past,
    preemptor_brought,
    victims_brought,
    victims_otherwise,
)
from policy.server.extender.call import Deadline
from policy.server.extender.record_channel import DecidedCall
from policy.server.extender.recorder import InDoubt, PodsMoved, Recorder, RulesMoved
from policy.server.extender.warming import warmed
from policy.server.extender.wire import BadRequest, PreemptRequest
from policy.server.tracing import UNTRACED, Trace
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.model.decisions import CallAnswer, Origin, Recorded, ServedCall
from policy.store.model.state import Cause
from policy.store.record.keys import WriteKey
from policy.store.record.rule_sets import RuleSetText
from policy.store.state.around import PodId

log = logging.getLogger("policy.server")

ACTOR: Final = "extender"
_LATE_ATTEMPTS: Final = 3
"""How often a call that was answered before is decided, where its pod leaves meanwhile."""
_LEFT: Final = 1000
"""Pods that have left of which it is remembered."""
_LOOKED_AT_FIRST: Final = 64
"""Questions after one whose victims the state did not have that are asked for theirs at once."""
_AHEAD: Final = 16
"""Decisions that may wait for their record. More of them would only be more in vain where another
process was faster."""
_AHEAD_OF_OTHERS: Final = 4
"""The same while somebody else is faster."""


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
    hold: Callable[[], bool] = lambda: False  #: may it wait for a newer state?
    held: Callable[[], bool] = lambda: False  #: has it waited for one?
    deadline: Deadline | None = None  #: up to which it is of use; None: it always is
    once: WriteKey | None = None  #: under which one process records it; None where no other has it
    in_doubt: bool = False  #: may it be in the record in another way, `DECIDED_IN_TIME`?
    trace: Trace = UNTRACED


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A decision that is in the record."""

    question: WaitingRequest
    decision: Decision
    recorded: Recorded
    answer: CallAnswer  #: that is recorded, and so to be given


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
        self,
        store: Store,
        environment: str,
        *,
        clock: Callable[[], int],
        recorder: Recorder,
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        """Loads the state. Raises StoreError.

        clock: milliseconds since 1970 UTC. waiting: how many questions wait, about.
        """
        self._waiting = waiting
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
        self._contended = False  #: was somebody faster than the last decision?
        self._awaited = Awaited(
            followed=lambda: bool(store.read.follow_positions(self._cluster)),
            clock=clock,
        )
        self._tracker = StateTracker(self._journal, clock=clock)
        self._warm_up()
        #: by key, pods that wait for a decision that changes nothing, and what they were before
        self._returned: dict[str, tuple[str, Pod | None]] = {}
        #: how many of the next questions are asked first whether the state has their victims
        self._look_first = 0
        #: is a question whose victims are to be compared asked for them before it is decided?
        self._compare_first = True
        #: pods that were asked for when they had left, newest last
        self._left: dict[tuple[str, str | None], None] = {}

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
        head = self._store.state.head_revision(self._cluster)
        if head > self._tracker.supposed.revision:
            self._awaited.others_write()
        self._tracker.keep_up(head)

    def settle(self) -> None:
        """Wait for the commit that is under way, if one is; nothing is left behind then.

        Raises StoreError, Contended.
        """
        self._tracker.settle()
        self.see_off()

    def settle_if_done(self) -> None:
        """Keep nothing of decisions whose commit has ended. Raises StoreError, Contended."""
        self._tracker.settle_if_done()
        if self._returned and not self._tracker.under_way:
            self.see_off()

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

    def record_late(self, question: WaitingRequest) -> Answered:
        """Decide and record a call that was answered before, on the newest state.

        Raises BadRequest and DecisionError where it is no question that can be decided,
        AlreadyWritten where another process has recorded it, other StoreErrors, Contended,
        RecorderError.
        """
        failure: Exception | None = None
        for _ in range(_LATE_ATTEMPTS):
            # On an older state its pod would seem to be there, and be gone when it is decided.
            self.refresh()
            decided = self.decide(question)
            if isinstance(decided, NotDecidable):
                failure = decided.reason
                continue
            assert isinstance(decided, Future)  # it was not withdrawn, and waits for nothing
            try:
                answered = decided.result()
            except StateMoved as exc:
                failure = Contended(str(exc))
                continue
            # Its pod was there for this decision alone, and may run by now.
            self.settle()
            return answered
        assert failure is not None
        raise failure

    def decide(self, question: WaitingRequest) -> Future[Answered] | NotDecidable | Held | None:
        """Decide a question, and have that recorded; None where it was withdrawn.

        The future has what is in the record, when that is committed. It raises StateMoved where
        the question is to be decided again, and otherwise what `Recorder.record` does. Raises
        StoreError, Contended: then nothing is recorded.
        """
        self.see_off()
        self._take_rules()
        if self._rules is None:
            self._tracker.settle()
        attempt = _Attempt(question)
        try:
            self._tracker.commit_row(
                lambda state: self._proposed(attempt, state),
                lambda made: self._record(attempt, *made),
                subject=f"the decision of `{question.request.key}`",
                more=lambda _: False,
                again=lambda _: None,
                ahead=_AHEAD_OF_OTHERS if self._contended else _AHEAD,
            )
        except (BodyNeeded, BadRequest) as exc:
            return NotDecidable(question=question, reason=exc)
        return attempt.answered if attempt.sent else attempt.refused

    def _take_rules(self) -> None:
        # What is recorded is checked against the active rules in its own transaction: only where
        # these are others by now they are read again.
        if self._rules_moved:
            self._rules_moved = False
            self._rules = None
        self._rules = self._rules or self._journal.active_rules()

    @property
    def _under_way(self) -> list[tuple[int, Decision]]:
        """What is carried out as soon as it is recorded, each with the revision that it makes."""
        return [
            (made.state.revision + 1, made.result) for made in self._tracker.waiting if made.changes
        ]

    def _preemptor(self, attempt: _Attempt, snapshot: Snapshot) -> list[Change]:
        request = attempt.question.request
        pods, new_uid = preemptor_brought(snapshot, request)
        known = snapshot.pod(request.key)
        past = any(isinstance(sent, Pod) and is_past(sent, known) for _, _, sent in pods)
        attempt.gone = ""
        if known is not None and known.metadata.uid == request.uid and _needs_no_room(known):
            attempt.gone = PLACED
        # Who has left is known to the record, which is asked when the decision is written: to ask
        # it here would hold up the next one, and pods come back hardly ever.
        elif past or (request.key, new_uid) in self._left:
            attempt.gone = GONE
        attempt.new_uid = None if attempt.gone else new_uid
        placed = known is not None and bool(known.spec.node_name)
        if not attempt.effective and (attempt.gone or placed):
            self._returned[request.key] = request.uid, known
        return pods

    def _victims(self, question: WaitingRequest, snapshot: Snapshot) -> list[Change]:
        self._look_first = max(0, self._look_first - 1)
        try:
            found = victims_brought(snapshot, question.request, question.body, gone=self._gone)
        except BodyNeeded:
            self._look_first = _LOOKED_AT_FIRST
            raise
        if found:
            self._look_first = _LOOKED_AT_FIRST
        return found

    def _gone(self, pods: Collection[PodId]) -> Collection[PodId]:
        return self._store.state.gone_pods(self._cluster, pods)

    def _proposed(self, attempt: _Attempt, state: State) -> Proposal[Decision] | None:
        """The decision on a state; None where there is none."""
        attempt.refused = None
        question, request = attempt.question, attempt.question.request
        if question.withdrawn():
            return None
        self._take_rules()
        rules = self._rules
        assert rules is not None  # an environment of a desk has active rules
        began_ns = time.time_ns()
        try:
            found = self._decided(attempt, state, rules)
        except DecisionError as exc:
            attempt.refused = NotDecidable(question=question, reason=exc)
            return None
        awaited = self._awaited.of(found.decision, found.base.snapshot, request)
        if not attempt.gone and (found.behind or awaited) and question.hold():
            attempt.refused = Held(question=question, revision=state.revision)
            return None
        if awaited and question.held():
            self._awaited.in_vain(awaited)
        base, decision, taken = found.base, found.decision, found.taken
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
        attempt.rules = rules
        changes = changes_of(base.snapshot, decision) if attempt.effective else ()
        return Proposal(
            state=base,
            result=decision,
            changes=changes,
            taken=taken,
            taken_on=state if taken else None,
        )

    def _decided(self, attempt: _Attempt, state: State, rules: RuleSet) -> _Decided:
        """The decision on a state, with what the request knows better. Raises DecisionError."""
        question, request = attempt.question, attempt.question.request
        compares = request.full and _reads_more_than_priorities(rules)
        if compares and self._compare_first and not question.body:
            raise BodyNeeded  # before a decision is made in vain
        now_ms = self._clock()
        history = self._journal.history(rules, now_ms=now_ms, under_way=self._under_way)

        def on(taken: Sequence[Change], offer: Sequence[OfferedNode] = request.offer) -> _Decided:
            base = state.supposing(taken).at(now_ms, history=history)
            decision = decide(base.snapshot, rules, request.key, offer=offer, by_class=True)
            behind = is_behind(decision, base.snapshot)
            return _Decided(base=base, decision=decision, taken=taken, behind=behind)

        taken = self._preemptor(attempt, state.snapshot)
        # Mostly the state has all victims, which to look at first would take as long as some of the
        # decision; where some are missing, the decision is made in vain.
        looks = self._look_first > 0
        if looks:
            taken += self._victims(question, state.snapshot)
        found = on(taken)
        if not looks and misses_victims(found.decision):
            victims = self._victims(question, found.base.snapshot)
            if victims:
                found = on([*taken, *victims])
        node = found.decision.node
        if not compares:
            return found
        # Most questions are like the one before: a burst of pods that rules let preempt, or not.
        self._compare_first = node is not None
        if node is None:
            return found
        if not question.body:
            raise BodyNeeded
        # INVARIANT: victims that are answered are allowed as the state has them, and as the request
        # does: either of them may be the older one, so neither replaces the other.
        before, allowed = found.base.snapshot, found.decision.candidates.nodes
        others = victims_otherwise(before, request, question.body, [node])
        if not others or node in on([*found.taken, *others]).decision.candidates.nodes:
            return found
        others = victims_otherwise(before, request, question.body, allowed)
        as_sent = on([*found.taken, *others]).decision
        left = set(as_sent.candidates.nodes)
        refused = {one: _why_refused(as_sent, one) for one in allowed if one not in left}
        offer = [
            msgspec.structs.replace(one, refused=refused.get(one.node, "")) for one in request.offer
        ]
        return replace(on(found.taken, offer), behind=True)

    def _record(self, attempt: _Attempt, made: Proposal[Decision]) -> Future[list[Recorded]]:
        """Have a decision recorded."""
        question, rules = attempt.question, attempt.rules
        assert rules is not None
        began_ns = time.time_ns()
        record = record_of(made.result, keep=rules.audit_candidates)
        served = attempt.served(made)
        attempt.answer = served.answer
        commit = self._recorder.record(
            DecidedCall(
                cluster=self._cluster,
                environment=self._environment,
                actor=question.caller or ACTOR,
                rules=RuleSetText.of(rules),
                expected_revision=made.begins_on.revision,
                expected_digest=made.begins_on.snapshot.state_digest,
                taken=_pods(made.taken),
                new_uid=attempt.new_uid,
                record=record,
                pods=_pods(made.changes),
                at_ms=self._clock(),
                served=served,
                once=question.once,
                unless_decided=DECIDED_IN_TIME if question.in_doubt else (),
                waiting=self._waiting(),
                deadline=question.deadline,
            ),
            claim=question.claim,
        )
        attempt.sent = True
        told: Future[list[Recorded]] = Future()
        commit.add_done_callback(partial(self._ended, attempt, made.result, began_ns, told))
        return told

    def _ended(
        self,
        attempt: _Attempt,
        decision: Decision,
        began_ns: int,
        told: Future[list[Recorded]],
        commit: Future[Recorded],
    ) -> None:
        """A commit has ended. Whoever waits for that hears it when the call has."""
        failure = commit.exception()
        self._contended = isinstance(failure, StateMoved)
        if self._contended:
            self._awaited.others_write()
        if isinstance(failure, RulesMoved):
            self._rules_moved = True
        if isinstance(failure, PodsMoved):
            self._left = dict.fromkeys([*self._left, *failure.pods][-_LEFT:])
        try:
            attempt.committed(decision, began_ns, commit)
        finally:
            if failure is None:
                told.set_result([commit.result()])
            else:
                told.set_exception(failure)


def _pods(changes: Sequence[Change]) -> list[tuple[str, Pod | None]]:
    """What a decision, or a call, changes: nothing but pods."""
    return [(key, cast("Pod | None", obj)) for _, key, obj in changes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A decision, and how the state came to be that it was made on."""

    base: State
    decision: Decision
    taken: Sequence[Change]  #: from the request
    behind: bool  #: does the request show that the state is?


class _Attempt:
    """A question while it is decided, and how far that is."""

    def __init__(self, question: WaitingRequest) -> None:
        self.question = question
        self.gone = ""  #: why no pod is evicted for its own, such as `GONE`; "" where one may be
        self.new_uid: str | None = None  #: of its pod, where that is taken for a new one
        self.rules: RuleSet | None = None  #: that decided
        self.refused: NotDecidable | Held | None = None  #: why there is no decision
        self.answer = CallAnswer.NONE  #: that goes with the decision
        self.sent = False  #: is the decision on its way into the record?
        self.answered: Future[Answered] = Future()

    @property
    def effective(self) -> bool:
        """Does the state change by the decision?"""
        return self.question.effective and not self.gone

    def served(self, made: Proposal[Decision]) -> ServedCall:
        """The call as it is recorded."""
        served = self.question.served(made.result, tuple([key for _, key, _ in made.taken]))
        if self.gone and self.question.effective:
            return replace(served, answer=CallAnswer.NONE, failure=self.gone)
        return served

    def committed(self, decision: Decision, began_ns: int, commit: Future[Recorded]) -> None:
        """Called by the thread that waited for the commit, when that has ended."""
        question, failure = self.question, commit.exception()
        if failure is not None:
            if not isinstance(failure, InDoubt):  # no other answer may be given
                question.reopen()
            self.answered.set_exception(failure)
            return
        recorded = commit.result()
        question.trace.add(
            "record", began_ns, time.time_ns(), {"policy.decision": recorded.decision_id}
        )
        answered = Answered(
            question=question, decision=decision, recorded=recorded, answer=self.answer
        )
        self.answered.set_result(answered)


GONE: Final = "the pod is gone"
PLACED: Final = "the pod is bound, or being deleted"
"""Why a scheduler that is obeyed was not answered what was decided."""
DECIDED_IN_TIME: Final = ("", GONE, PLACED)
"""Failures that calls are recorded with whose decision was made before they were given up."""


def _reads_more_than_priorities(rules: RuleSet) -> bool:
    """May another state of a pod, which keeps its priority, be another verdict on it?"""
    victims = rules.victims
    return bool(victims.forbid) or not by_priority(victims.eligible)


def _why_refused(decision: Decision, node: str) -> str:
    """Why a node that was offered is no candidate."""
    status = decision.trace.dry_run_statuses.get(node)
    return status.reasons[0] if status is not None else f"no decision: {decision.trace.message}"


def _needs_no_room(known: Pod) -> bool:
    """Does the state know better than a request for the pod? No binding is ever undone."""
    return bool(known.spec.node_name or known.metadata.deletion_timestamp)
