"""The desk of one environment: judges the calls of schedulers, one after the other.

One thread owns the environment's state in this process. What other processes write reaches it as
changes; where one of them was faster, the decision is made again on the state that it left, so two
never promise the same room.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from policy.cluster import collector
from policy.decision.model import Decision, OfferedNode, Outcome
from policy.preemption.decide import DecisionError
from policy.scheduling.state import Contended, State, StateMoved
from policy.server.extender.brought import BodyNeeded
from policy.server.extender.call import PreemptCall, Said
from policy.server.extender.deciding import (
    DECIDED_IN_TIME,
    Answered,
    Decider,
    Held,
    NotDecidable,
    WaitingRequest,
)
from policy.server.extender.news import News
from policy.server.extender.recorder import InDoubt, Recorder
from policy.server.extender.spool import Spool, SpooledCall, Waiting
from policy.server.extender.wire import BadRequest, PreemptRequest, answer, read_preempt
from policy.store import Store, StoreError
from policy.store.errors import AlreadyWritten, NoActiveRules, NotFound, Unavailable
from policy.store.model.decisions import CallAnswer, CallMode, ServedCall

log = logging.getLogger("policy.server")

_WAITING: Final = 1000
"""Calls that may wait; a scheduler sends one at a time, so more is somebody else."""

_SOON: Final = 0.05
"""Seconds between two looks at what others wrote while calls keep coming, or wait for that."""

_LATE: Final = 3
"""Calls in a row that were given up before their decisions were recorded, from which on it is taken
for certain that none is in time."""

_DOUBT_SECONDS: Final = 10.0
"""For which it is said that nothing can be recorded, where nothing waits with which to try it."""

_SET_ASIDE: Final = (
    "a spooled call cannot be recorded; it is kept in `%s`, and is tried again where that is"
    " renamed to end in `.calls`"
)

_NEWEST_PART: Final = 0.2
"""Part that the last call has in how long calls are taken to last."""


class _Signal(Enum):
    MOVED = 1  # others may have written
    COMMITTED = 2  # a commit has ended
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

        changed: called by any thread when a call has no decision, and whenever `problem` may be
        another one. The answers of calls are there when their record is (see `Recorder`).
        """
        self._store = store
        self._environment = environment
        self._clock = clock
        self._recorder = recorder
        self._spool = spool
        self._poll = poll_seconds
        self._ending = ending
        self._changed = changed
        self._calls: SimpleQueue[PreemptCall | _Signal] = SimpleQueue()
        self._stopping = threading.Event()
        self._news = News()
        self._spool_problem = ""  #: why spooled calls are not recorded, as the log has it
        self._decider: Decider | None = None
        self._held: dict[WaitingRequest, PreemptCall] = {}  #: calls that wait for a newer state
        self._again: deque[PreemptCall] = deque()  #: calls on a state that had moved
        self._tried = 0  #: revision on which those were decided last
        self._looked = time.monotonic()
        self._begun = 0.0  #: when the last call was taken
        self._taken = 0  #: calls, by now
        self._lasts = 0.0  #: seconds from there to the record, of late
        self._unread = "the state is being loaded"  #: why there is no newest state; "" with one
        self._unwritten = ""  #: why the last decision could not be recorded; "" where it could
        self._unwritten_at = 0.0
        self._late = 0  #: calls in a row that were given up
        self.missing = False  #: is there no such environment?
        self._lost_rules = False  #: are there none any more, as after a backup was restored?
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
        if self._calls.qsize() >= _WAITING:
            raise Overloaded(f"{_WAITING} calls wait already")
        self._calls.put(call)

    def close(self, *, seconds: float) -> bool:
        """Answer what was taken, then end; False where that took longer."""
        self._stopping.set()
        if self._thread.ident is None:
            return True
        self._calls.put(_Signal.STOP)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def problem(self) -> str:
        """Why no call can be decided; "" where it can.

        That the state can be read says nothing about whether decisions can be recorded, as on a
        full disk: of that only what was recorded last does.
        """
        return self._unread or self._unwritten

    def gave_up(self) -> None:
        """A call was answered in another way before its decision was recorded."""
        self._late += 1
        if self._late >= _LATE:
            self._cannot_write("decisions are not recorded in time")

    def _cannot_write(self, why: str) -> None:
        self._unwritten, self._unwritten_at = why, time.monotonic()

    def _can_write(self) -> None:
        self._unwritten, self._late = "", 0

    @property
    def state(self) -> State | None:
        """The newest state that is known here; None before it is loaded."""
        decider = self._decider
        return decider.state if decider is not None else None

    # --- the thread ----------------------------------------------------------------------------

    def _listen(self) -> None:
        for _ in self._store.news(self._stopping, every=self._poll):
            if self._news.hear():
                # Where calls wait, the desk looks around between them.
                self._calls.put(_Signal.MOVED)

    def _work(self) -> None:
        with suppress(NoActiveRules, NotFound):  # every call is answered with it
            self._ready()
        self._changed()
        while True:
            try:
                taken = self._calls.get(timeout=self._pause)
            except Empty:
                self._look_around()
                continue
            self._serve_again()
            if isinstance(taken, PreemptCall):
                self._serve(taken)
            self._tidy()
            if taken is _Signal.STOP:
                self._put_again()
                self._settle()
                while self._again:
                    self._serve_again()
                    self._settle()
                return
            del taken  # its body is not kept until the next call comes
            if time.monotonic() - self._looked > self._pause:
                self._look_around()

    def _tidy(self) -> None:
        """Keep nothing of calls whose commit has ended."""
        try:
            if self._decider is not None:
                self._decider.settle_if_done()
        except (StoreError, Contended) as exc:  # tried again when it looks around
            self._unread = str(exc)
            self._changed()

    def _settle(self) -> None:
        if self._decider is None:
            return
        try:
            self._decider.settle()
        except (StoreError, Contended) as exc:
            log.warning("a pod that is gone stays in the state until that is read again: %s", exc)

    @property
    def _pause(self) -> float:
        """Seconds between two looks around."""
        return _SOON if self._news.age is not None or self._held else self._poll

    @property
    def _may_be_behind(self) -> bool:
        """Is it time to look at what others may have written?

        Commits tell that as well, and those that come one after the other sooner.
        """
        age = self._news.age
        return age is not None and (age > _SOON or time.monotonic() - self._begun > _SOON)

    def _ready(self) -> Decider | None:
        """Who decides, with the state; None, with `problem`, where it cannot be loaded.

        Raises NoActiveRules, and NotFound where there is no such environment: then nothing is known
        to be amiss with the database.
        """
        if self._decider is None:
            try:
                self._decider = Decider(
                    self._store,
                    self._environment,
                    clock=self._clock,
                    recorder=self._recorder,
                    waiting=self._calls.qsize,
                )
                # The state lives as long as the process: the collector need not walk it.
                collector.freeze()
                self._unread, self.missing = "", False
            except StoreError as exc:
                self._unread = exc.message
                self.missing = self._is_none(exc)
                if isinstance(exc, NoActiveRules) or self.missing:
                    raise
            except Exception as exc:
                log.exception("the desk of `%s` could not be prepared", self._environment)
                self._unread = _unforeseen(exc)
        return self._decider

    def _look_around(self) -> None:
        """Take over what others wrote, and record what waits in the spool.

        While calls come without a pause one spooled call is recorded each time, so that none
        waits for ever.
        """
        self._looked = time.monotonic()
        if self._lost_rules:
            self._settle()
            self._decider, self._lost_rules = None, False
        try:
            decider = self._ready()
        except (NoActiveRules, NotFound) as exc:
            self._let_go(exc)
            decider = None
        if decider is None:
            self._put_again()
            self._changed()
            return
        can_read = False
        try:
            decider.settle_if_done()
            if self._may_be_behind or self._held:
                self._news.take()
                decider.refresh()
            decider.see_off()
            self._unread = ""
            can_read = True
        except (StoreError, Contended) as exc:
            self._unread = str(exc)
        except Exception as exc:
            # The outermost frame of this thread: what was not foreseen must not end the desk.
            log.exception("the desk of `%s` could not look around", self._environment)
            self._unread = _unforeseen(exc)
        self._put_again()
        if can_read:
            self._try_to_write(decider)
        self._changed()

    def _try_to_write(self, decider: Decider) -> None:
        """Record what waits in the spool, by which it shows whether that is possible."""
        try:
            self._record_spooled(decider)
        except (StoreError, Contended) as exc:
            self._cannot_write(str(exc))
        except Exception as exc:  # as above
            log.exception("the desk of `%s` could not record what was spooled", self._environment)
            self._cannot_write(_unforeseen(exc))
        doubted = time.monotonic() - self._unwritten_at
        if self._unwritten and doubted > _DOUBT_SECONDS and self._nothing_waits:
            self._can_write()  # the next call will tell

    @property
    def _nothing_waits(self) -> bool:
        """Is there no spooled call with which to try? In a folder that cannot be read is none."""
        with suppress(OSError):  # which the log has by now
            return next(iter(self._spool.waiting(self._environment)), None) is None
        return True

    def _serve_again(self) -> None:
        """Decide once more what was decided on a state that others had changed by then."""
        for _ in range(len(self._again)):
            self._serve(self._again.popleft())

    def _serve(self, call: PreemptCall) -> None:
        """Have a call answered."""
        if call.given_up:
            return
        # One that cannot be answered in time would take the time of those that can. One that has
        # just come is always tried: how long the last ones took may have been bad luck.
        if call.left < min(2 * self._lasts, call.seconds / 2):
            call.fail(Overloaded("too little of its deadline is left to decide it"))
            self._changed()
            return
        self._answer(_question(call), call)

    def _answer(self, question: WaitingRequest, call: PreemptCall) -> None:
        """Decide a call; it is answered when that is recorded."""
        began = self._begun = time.monotonic()
        self._taken += 1
        try:
            decider = self._ready()
            if decider is None:
                raise StoreError(self.problem)
            decided = decider.decide(question)
        except (StoreError, Contended) as exc:
            self._fail(call, exc)
            return
        except Exception as exc:
            # The outermost frame of this thread: one call must not end the desk.
            log.exception("a call could not be decided")
            call.fail(exc)
            self._changed()
            return
        match decided:
            case Held():
                self._held[question] = call
                self._tried = decided.revision
                self._changed()
            case NotDecidable(reason=BodyNeeded()):
                call.need_body()
            case NotDecidable():
                call.fail(decided.reason)
                self._changed()
            case Future():
                decided.add_done_callback(partial(self._recorded, call, self._taken, began))
            case None:  # withdrawn
                pass

    def _recorded(
        self, call: PreemptCall, number: int, began: float, answered: Future[Answered]
    ) -> None:
        """Answer a call whose commit has ended; called by the thread that waited for it."""
        self._lasts += _NEWEST_PART * (time.monotonic() - began - self._lasts)
        failure = answered.exception()
        moved = isinstance(failure, StateMoved)
        if moved:
            self._again.append(call)
        elif failure is not None:
            self._fail(call, failure)
        else:
            call.said.set_result(_said(answered.result()))
            self._news.recorded(began)
            self._unread = ""
            self._can_write()
        if call.given_up:
            log.warning("a call was given up before its decision was recorded")
        if moved or number == self._taken:
            # It is decided again; or what is kept of it and those before, bodies too, is let go of.
            self._calls.put(_Signal.COMMITTED)

    def _fail(self, call: PreemptCall, reason: BaseException) -> None:
        """No decision about the call is recorded, as far as is known."""
        if isinstance(reason, NoActiveRules | NotFound):
            self._unread = str(reason)
            self._lost_rules = self._has_no_rules(reason)
        elif isinstance(reason, StoreError | Contended):
            self._cannot_write(str(reason))
        else:
            log.error("a decision could not be committed", exc_info=reason)
        call.fail(reason)
        self._changed()

    def _put_again(self) -> None:
        """Decide the calls that wait for a newer state: where there is one, or no time is left."""
        for call in self._held.values() if self._ending.is_set() else ():
            call.patience = 0.0
        moved = self.state is not None and self.state.revision != self._tried
        asked = {q: call for q, call in self._held.items() if moved or not call.patient}
        for question, call in asked.items():
            del self._held[question]
            self._answer(question, call)

    # --- what could not be recorded in time ----------------------------------------------------

    def _is_none(self, exc: Exception) -> bool:
        """Is there no such environment? A call is also kept for one that could not be looked up."""
        if not isinstance(exc, NotFound):
            return False
        try:
            there = {row.name for row in self._store.read.environments()}
        except StoreError:  # away by now: whoever looks next will know
            return False
        return self._environment not in there

    def _has_no_rules(self, exc: Exception) -> bool:
        """Can no call be judged, whatever it is, because there are no rules for any?"""
        return isinstance(exc, NoActiveRules) or self._is_none(exc)

    def _let_go(self, reason: NoActiveRules | NotFound) -> None:
        """Keep no spooled call of an environment without rules: none of them can be judged.

        They were spooled while the database did not even say that there are none.
        """
        with self._at_the_spool():
            for waiting in self._spool.waiting(self._environment):
                self._spool.done(waiting)
                log.warning("a spooled call is in no record: %s", reason)

    def _record_spooled(self, decider: Decider) -> None:
        """Record the calls that wait in the spool, as long as no scheduler waits for an answer.

        One that cannot be recorded does not hold up those behind it, and a folder that cannot be
        written no calls that are to be decided. Raises StoreError where the database is away,
        Contended.
        """
        with self._at_the_spool():
            for waiting in self._spool.waiting(self._environment):
                try:
                    self._record_late(decider, waiting)
                except (Unavailable, InDoubt, Contended, OSError):
                    raise
                except (StoreError, BadRequest, DecisionError) as exc:
                    if self._has_no_rules(exc):
                        self._lost_rules = True  # the next look lets go of it, as of all others
                        break
                    kept = self._spool.set_aside(waiting)
                    log.error(_SET_ASIDE + ": %s", kept, _in_full(exc))
                except Exception:
                    kept = self._spool.set_aside(waiting)
                    log.exception(_SET_ASIDE, kept)
                if not self._calls.empty() or self._stopping.is_set():
                    break

    @contextmanager
    def _at_the_spool(self) -> Iterator[None]:
        """What the folder does not allow ends the block, not the desk; the log says it once."""
        problem = ""
        try:
            yield
        except OSError as exc:
            problem = str(exc)
        if problem and problem != self._spool_problem:
            log.error("spooled calls of `%s` are not recorded: %s", self._environment, problem)
        self._spool_problem = problem

    def _record_late(self, decider: Decider, waiting: Waiting) -> None:
        """Record a spooled call: what was answered, and what is decided now."""
        call = waiting.call
        try:
            request = read_preempt(call.body)
            if call.doubtful:
                decider.settle()  # its decision may be in a commit that is still under way
            if not self._is_recorded(waiting, request.digest):
                question = WaitingRequest(
                    request=request,
                    body=call.body,
                    caller=call.caller,
                    effective=False,
                    served=lambda _, taken: _late(call, request, taken),
                    once=waiting.key,
                    in_doubt=call.doubtful,
                )
                decider.record_late(question)
                self._can_write()
        except AlreadyWritten:
            pass  # another process has recorded it meanwhile
        self._spool.done(waiting)

    def _is_recorded(self, waiting: Waiting, request_digest: str) -> bool:
        """Need a spooled call not be decided? `record_late` knows better, but only afterwards.

        Another process may just be committing it.
        """
        call, read = waiting.call, self._store.read
        return read.key_is_taken(waiting.key) or (
            call.doubtful
            and read.call_decided(
                request_digest,
                environment=call.environment,
                mode=call.mode,
                caller=call.caller,
                arrived_ms=call.arrived_ms,
                failures=DECIDED_IN_TIME,
            )
        )


def _in_full(exc: StoreError | BadRequest | DecisionError) -> str:
    """What is wrong, and what to do about it, in one line."""
    advice = "" if isinstance(exc, BadRequest) else exc.help
    return f"{exc} ({advice})" if advice else str(exc)


def _unforeseen(exc: Exception) -> str:
    return f"an error that was not foreseen ({type(exc).__name__})"


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
            from_request=taken,
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
        held=lambda: call.held,
        deadline=call.deadline,
        trace=call.trace,
    )


def _said(answered: Answered) -> Said:
    decision, offer = answered.decision, answered.question.request.offer
    match answered.answer:
        case CallAnswer.CHOSEN:
            offer = _chosen(decision, offer)
        case CallAnswer.NONE:
            offer = ()
    return Said(
        body=answer(offer),
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
    """The offered candidate that was decided for.

    Each victim once, as it is recorded, however often it was offered.
    """
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
