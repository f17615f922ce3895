"""The desk of one environment: judges the calls of schedulers, one after the other.

One thread owns the environment's state in this process. What other processes write reaches it as
changes; where one of them was faster, the decision is made again on the state that it left, so two
never promise the same room.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from policy.cluster.digest import Change
from policy.decision.model import Decision, OfferedNode, Outcome
from policy.preemption.decide import DecisionError, decide
from policy.scheduling.effects import changes_of
from policy.scheduling.state import Contended, Proposal, State, StateMoved, StateTracker
from policy.server.extender.brought import brought
from policy.server.extender.call import Call, GivenUp, Said
from policy.server.extender.spool import Spool, SpooledCall, Waiting
from policy.server.extender.wire import BadRequest, PreemptRequest, answer, read_preempt
from policy.store import StaleRevision, Store, StoreError
from policy.store.journal import StoreJournal
from policy.store.model import CallAnswer, CallMode, Cause, Origin, Recorded, ServedCall
from policy.store.record.environments import RuleSetChanged

log = logging.getLogger("policy.server")

ACTOR: Final = "extender"
_WAITING: Final = 1000
"""Calls that may wait; a scheduler sends one at a time, so more is somebody else."""


class Overloaded(Exception):
    """More calls wait than can be answered."""


class Desk:
    """Takes calls from any thread; `close` ends it after the call that it holds."""

    def __init__(
        self,
        store: Store,
        environment: str,
        *,
        clock: Callable[[], int],
        spool: Spool,
        poll_seconds: float,
    ) -> None:
        """clock: milliseconds since 1970 UTC."""
        self._store = store
        self._environment = environment
        self._clock = clock
        self._spool = spool
        self._poll = poll_seconds
        self._calls: queue.Queue[Call | None] = queue.Queue(_WAITING)
        self._stopping = threading.Event()
        self._moved = threading.Event()
        self._tracker: StateTracker | None = None
        self._journal: StoreJournal | None = None
        self._cluster = ""
        self.problem = "the state is being loaded"  #: why no call can be decided; "" where it can
        self._thread = threading.Thread(target=self._work, name=f"desk {environment}", daemon=True)
        self._listener = threading.Thread(
            target=self._listen, name=f"news {environment}", daemon=True
        )

    def open(self) -> None:
        """Begin to work; the state is loaded in the background."""
        self._thread.start()
        self._listener.start()

    def submit(self, call: Call) -> None:
        """Raises Overloaded."""
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            raise Overloaded(f"{_WAITING} calls wait already") from None

    def close(self, *, seconds: float) -> bool:
        """Answer what was taken, then end; False where that took longer."""
        self._stopping.set()
        if self._thread.ident is None:
            return True
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def state(self) -> State | None:
        """The newest state that is known here; None before it is loaded."""
        return self._tracker.state if self._tracker is not None else None

    # --- the thread ----------------------------------------------------------------------------

    def _listen(self) -> None:
        for _ in self._store.news(self._stopping, every=self._poll):
            self._moved.set()

    def _work(self) -> None:
        self._ready()
        while True:
            try:
                call = self._calls.get(timeout=self._poll)
            except queue.Empty:
                self._idle()
                continue
            if call is None:
                return
            self._serve(call)

    def _ready(self) -> StateTracker | None:
        """The state, loaded now where it is not; None, with `problem`, where that fails."""
        if self._tracker is not None:
            return self._tracker
        try:
            self._cluster = self._store.read.environment(self._environment).cluster
            self._journal = StoreJournal(
                self._store,
                self._cluster,
                actor=ACTOR,
                clock=self._clock,
                environment=self._environment,
                origin=Origin.EXTENDER,
                cause=Cause.EXTENDER,
            )
            self._journal.active_rules()
            self._tracker = StateTracker(self._journal, clock=self._clock)
            self.problem = ""
        except StoreError as exc:
            self.problem = exc.message
        return self._tracker

    def _idle(self) -> None:
        """Take over what others wrote, and record what waits in the spool."""
        tracker = self._ready()
        if tracker is None:
            return
        try:
            if self._moved.is_set():
                self._moved.clear()
                tracker.refresh()
            for waiting in self._spool.waiting(self._environment):
                if not self._calls.empty() or self._stopping.is_set():
                    break
                self._record_late(tracker, waiting)
            self.problem = ""
        except (StoreError, Contended, StateMoved) as exc:
            self.problem = str(exc)

    def _serve(self, call: Call) -> None:
        if call.given_up:
            return
        try:
            tracker = self._ready()
            if tracker is None:
                raise StoreError(self.problem)
            call.request = read_preempt(call.body)
            call.said.set_result(self._decided(tracker, call, call.request))
            self.problem = ""
        except GivenUp:
            log.warning("a call was given up before its decision was recorded")
        except (BadRequest, DecisionError) as exc:
            call.said.set_exception(exc)
        except (StoreError, Contended) as exc:
            self.problem = str(exc)
            call.said.set_exception(exc)
        except Exception as exc:
            # The outermost frame of this thread: one call must not end the desk.
            log.exception("a call could not be decided")
            call.said.set_exception(exc)

    # --- deciding ------------------------------------------------------------------------------

    def _decided(self, tracker: StateTracker, call: Call, request: PreemptRequest) -> Said:
        taken = self._take_over(tracker, request)
        enforce = call.mode is CallMode.ENFORCE

        def record(proposal: Proposal[Decision]) -> Recorded:
            served = ServedCall(
                mode=call.mode,
                form=request.form,
                caller=call.caller,
                request_digest=request.digest,
                request_bytes=len(request.body),
                answer=_answer_of(proposal.result) if enforce else CallAnswer.OFFERED,
                failure="",
                from_request=taken,
                arrived_ms=call.arrived_ms,
                duration_us=call.duration_us,
            )
            try:
                return self._record(proposal, served, last=call.claim)
            except BaseException:
                call.reopen()
                raise

        decision, recorded = self._commit(tracker, request, record, effective=enforce)
        body = answer(_chosen(decision, request.offer)) if enforce else request.as_offered()
        return Said(body=body, outcome=decision.outcome.value, decision_id=recorded.decision_id)

    def _take_over(self, tracker: StateTracker, request: PreemptRequest) -> tuple[str, ...]:
        """Record the pods that the request knows better; their names."""
        taken: tuple[str, ...] = ()

        def changes(state: State) -> list[Change]:
            nonlocal taken
            found = brought(state.snapshot, request)
            taken = tuple(key for _, key, _ in found)
            return found

        tracker.change(lambda snapshot: changes(State(snapshot=snapshot, revision=0)), source=ACTOR)
        return taken

    def _commit(
        self,
        tracker: StateTracker,
        request: PreemptRequest,
        record: Callable[[Proposal[Decision]], Recorded],
        *,
        effective: bool,
    ) -> tuple[Decision, Recorded]:
        journal = self._journal
        assert journal is not None  # made with the tracker

        def propose(state: State) -> Proposal[Decision]:
            now_ms = self._clock()
            rules = journal.active_rules()
            assert rules is not None  # a desk has an environment
            base = state.at(now_ms, history=journal.history(rules, now_ms=now_ms))
            decision = decide(base.snapshot, rules, request.head.key, offer=request.offer)
            changes = changes_of(base.snapshot, decision) if effective else ()
            return Proposal(state=base, result=decision, changes=changes)

        subject = f"the decision of `{request.head.key}`"
        done = tracker.commit(propose, record, subject=subject)
        assert done is not None  # it was wanted all the time
        proposal, recorded = done
        assert recorded is not None  # this is no dry run
        return proposal.result, recorded

    def _record(
        self,
        proposal: Proposal[Decision],
        served: ServedCall,
        *,
        last: Callable[[], None] | None = None,
    ) -> Recorded:
        journal = self._journal
        assert journal is not None  # made with the tracker
        rules = journal.active_rules()
        assert rules is not None  # a desk has an environment
        if rules.digest != proposal.result.rule_set_digest:
            raise StateMoved("another rule set was activated")
        try:
            return self._store.record.decision(
                self._cluster,
                proposal.result,
                proposal.changes,
                expected_revision=proposal.state.revision,
                rules=rules,
                environment=self._environment,
                actor=served.caller or ACTOR,
                at_ms=self._clock(),
                candidates_kept=rules.audit_candidates,
                origin=Origin.EXTENDER,
                served=served,
                last=last,
            )
        except (StaleRevision, RuleSetChanged) as stale:
            raise StateMoved(str(stale)) from stale

    # --- what could not be recorded in time ----------------------------------------------------

    def _record_late(self, tracker: StateTracker, waiting: Waiting) -> None:
        """Record a spooled call: what was answered, and what is decided now."""
        call = waiting.call
        try:
            request = read_preempt(call.body)
            if not self._store.read.call_recorded(request.digest, arrived_ms=call.arrived_ms):
                taken = self._take_over(tracker, request)
                served = _late(call, request, taken)
                self._commit(
                    tracker,
                    request,
                    lambda proposal: self._record(proposal, served),
                    effective=False,
                )
        except (BadRequest, DecisionError) as exc:
            log.warning("a spooled call is no question that can be decided: %s", exc)
        self._spool.done(waiting)


def _late(call: SpooledCall, request: PreemptRequest, taken: tuple[str, ...]) -> ServedCall:
    return ServedCall(
        mode=CallMode(call.mode),
        form=request.form,
        caller=call.caller,
        request_digest=request.digest,
        request_bytes=len(call.body),
        answer=CallAnswer(call.answer),
        failure=call.failure,
        from_request=taken,
        arrived_ms=call.arrived_ms,
        duration_us=call.duration_us,
    )


def _answer_of(decision: Decision) -> CallAnswer:
    chosen = decision.outcome is Outcome.PREEMPT
    return CallAnswer.CHOSEN if chosen else CallAnswer.NONE


def _chosen(decision: Decision, offer: tuple[OfferedNode, ...]) -> tuple[OfferedNode, ...]:
    """The offered candidate that was decided for; none where there is no preemption."""
    if decision.outcome is not Outcome.PREEMPT:
        return ()
    violations = decision.candidates.pdb_violations[0]
    return tuple(
        OfferedNode(node=one.node, victims=one.victims, pdb_violations=violations)
        for one in offer
        if one.node == decision.node
    )
