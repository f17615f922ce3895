"""The desk of one environment: judges the calls of schedulers, one after the other.

One thread owns the environment's state in this process. What other processes write reaches it as
changes; where one of them was faster, the decision is made again on the state that it left, so two
never promise the same room.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Final

from policy.cluster import collector
from policy.decision.model import Decision, OfferedNode, Outcome
from policy.preemption.decide import DecisionError
from policy.scheduling.state import Contended, State, StateMoved
from policy.server.extender.brought import BodyNeeded
from policy.server.extender.call import PreemptCall, Said
from policy.server.extender.deciding import (
    LARGEST,
    Answered,
    Decider,
    NotDecidable,
    WaitingRequest,
)
from policy.server.extender.news import News
from policy.server.extender.recorder import Recorder
from policy.server.extender.spool import Spool, SpooledCall, Waiting
from policy.server.extender.wire import BadRequest, PreemptRequest, answer, read_preempt
from policy.store import Store, StoreError
from policy.store.errors import NoActiveRules
from policy.store.model.decisions import CallAnswer, CallMode, ServedCall

log = logging.getLogger("policy.server")

_WAITING: Final = 1000
"""Calls that may wait; a scheduler sends one at a time, so more is somebody else."""

_APART: Final = 0.01
"""Seconds between the beginnings of two rows: calls that come faster share a transaction, which
costs as much as a decision. A scheduler by itself hardly ever asks again within that."""

_FAR_APART: Final = 0.015
"""The same, at most, where rows are shared already and take longer: what a row costs beside its
decisions is then paid by more of them, which leaves time to spare."""

_DECIDED: Final = 0.7
"""Part of the time that a row takes in which it is decided, and the most of it written."""

_SOON: Final = 0.05
"""Seconds between two looks at what others wrote while calls keep coming, or wait for that."""


_NEWEST_PART: Final = 0.2
"""Part that the last row has in how long rows are taken to last."""


class _Signal(Enum):
    MOVED = 1  # others may have written
    COMMITTED = 2  # the commit of a row has ended
    STOP = 3


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
        recorder: Recorder,
        spool: Spool,
        poll_seconds: float,
        ending: threading.Event,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """clock: milliseconds since 1970 UTC. ending: set when the process is to end.

        changed: called by the desk's thread when calls have their answers, once for those of a
        row, and whenever `problem` or the revision of `state` may be another one.
        """
        self._store = store
        self._environment = environment
        self._clock = clock
        self._recorder = recorder
        self._spool = spool
        self._poll = poll_seconds
        self._ending = ending
        self._changed = changed
        self._calls: queue.Queue[PreemptCall | _Signal] = queue.Queue(_WAITING)
        self._stopping = threading.Event()
        self._news = News()
        self._decider: Decider | None = None
        self._held: dict[WaitingRequest, PreemptCall] = {}  #: calls that wait for a newer state
        self._again: deque[PreemptCall] = deque()  #: calls of rows on a state that had moved
        self._tried = 0  #: revision on which those were decided last
        self._looked = time.monotonic()
        self._begun = 0.0  #: when the last row was taken
        self._lasts = 0.0  #: seconds that a row takes, of late
        self._shared = False  #: did the last row hold more than one call?
        self.problem = "the state is being loaded"  #: why no call can be decided; "" where it can
        self._thread = threading.Thread(target=self._work, name=f"desk {environment}", daemon=True)
        self._listener = threading.Thread(
            target=self._listen, name=f"news {environment}", daemon=True
        )

    def open(self) -> None:
        """Begin to work; the state is loaded in the background."""
        self._thread.start()
        self._listener.start()

    def submit(self, call: PreemptCall) -> None:
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
        self._calls.put(_Signal.STOP)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def state(self) -> State | None:
        """The newest state that is known here; None before it is loaded."""
        return self._decider.state if self._decider is not None else None

    # --- the thread ----------------------------------------------------------------------------

    def _listen(self) -> None:
        for _ in self._store.news(self._stopping, every=self._poll):
            if self._news.hear():
                # Where calls wait, the desk looks around between them.
                with suppress(queue.Full):
                    self._calls.put_nowait(_Signal.MOVED)

    def _work(self) -> None:
        with suppress(NoActiveRules):  # every call is answered with it
            self._ready()
        self._changed()
        while True:
            try:
                taken = [self._calls.get(timeout=self._pause)]
            except queue.Empty:
                self._look_around()
                continue
            if isinstance(taken[0], PreemptCall):
                self._let_gather()
                while (
                    len(taken) < LARGEST
                    and taken[-1] is not _Signal.STOP
                    and not self._calls.empty()
                ):
                    taken.append(self._calls.get())
            self._serve_again()
            self._serve([call for call in taken if isinstance(call, PreemptCall)])
            if self._decider is not None:
                self._decider.settle_if_done()
            ends = taken[-1] is _Signal.STOP
            taken.clear()  # bodies are not kept until the next call comes
            if ends:
                self._put_again()
                self._settle()
                while self._again:
                    self._serve_again()
                    self._settle()
                return
            if time.monotonic() - self._looked > self._pause:
                self._look_around()

    def _settle(self) -> None:
        if self._decider is None:
            return
        try:
            self._decider.settle()
        except (StoreError, Contended) as exc:
            log.warning("a pod that is gone stays in the state until that is read again: %s", exc)

    def _let_gather(self) -> None:
        """Wait until the next row may begin."""
        apart = max(_APART, min(_DECIDED * self._lasts, _FAR_APART)) if self._shared else _APART
        left = self._begun + apart - time.monotonic()
        if left > 0:
            self._stopping.wait(left)
        self._begun = time.monotonic()

    @property
    def _pause(self) -> float:
        """Seconds between two looks around."""
        return _SOON if self._news.age is not None or self._held else self._poll

    @property
    def _may_be_behind(self) -> bool:
        """Is it time to look at what others may have written?

        Rows tell that as well, and those that come one after the other sooner.
        """
        age = self._news.age
        return age is not None and (age > _SOON or time.monotonic() - self._begun > _SOON)

    def _ready(self) -> Decider | None:
        """Who decides, with the state; None, with `problem`, where it cannot be loaded.

        Raises NoActiveRules: then nothing is known to be amiss with the database.
        """
        if self._decider is None:
            try:
                self._decider = Decider(
                    self._store,
                    self._environment,
                    clock=self._clock,
                    recorder=self._recorder,
                )
                # The state lives as long as the process: the collector need not walk it.
                collector.freeze()
                self.problem = ""
            except StoreError as exc:
                self.problem = exc.message
                if isinstance(exc, NoActiveRules):
                    raise
        return self._decider

    def _look_around(self) -> None:
        """Take over what others wrote, and record what waits in the spool.

        While calls come without a pause one spooled call is recorded each time, so that none
        waits for ever.
        """
        self._looked = time.monotonic()
        try:
            decider = self._ready()
        except NoActiveRules as exc:
            self._let_go(exc)
            decider = None
        if decider is None:
            self._changed()
            return
        try:
            if self._may_be_behind or self._held:
                self._news.take()
                decider.refresh()
            decider.see_off()
            self._put_again()
            for waiting in self._spool.waiting(self._environment):
                self._record_late(decider, waiting)
                if not self._calls.empty() or self._stopping.is_set():
                    break
            self.problem = ""
        except (StoreError, Contended) as exc:
            self.problem = str(exc)
        self._changed()

    def _serve_again(self) -> None:
        """Decide once more what was decided on a state that others had changed by then."""
        if self._again:
            self._serve([self._again.popleft() for _ in range(len(self._again))])

    def _serve(self, calls: Sequence[PreemptCall]) -> None:
        """Answer the calls in the order in which they came."""
        asked: dict[WaitingRequest, PreemptCall] = {}
        for call in calls:
            try:
                if call.given_up:
                    continue
                # One that cannot be answered in time would take the time of those that can: where
                # it is given up meanwhile, its whole row is decided again. One that has just come
                # is always tried: how long a row takes may have been bad luck.
                if call.left < min(2 * self._lasts, call.seconds / 2):
                    raise Overloaded("more calls wait than can be decided in time")
                asked[_question(call)] = call
            except Overloaded as exc:
                call.fail(exc)
        if len(asked) < len(calls):
            self._changed()
        if not asked:
            return
        self._shared = len(asked) > 1
        while asked:
            before = len(asked)
            self._answer(asked)
            # INVARIANT: whatever happens, a call is done with.
            assert len(asked) < before

    def _answer(self, asked: dict[WaitingRequest, PreemptCall]) -> None:
        """Decide the first questions, and take them out; they are answered when it is recorded."""
        began = time.monotonic()
        try:
            decider = self._ready()
            if decider is None:
                raise StoreError(self.problem)
            decided = decider.decide(list(asked))
        except (StoreError, Contended) as exc:
            self._fail(list(asked.values()), exc)
            asked.clear()
            return
        except Exception as exc:
            # The outermost frame of this thread: one call must not end the desk, nor the calls
            # that wait with it.
            if len(asked) > 1:
                for question in list(asked):
                    self._answer({question: asked.pop(question)})
                return
            log.exception("a call could not be decided")
            asked.popitem()[1].fail(exc)
            self._changed()
            return
        row = {question: asked.pop(question) for question in decided.questions}
        for result in decided.others:
            call = row.pop(result.question)
            if isinstance(result, NotDecidable):
                if isinstance(result.reason, BodyNeeded):
                    call.need_body()
                else:
                    call.fail(result.reason)
            else:
                self._held[result.question] = call
                self._tried = result.revision
        if decided.others:
            self._changed()
        decided.answered.add_done_callback(partial(self._recorded, row, began))

    def _recorded(
        self,
        row: Mapping[WaitingRequest, PreemptCall],
        began: float,
        answered: Future[list[Answered]],
    ) -> None:
        """Answer a row, whose commit has ended; called by the thread that waited for it."""
        self._lasts += _NEWEST_PART * (time.monotonic() - began - self._lasts)
        failure = answered.exception()
        if isinstance(failure, StateMoved):
            self._again.extend(row.values())
        elif failure is not None:
            self._fail(list(row.values()), failure)
        else:
            for result in answered.result():
                row[result.question].said.set_result(_said(result))
            self._news.recorded(began)
            self.problem = ""
            self._changed()
        for call in row.values():
            if call.given_up:
                log.warning("a call was given up before its decision was recorded")
        # What is kept of the row, bodies too, is let go of.
        with suppress(queue.Full):
            self._calls.put_nowait(_Signal.COMMITTED)

    def _fail(self, calls: Sequence[PreemptCall], reason: BaseException) -> None:
        """No decision about these calls is recorded, as far as is known."""
        if isinstance(reason, StoreError | Contended):
            self.problem = str(reason)
        else:
            log.error("decisions could not be committed", exc_info=reason)
        for call in calls:
            call.fail(reason)
        self._changed()

    def _put_again(self) -> None:
        """Decide the calls that wait for a newer state: where there is one, or no time is left."""
        for call in self._held.values() if self._ending.is_set() else ():
            call.patience = 0.0
        moved = self.state is not None and self.state.revision != self._tried
        asked = {q: call for q, call in self._held.items() if moved or not call.patient}
        for question in asked:
            del self._held[question]
        while asked:
            self._answer(asked)

    # --- what could not be recorded in time ----------------------------------------------------

    def _let_go(self, reason: NoActiveRules) -> None:
        """Keep no spooled call of an environment without rules: none of them can be judged.

        They were spooled while the database did not even say that there are none.
        """
        for waiting in self._spool.waiting(self._environment):
            log.warning("a spooled call is in no record: %s", reason)
            self._spool.done(waiting)

    def _record_late(self, decider: Decider, waiting: Waiting) -> None:
        """Record a spooled call: what was answered, and what is decided now."""
        call = waiting.call
        try:
            request = read_preempt(call.body)
            if not self._store.read.call_recorded(request.digest, arrived_ms=call.arrived_ms):
                before: list[str] = []
                question = WaitingRequest(
                    request=request,
                    body=call.body,
                    caller=call.caller,
                    effective=False,
                    served=lambda _, taken: _late(call, request, (*before, *taken)),
                    again=before.extend,
                )
                decider.record_late(question)
        except (BadRequest, DecisionError) as exc:
            log.warning("a spooled call is no question that can be decided: %s", exc)
        self._spool.done(waiting)


def _question(call: PreemptCall) -> WaitingRequest:
    """What the call wants to know."""
    request = call.request
    enforce = call.mode is CallMode.ENFORCE

    def served(decision: Decision, taken: tuple[str, ...]) -> ServedCall:
        return ServedCall(
            mode=call.mode,
            form=request.form,
            caller=call.caller,
            request_digest=request.digest,
            request_bytes=request.size,
            answer=_answer_of(decision) if enforce else CallAnswer.OFFERED,
            failure="",
            from_request=tuple(dict.fromkeys((*call.taken, *taken))),
            arrived_ms=call.arrived_ms,
            duration_us=call.duration_us,
            waited_us=call.waited_us,
        )

    return WaitingRequest(
        request=request,
        body=call.body,
        caller=call.caller,
        effective=enforce,
        served=served,
        withdrawn=lambda: call.given_up,
        claim=call.claim,
        reopen=call.reopen,
        hold=call.hold,
        again=call.keep,
        trace=call.trace,
    )


def _said(answered: Answered) -> Said:
    decision, question = answered.decision, answered.question
    offer = question.request.offer
    return Said(
        body=answer(_chosen(decision, offer) if question.effective else offer),
        outcome=decision.outcome.value,
        decision_id=answered.recorded.decision_id,
    )


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
        waited_us=0,
    )


def _answer_of(decision: Decision) -> CallAnswer:
    chosen = decision.outcome is Outcome.PREEMPT
    return CallAnswer.CHOSEN if chosen else CallAnswer.NONE


def _chosen(decision: Decision, offer: tuple[OfferedNode, ...]) -> tuple[OfferedNode, ...]:
    """The offered candidate that was decided for; none where there is no preemption.

    Each victim once, as it is recorded, however often it was offered.
    """
    if decision.outcome is not Outcome.PREEMPT:
        return ()
    violations = decision.candidates.pdb_violations[0]
    return tuple(
        OfferedNode(
            node=one.node,
            victims=tuple(dict.fromkeys(one.victims)),
            pdb_violations=violations,
        )
        for one in offer
        if one.node == decision.node
    )
