"""The process that records, as the process that decides sees it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import BinaryIO, Final, NamedTuple

from policy.scheduling.state import StateMoved
from policy.server.extender import record_channel
from policy.server.extender.call import GivenUp
from policy.server.extender.child import RECORDER, Child, start
from policy.server.extender.record_channel import (
    Begin,
    CallsBroken,
    CallsFailed,
    CallsGone,
    CallsInDoubt,
    CallsKnown,
    CallsOvertaken,
    CallsRecorded,
    Claim,
    Claimed,
    DecidedCall,
    ToRecorder,
)
from policy.store import StoreError
from policy.store.errors import AlreadyWritten, Unavailable
from policy.store.model.decisions import Recorded
from policy.store.sqlite_file import FileIdentity
from policy.store.state.around import PodId

log = logging.getLogger("policy.server")

_EXIT_SECONDS: Final = 1.0


class RulesMoved(StateMoved):
    """Another rule set is active by now."""


class PodsMoved(StateMoved):
    """Pods that were taken for new ones had been there, and have left."""

    def __init__(self, text: str, pods: Iterable[PodId]) -> None:
        super().__init__(text)
        self.pods = frozenset(pods)


class InDoubt(StoreError):
    """The connection to the database broke during the commit: it is recorded, or it is not."""


class RecorderError(Exception):
    """What was not foreseen in the process that records; its log says more."""


class _WaitingCall(NamedTuple):
    claim: Callable[[], None]
    recorded: Future[Recorded]


class Recorder:
    """Has calls recorded, those of an environment in the order in which they are sent."""

    def __init__(
        self,
        to_recorder: socket.socket,
        *,
        db: str,
        identity: FileIdentity | None = None,
        lost: Callable[[], None],
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """to_recorder: to `recording.work`. identity: of the database's file.

        lost: called where that process ended by itself.

        told: called when the futures of a transaction are done, all of them.
        """
        self._socket = to_recorder
        self._lost = lost
        self._told = told
        self._closing = False
        self._numbers = count(1)
        self._sending = threading.Lock()
        self._calls: dict[int, _WaitingCall] = {}  #: by number
        self._send(Begin(db=db, identity=identity))
        self._listener = threading.Thread(target=self._listen, name="recorded", daemon=True)
        self._listener.start()

    def record(self, call: DecidedCall, *, claim: Callable[[], None]) -> Future[Recorded]:
        """What is recorded of a call, when it is committed.

        The future raises StateMoved where nothing was written and the call is to be decided again,
        as RulesMoved where other rules are active, as PodsMoved where its pod, or that of a call
        recorded with it, is no new one; AlreadyWritten where it was recorded before under its key;
        another StoreError where the database could not take it, as InDoubt where it
        may have taken it all the same; RecorderError. claim: comes before the commit; where it
        raises GivenUp, nothing is written of what shares the transaction. It is called by the
        thread that completes the future.
        """
        recorded: Future[Recorded] = Future()
        number = next(self._numbers)
        self._calls[number] = _WaitingCall(claim, recorded)
        self._send(call, call=number)
        return recorded

    def close(self) -> None:
        """End it after what it was sent."""
        self._closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._listener.join(_EXIT_SECONDS)
        self._socket.close()

    def _send(self, message: ToRecorder, *, call: int = 0) -> None:
        # If the other process has ended, `_listen` sees that.
        with self._sending, suppress(OSError):
            self._socket.sendall(record_channel.frame(message, call=call))

    def _listen(self) -> None:
        with os.fdopen(self._socket.fileno(), "rb", closefd=False) as file:
            self._hear(file)
        if not self._closing:
            self._lost()

    def _hear(self, file: BinaryIO) -> None:
        while (message := record_channel.from_recorder(file)) is not None:
            if isinstance(message, Claim):
                granted = self._claimed(message.calls)
                self._send(Claimed(calls=message.calls, granted=granted))
                continue
            waiting = [self._calls.pop(number).recorded for number in message.calls]
            if isinstance(message, CallsRecorded):
                for future, recorded in zip(waiting, message.recorded, strict=True):
                    future.set_result(recorded)
            else:
                failure = _failure(message)
                for future in waiting:
                    future.set_exception(failure)
            self._told()

    def _claimed(self, calls: Iterable[int]) -> bool:
        """Claim these; False where one of them cannot be. What is not recorded is reopened then."""
        try:
            for number in calls:
                self._calls[number].claim()
        except GivenUp:
            return False
        return True


def _failure(
    message: CallsOvertaken | CallsGone | CallsKnown | CallsFailed | CallsInDoubt | CallsBroken,
) -> Exception:
    match message:
        case CallsOvertaken():
            kind = RulesMoved if message.other_rules else StateMoved
            return kind(message.text)
        case CallsGone():
            return PodsMoved(message.text, message.pods)
        case CallsKnown():
            return AlreadyWritten(message.text)
        case CallsFailed():
            of = Unavailable if message.unavailable else StoreError
            return of(message.message, help=message.help)
        case CallsInDoubt():
            return InDoubt(message.text)
        case CallsBroken():
            return RecorderError(message.text)


class RecordingProcess:
    """A process that records, and its end."""

    def __init__(
        self,
        *,
        db: str,
        identity: FileIdentity | None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """As of a `Recorder`. Raises OSError."""
        self._child: Child = start(RECORDER)
        self.recorder: Final = Recorder(
            self._child.socket, db=db, identity=identity, lost=self._end, told=told
        )

    def close(self) -> None:
        """End it, when all is recorded that is to be."""
        self.recorder.close()
        try:
            self._child.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("the process that records did not end within %.0f seconds", _EXIT_SECONDS)
            self._child.process.kill()
            self._child.process.wait()

    def _end(self) -> None:
        """What it had committed is unknown here: no call is answered with a guess."""
        log.error("the process that records has ended by itself: so does the one that decides")
        os._exit(1)
