"""The process that records: `python -m policy.server.extender.recording`, started by `recorder`.

To record a decision is half as much work of Python's as to make it. Here it is done on another
core, while the next ones are made; those that wait share a transaction. Its standard input is the
socket to the process that decides, with which it ends; what is not claimed by then is taken back.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import BinaryIO, Final, NamedTuple

from policy.cluster import collector
from policy.server import interpreter
from policy.server.extender import record_channel
from policy.server.extender.call import Deadline, GivenUp
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
    FromRecorder,
)
from policy.store import StaleRevision, Store, StoreError
from policy.store.errors import AlreadyWritten, ConnectionLost, PodsGone, Unavailable
from policy.store.model.decisions import Origin, Recorded
from policy.store.record.decisions import DecidedPod
from policy.store.record.environments import RuleSetChanged
from policy.store.record.keys import WriteKey

log = logging.getLogger("policy.server")

_AT_ONCE_BYTES: Final = 256 << 10
"""Read together: some calls."""

LARGEST: Final = 16
"""Calls of a transaction: the first one waits for all."""

_APART: Final = 0.01
"""Seconds between the beginnings of two transactions: calls that come faster share one, which
costs as much as a decision. A scheduler by itself hardly ever asks again within that."""

_FAR_APART: Final = 0.02
"""The same where many calls wait for their decision: what a transaction costs beside its calls is
then paid by more of them, which leaves more time to decide."""

_MANY: Final = 8
"""Calls that are so many; where fewer wait, the time is in between."""

_CLAIM_SECONDS: Final = 5.0
"""For which it is waited whether calls may be recorded that have no deadline."""

_END_SECONDS: Final = 2.0
"""For a commit that is under way when the process that decides ends."""


def main() -> int:
    """Record until the process that decides ends."""
    interpreter.prepare()
    with socket.socket(fileno=sys.stdin.fileno()) as to_desks:
        if not work(to_desks):
            # It waits for the database, which keeps a transaction whole or not at all.
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
    store = Store.opened_elsewhere(begin.db, identity=begin.identity, planned_once=True)
    _ = store.record  # is imported where it is first asked for
    with suppress(StoreError):  # what is to be recorded first will tell what is amiss
        store.connect()
    writers = _Writers(store, to_desks)
    # What is loaded by now stays: the collector need not walk it.
    collector.freeze()
    if not writers.listen(file):
        return False  # to close the store would wait for it, too
    store.close()
    return True


class _Writers:
    """Writes what comes, a thread for each environment."""

    def __init__(self, store: Store, to_desks: socket.socket) -> None:
        self._store = store
        self._to_desks = _ToDesks(to_desks)
        self._writers: dict[str, _Writer] = {}  #: by environment

    def listen(self, file: BinaryIO) -> bool:
        """Until nothing more comes; True when what was under way then has ended."""
        while (received := record_channel.to_recorder(file)) is not None:
            message, number = received
            match message:
                case DecidedCall():
                    self._writer(message.environment).submit(message, number)
                case Claimed():
                    self._to_desks.claimed(message.calls, granted=message.granted)
            del received, message
        self._to_desks.end()
        end = time.monotonic() + _END_SECONDS
        for writer in self._writers.values():
            writer.end()
        return all(writer.ended(end) for writer in self._writers.values())

    def _writer(self, environment: str) -> _Writer:
        writer = self._writers.get(environment)
        if writer is None:
            writer = self._writers[environment] = _Writer(self._store, environment, self._to_desks)
        return writer


class _ToDesks:
    """The process that decides, as it is spoken to by any thread."""

    def __init__(self, to_desks: socket.socket) -> None:
        self._socket = to_desks
        self._lock = threading.Lock()
        #: that are waited for, by number of the first call
        self._claims: dict[int, Future[bool]] = {}
        self._ended = False  #: comes nothing any more?

    def send(self, message: FromRecorder) -> None:
        # If the other process has ended, `listen` sees that.
        with self._lock, suppress(OSError):
            self._socket.sendall(record_channel.frame(message))

    def claim(self, calls: list[int]) -> Future[bool]:
        """Ask whether these calls may be recorded."""
        claim: Future[bool] = Future()
        with self._lock:
            if self._ended:
                claim.set_result(False)
                return claim
            self._claims[calls[0]] = claim
        self.send(Claim(calls=calls))
        return claim

    def claimed(self, calls: list[int], *, granted: bool) -> None:
        self._claims.pop(calls[0]).set_result(granted)

    def end(self) -> None:
        """The process that decides has ended: nothing can be claimed."""
        with self._lock:
            self._ended = True
        for claim in self._claims.values():
            claim.set_result(False)


class _Sent(NamedTuple):
    number: int
    call: DecidedCall

    @property
    def shares(self) -> tuple[str, str, str, WriteKey | None]:
        """What is the same for all decisions of a transaction.

        With a key one is alone: no other is to be taken back with it.
        """
        return self.call.cluster, self.call.actor, self.call.rules.digest, self.call.once


class _Writer:
    """Records the calls of one environment, those that wait together in one transaction."""

    def __init__(self, store: Store, environment: str, to_desks: _ToDesks) -> None:
        self._record = store.record
        self._environment = environment
        self._to_desks = to_desks
        self._waiting: deque[_Sent] = deque()
        self._changed = threading.Condition()  #: is there something that waits, or the end?
        self._ending = False
        self._begun = 0.0  #: when the last transaction began
        self._granted = False  #: were the calls claimed, so that all that is left is the commit?
        self._behind = 0  #: calls that waited for their decision when its last one was made
        name = f"record {environment}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: DecidedCall, number: int) -> None:
        with self._changed:
            self._waiting.append(_Sent(number, call))
            self._changed.notify()

    def end(self) -> None:
        """End when nothing waits any more."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def ended(self, end: float) -> bool:
        """False where that takes longer than until `end` (`time.monotonic`)."""
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while together := self._following():
            result = self._result(together)
            self._behind = together[-1].call.waiting
            self._to_desks.send(result)

    def _following(self) -> list[_Sent]:
        """The calls of the next transaction; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
        apart = _APART + (_FAR_APART - _APART) * min(1.0, self._behind / _MANY)
        time.sleep(max(0.0, self._begun + apart - time.monotonic()))
        self._begun = time.monotonic()
        with self._changed:
            shared = self._waiting[0].shares if self._waiting else None
            alike = takewhile(lambda sent: sent.shares == shared, self._waiting)
            together = list(islice(alike, LARGEST))
            for _ in together:
                self._waiting.popleft()
        return together

    def _result(self, together: Sequence[_Sent]) -> FromRecorder:
        """What becomes of the calls, when their transaction has ended."""
        calls = [sent.number for sent in together]
        self._granted = False
        try:
            return CallsRecorded(calls=calls, recorded=self._recorded(together, calls))
        except (StaleRevision, RuleSetChanged, GivenUp) as exc:
            other_rules = isinstance(exc, RuleSetChanged)
            return CallsOvertaken(calls=calls, text=str(exc), other_rules=other_rules)
        except PodsGone as exc:
            return CallsGone(calls=calls, text=exc.message, pods=sorted(exc.pods))
        except ConnectionLost as exc:
            if self._granted:
                return CallsInDoubt(calls=calls, text=exc.message)
            return CallsFailed(calls=calls, message=exc.message, help=exc.help, unavailable=True)
        except AlreadyWritten as exc:
            return CallsKnown(calls=calls, text=exc.message)
        except StoreError as exc:
            away = isinstance(exc, Unavailable)
            return CallsFailed(calls=calls, message=exc.message, help=exc.help, unavailable=away)
        except Exception as exc:
            # The outermost frame of this thread: the process goes on with other calls.
            log.exception("decisions could not be recorded")
            return CallsBroken(calls=calls, text=type(exc).__name__)

    def _recorded(self, together: Sequence[_Sent], calls: list[int]) -> list[Recorded]:
        first = together[0].call
        deadlines = (sent.call.deadline for sent in together)
        first_deadline = min((one for one in deadlines if one is not None), default=None)
        return self._record.decision_group(
            first.cluster,
            [
                DecidedPod(
                    record=sent.call.record,
                    taken=[("Pod", key, pod) for key, pod in sent.call.taken],
                    new_uid=sent.call.new_uid,
                    changes=[("Pod", key, pod) for key, pod in sent.call.pods],
                    at_ms=sent.call.at_ms,
                    served=sent.call.served,
                )
                for sent in together
            ],
            expected_revision=first.expected_revision,
            expected_digest=first.expected_digest,
            rules=first.rules,
            environment=self._environment,
            actor=first.actor,
            origin=Origin.EXTENDER,
            claim=partial(self._claim, calls, first_deadline),
            seconds=None if first_deadline is None else first_deadline.seconds_to_write,
            once=first.once,
            unless_decided=first.unless_decided,
        )

    def _claim(self, calls: list[int], deadline: Deadline | None) -> Callable[[], None]:
        """deadline: the first one of the calls; None where none has any."""
        claim = self._to_desks.claim(calls)

        def granted() -> None:
            # Where the process that decides stands still, what is written here must not keep others
            # from writing for as long as it does.
            seconds = _CLAIM_SECONDS if deadline is None else deadline.seconds_to_claim()
            try:
                if not claim.result(seconds):
                    raise GivenUp
            except TimeoutError:
                raise GivenUp from None
            self._granted = True

        return granted


if __name__ == "__main__":
    sys.exit(main())
