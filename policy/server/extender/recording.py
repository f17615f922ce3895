"""The process that records: `python -m policy.server.extender.recording`, started by `recorder`.

To write a row is as much work of Python's as to decide some of it. Here it is done on another core,
while the next row is decided. Its standard input is the socket to the process that decides, with
which it ends; what is not claimed by then is taken back.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import BinaryIO, Final

from policy.cluster import collector
from policy.server import interpreter
from policy.server.extender import record_channel
from policy.server.extender.call import GivenUp
from policy.server.extender.record_channel import (
    Begin,
    Claim,
    Claimed,
    FromRecorder,
    Row,
    RowBroken,
    RowFailed,
    RowMoved,
    RowRecorded,
)
from policy.store import StaleRevision, Store, StoreError
from policy.store.errors import Unavailable
from policy.store.model.decisions import Origin, Recorded
from policy.store.record.decisions import DecidedPod
from policy.store.record.environments import RuleSetChanged

log = logging.getLogger("policy.server")

_AT_ONCE_BYTES: Final = 256 << 10
"""Read together: a row of some calls."""

_END_SECONDS: Final = 2.0
"""For a commit that is under way when the process that decides ends."""


def main() -> int:
    """Record until the process that decides ends."""
    interpreter.prepare()
    with socket.socket(fileno=sys.stdin.fileno()) as to_desks:
        if not work(to_desks):
            # It waits for the database, which keeps a row whole or not at all, whoever ends.
            os._exit(1)
    return 0


def work(to_desks: socket.socket) -> bool:
    """Record what comes, until nothing more does; then end what is under way.

    False where that did not end within seconds.
    """
    file = os.fdopen(to_desks.fileno(), "rb", buffering=_AT_ONCE_BYTES, closefd=False)
    first = record_channel.to_recorder(file)
    if first is None:
        return True
    begin = first[0]
    assert isinstance(begin, Begin)
    store = Store.opened_elsewhere(begin.db)
    writers = _Writers(store, to_desks)
    # What is loaded by now stays: the collector need not walk it.
    collector.freeze()
    if not writers.listen(file):
        return False  # to close the store would wait for it, too
    store.close()
    return True


class _Writers:
    """Writes rows, those of an environment one after the other."""

    def __init__(self, store: Store, to_desks: socket.socket) -> None:
        self._record = store.record
        self._to_desks = to_desks
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}  #: by environment
        self._newest: dict[str, Future[None]] = {}  #: row of each environment
        self._claims: dict[int, Future[bool]] = {}  #: that are waited for, by row
        self._ended = False  #: comes nothing any more?

    def listen(self, file: BinaryIO) -> bool:
        """Until nothing more comes; True when what was under way then has ended."""
        while (received := record_channel.to_recorder(file)) is not None:
            message, number = received
            match message:
                case Row():
                    thread = self._thread(message.environment)
                    self._newest[message.environment] = thread.submit(self._write, message, number)
                case Claimed():
                    self._claims.pop(number).set_result(message.granted)
            del received, message
        with self._lock:
            self._ended = True
        # The process that decides has ended: no row can be claimed.
        for claim in self._claims.values():
            claim.set_result(False)
        for thread in self._threads.values():
            thread.shutdown(wait=False)
        return not wait(self._newest.values(), _END_SECONDS).not_done

    def _thread(self, environment: str) -> ThreadPoolExecutor:
        thread = self._threads.get(environment)
        if thread is None:
            thread = self._threads[environment] = ThreadPoolExecutor(
                max_workers=1, thread_name_prefix=f"record {environment}"
            )
        return thread

    def _write(self, row: Row, number: int) -> None:
        self._send(self._result(row, number), number)

    def _result(self, row: Row, number: int) -> FromRecorder:
        try:
            return RowRecorded(self._recorded(row, number))
        except (StaleRevision, RuleSetChanged, GivenUp) as exc:
            return RowMoved(text=str(exc), other_rules=isinstance(exc, RuleSetChanged))
        except StoreError as exc:
            away = isinstance(exc, Unavailable)
            return RowFailed(message=exc.message, help=exc.help, unavailable=away)
        except Exception as exc:
            # The outermost frame of this thread: the process goes on with other rows.
            log.exception("decisions could not be recorded")
            return RowBroken(type(exc).__name__)

    def _recorded(self, row: Row, number: int) -> list[Recorded]:
        # On Postgres the rows are written and committed without waiting for each, and the calls are
        # claimed meanwhile.
        commit = self._record.decision_group_ahead(
            row.cluster,
            [
                DecidedPod(
                    record=one.record,
                    changes=[("Pod", key, pod) for key, pod in one.pods],
                    at_ms=one.at_ms,
                    served=one.served,
                )
                for one in row.decided
            ],
            expected_revision=row.expected_revision,
            rules=row.rules,
            environment=row.environment,
            actor=row.actor,
            origin=Origin.EXTENDER,
            last=lambda: self._claim(number),
        )
        return commit.result()

    def _claim(self, number: int) -> None:
        """Raises GivenUp."""
        claim: Future[bool] = Future()
        with self._lock:
            if self._ended:
                raise GivenUp
            self._claims[number] = claim
        self._send(Claim(), number)
        if not claim.result():
            raise GivenUp

    def _send(self, message: FromRecorder, number: int) -> None:
        # If the other process has ended, `listen` sees that.
        with self._lock, suppress(OSError):
            self._to_desks.sendall(record_channel.frame(message, row=number))


if __name__ == "__main__":
    sys.exit(main())
