"""The process of the desks: `python -m policy.server.extender.worker`, started by `desks`.

Its standard input is the socket to the service. It ends by a message, or with the service: at the
end of the socket. Signals that end the service are blocked here, because Ctrl-C goes to both.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from policy.preemption.decide import DecisionError
from policy.scheduling.state import Contended
from policy.server import interpreter
from policy.server.extender import channel
from policy.server.extender.call import PreemptCall, Said
from policy.server.extender.channel import Step
from policy.server.extender.desk import Desk, Overloaded
from policy.server.extender.recorder import InDoubt, RecordingProcess
from policy.server.extender.spool import Spool
from policy.server.extender.wire import BadRequest
from policy.server.interpreter import clock_ms
from policy.server.tracing import UNTRACED, Attributes, Trace
from policy.store import Store, StoreError
from policy.store.errors import NoActiveRules, NotFound, Unavailable
from policy.store.model.decisions import CallMode

log = logging.getLogger("policy.server")

_AT_ONCE_BYTES: Final = 256 << 10
"""Read together. To read is a call of the system, after which the thread that decides is waited
for: what came during a decision is a few calls."""
_CLOSING_SECONDS: Final = 0.5
"""For the process that records and the store, once the desks have ended."""
_ALONE_SECONDS: Final = 8.0
"""For all of it where the service is gone."""


def main() -> int:
    """Work until the service says so or ends."""
    interpreter.prepare()
    with socket.socket(fileno=sys.stdin.fileno()) as to_service:
        file = os.fdopen(to_service.fileno(), "rb", buffering=_AT_ONCE_BYTES, closefd=False)
        first = channel.read(file)
        if first is None:
            return 0
        begin = first[0]
        assert isinstance(begin, channel.Begin)
        worker = _Worker(to_service, begin)
        while (received := channel.read(file)) is not None:
            message, number, body = received
            match message:
                case channel.Call():
                    worker.submit(message, number)
                case channel.Body():
                    worker.submit_again(number, body)
                case channel.GiveUp():
                    worker.give_up(number)
                case channel.Ending():
                    worker.ending.set()
                case channel.Stop():
                    worker.close(seconds=message.seconds)
                    return 0
            del received, message, body  # the last one is not kept until the next one comes
        # The service is gone, and with it everybody who waits.
        worker.abandon()
        worker.close(seconds=_ALONE_SECONDS)
    return 0


class _Worker:
    """The desks, and what is said about their calls."""

    def __init__(self, to_service: socket.socket, begin: channel.Begin) -> None:
        self._to_service = to_service
        self._poll_seconds = begin.poll_seconds
        self._store = Store.opened_elsewhere(begin.db, identity=begin.identity)
        self._spool = Spool(Path(begin.spool))
        self._desks: dict[str, Desk] = {}
        #: that have no answer yet, by number
        self._calls: dict[int, tuple[PreemptCall, Desk]] = {}
        self._answers: deque[tuple[int, Trace, Future[Said]]] = deque()
        self._statuses: dict[str, channel.Status] = {}  #: as they were sent
        self._lock = threading.Lock()
        self._recording = RecordingProcess(db=begin.db, identity=begin.identity, told=self._send)
        self.ending = threading.Event()
        if begin.environment:
            self._desk(begin.environment)
        # Who spooled these may never be called for them again.
        for environment in self._spool.environments():
            self._desk(environment)

    def submit(self, given: channel.Call, number: int) -> None:
        """Have a call decided."""
        desk = self._desk(given.environment)
        call = PreemptCall(
            request=given.request,
            mode=CallMode(given.mode),
            caller=given.caller,
            arrived_ms=given.arrived_ms,
            seconds=given.seconds,
            patience=given.patience,
            started=given.started,
            trace=_Steps() if given.traced else UNTRACED,
            need_body=partial(self._send, channel.frame(channel.BodyNeeded(), call=number)),
        )
        self._calls[number] = call, desk
        # The call is none of it: it and its future would hold one another, and with them its body.
        call.said.add_done_callback(partial(self._keep, number, call.trace))
        self._submit(call, desk)

    def submit_again(self, number: int, body: bytes) -> None:
        """Have a call decided that needs its body."""
        found = self._calls.get(number)
        if found is not None:  # it may have been given up
            call, desk = found
            call.body = body
            self._submit(call, desk)

    def _submit(self, call: PreemptCall, desk: Desk) -> None:
        try:
            desk.submit(call)
        except Overloaded as exc:
            call.fail(exc)
            self._send()

    def give_up(self, number: int) -> None:
        """The deadline of a call has passed."""
        found = self._calls.get(number)
        if found is None:
            return
        call, desk = found
        if call.give_up():
            desk.gave_up()
        elif not call.said.done():
            self._send(channel.frame(channel.Committing(), call=number))
        if call.given_up and self._calls.pop(number, None) is not None:
            self._send(channel.frame(channel.GivenUp(steps=_taken(call.trace)), call=number))

    def abandon(self) -> None:
        """Record no decision any more but what is being committed."""
        for call, _ in tuple(self._calls.values()):
            call.give_up()

    def close(self, *, seconds: float) -> None:
        """End the desks, each after the calls that it holds."""
        self.ending.set()
        end = time.monotonic() + seconds - _CLOSING_SECONDS
        for desk in self._desks.values():
            desk.close(seconds=max(0.1, end - time.monotonic()))
        self._recording.close()
        self._store.close()

    def _desk(self, environment: str) -> Desk:
        desk = self._desks.get(environment)
        if desk is None:
            desk = self._desks[environment] = Desk(
                self._store,
                environment,
                clock=clock_ms,
                recorder=self._recording.recorder,
                spool=self._spool,
                poll_seconds=self._poll_seconds,
                ending=self.ending,
                changed=self._send,
            )
            desk.open()
        return desk

    # --- what is said, from any thread -----------------------------------------------------------

    def _keep(self, number: int, trace: Trace, said: Future[Said]) -> None:
        if self._calls.pop(number, None) is not None:
            self._answers.append((number, trace, said))

    def _send(self, *frames: bytes) -> None:
        """Send these, the answers that there are, and how the desks are, in one call."""
        with self._lock:
            sent = [*frames]
            while self._answers:
                sent.append(_frame(*self._answers.popleft()))
            for environment, desk in tuple(self._desks.items()):
                state = desk.state
                status = channel.Status(
                    environment=environment,
                    problem=desk.problem,
                    revision=None if state is None else state.revision,
                    missing=desk.missing,
                )
                if self._statuses.get(environment) != status:
                    self._statuses[environment] = status
                    sent.append(channel.frame(status))
            # Where the service is gone, who reads the socket ends this process.
            with suppress(OSError):
                self._to_service.sendall(b"".join(sent))


class _Steps:
    """A trace that the service adds to its own."""

    def __init__(self) -> None:
        self.taken: list[Step] = []

    def add(self, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        self.taken.append(
            Step(name=name, start_ns=start_ns, end_ns=end_ns, attributes=dict(attributes))
        )

    def end(self, status: int) -> None:
        """That is seen by the service."""


def _taken(trace: Trace) -> list[Step]:
    return trace.taken if isinstance(trace, _Steps) else []


def _frame(number: int, trace: Trace, said: Future[Said]) -> bytes:
    """What the service hears of a call that is done."""
    steps, reason = _taken(trace), said.exception()
    if reason is None:
        found = said.result()
        answered = channel.Answered(outcome=found.outcome, steps=steps)
        return channel.frame(answered, call=number, body=found.body)
    kind, text = _failure(reason)
    what_to_do = reason.help if isinstance(reason, NoActiveRules) else ""
    failed = channel.Failed(kind=kind, text=text, help=what_to_do, steps=steps)
    return channel.frame(failed, call=number)


def _failure(reason: BaseException) -> tuple[str, str]:
    """Its kind, and a sentence for the scheduler or the record."""
    match reason:
        case BadRequest() | DecisionError():
            return channel.BAD_REQUEST, str(reason)
        case Overloaded():
            return channel.OVERLOAD, str(reason)
        case NotFound():
            return channel.NO_ENVIRONMENT, reason.message
        case NoActiveRules():
            return channel.NO_RULES, reason.message
        case InDoubt():
            log.error("it is not known what was committed: %s", reason.message)
            return channel.IN_DOUBT, ""
        case Unavailable():
            # The record keeps what is said here for viewers; where the database is, they need not
            # know.
            log.error("calls could not be decided: %s", reason.message)
            return channel.STORE, "the database could not take it"
        case StoreError():
            return channel.STORE, reason.message
        case Contended():
            return channel.STORE, str(reason)
        case OSError():
            return channel.INTERNAL, f"internal error ({type(reason).__name__})"
    return channel.UNFORESEEN, type(reason).__name__


if __name__ == "__main__":
    sys.exit(main())
