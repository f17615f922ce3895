"""The process that records, as the process that decides sees it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable
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
    Claim,
    Claimed,
    Row,
    RowBroken,
    RowFailed,
    RowMoved,
    RowRecorded,
    ToRecorder,
)
from policy.store import StoreError
from policy.store.errors import Unavailable
from policy.store.model.decisions import Recorded

log = logging.getLogger("policy.server")

_EXIT_SECONDS: Final = 1.0


class RulesMoved(StateMoved):
    """Another rule set is active by now."""


class RecorderError(Exception):
    """What was not foreseen in the process that records; its log says more."""


class _WaitingRow(NamedTuple):
    claim: Callable[[], None]
    recorded: Future[list[Recorded]]


class Recorder:
    """Has rows recorded, those of an environment in the order in which they are sent."""

    def __init__(self, to_recorder: socket.socket, *, db: str, lost: Callable[[], None]) -> None:
        """to_recorder: to `recording.work`. lost: called where that ended by itself."""
        self._socket = to_recorder
        self._lost = lost
        self._closing = False
        self._numbers = count(1)
        self._sending = threading.Lock()
        self._rows: dict[int, _WaitingRow] = {}
        self._send(Begin(db=db))
        self._listener = threading.Thread(target=self._listen, name="recorded", daemon=True)
        self._listener.start()

    def record(self, row: Row, *, claim: Callable[[], None]) -> Future[list[Recorded]]:
        """What is recorded of a row, when it is committed.

        The future raises StateMoved where nothing was written and all is to be decided again, as
        RulesMoved where other rules are active; StoreError where the database could not take it;
        RecorderError. claim: the last step before the commit; where it raises GivenUp, nothing is
        written. It is called by the thread that completes the future.
        """
        recorded: Future[list[Recorded]] = Future()
        number = next(self._numbers)
        self._rows[number] = _WaitingRow(claim, recorded)
        self._send(row, row=number)
        return recorded

    def close(self) -> None:
        """End it after what it was sent."""
        self._closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._listener.join(_EXIT_SECONDS)
        self._socket.close()

    def _send(self, message: ToRecorder, *, row: int = 0) -> None:
        # If the other process has ended, `_listen` sees that.
        with self._sending, suppress(OSError):
            self._socket.sendall(record_channel.frame(message, row=row))

    def _listen(self) -> None:
        with os.fdopen(self._socket.fileno(), "rb", closefd=False) as file:
            self._hear(file)
        if not self._closing:
            self._lost()

    def _hear(self, file: BinaryIO) -> None:
        while (received := record_channel.from_recorder(file)) is not None:
            message, number = received
            if isinstance(message, Claim):
                self._send(Claimed(_granted(self._rows[number].claim)), row=number)
                continue
            recorded = self._rows.pop(number).recorded
            match message:
                case RowRecorded():
                    recorded.set_result(message.recorded)
                case RowMoved():
                    kind = RulesMoved if message.other_rules else StateMoved
                    recorded.set_exception(kind(message.text))
                case RowFailed():
                    of = Unavailable if message.unavailable else StoreError
                    recorded.set_exception(of(message.message, help=message.help))
                case RowBroken():
                    recorded.set_exception(RecorderError(message.text))


def _granted(claim: Callable[[], None]) -> bool:
    try:
        claim()
    except GivenUp:
        return False
    return True


class RecordingProcess:
    """A process that records, and its end."""

    def __init__(self, *, db: str) -> None:
        """Raises OSError."""
        self._child: Child = start(RECORDER)
        self.recorder: Final = Recorder(self._child.socket, db=db, lost=self._end)

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
