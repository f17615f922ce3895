"""The desks, as the process that schedulers call sees them: in a process of their own.

To decide and record is work of a millisecond or two, in which Python lets no other thread of its
process go on. The process that reads requests and sends answers does not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from asyncio import StreamWriter
from typing import Final, NamedTuple

import msgspec

from policy.server.extender import channel
from policy.server.extender.channel import (
    Answered,
    BodyNeeded,
    Call,
    Committing,
    Failed,
    GivenUp,
    Status,
)
from policy.server.extender.child import DESKS, Child, start
from policy.server.extender.wire import BadRequest
from policy.server.http import Failure, in_own_thread, unforeseen
from policy.server.tracing import Trace
from policy.store.sqlite_file import FileIdentity

log = logging.getLogger("policy.server")

_LOADING: Final = "the state is being loaded"
_STANDS_STILL: Final = "the process that decides stands still"
_BY_END: Final = "before the service ended"
_LARGEST_PART: Final = 1 << 20
"""Of answers that are read before those before them are taken."""
_EXIT_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 1.0
"""For which it is waited, at the end of the service, whether a call that is given up was just being
committed."""
_Reply = tuple[Answered | Failed | GivenUp | None, bytes]
"""What is said of a call, and what is answered; None where the process has ended."""


class NoDecision(Exception):  # for the record in the words of its text
    """No decision was recorded as the answer of a call."""

    def __init__(self, reason: str, text: str, *, doubtful: bool = False) -> None:
        """reason: a word for the figures. text: a sentence for the record.

        doubtful: may one be recorded all the same, because nothing is heard of the desks?
        """
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.doubtful = doubtful


class InDoubt(Exception):  # what happened, not what went wrong
    """The call was decided and recorded, or it was not: nothing was heard of the commit."""


class _WaitingCall(NamedTuple):
    body: bytes
    reply: asyncio.Future[_Reply]


class Desks:
    """The process begins with `start`, or with the first call; `close` ends it.

    It has a desk for each environment that is called for, or that calls in the spool are for.

    Used on the event loop, but for `start` and what is only read.
    """

    def __init__(
        self, *, db: str, spool: str, poll_seconds: float, child: Child | None = None
    ) -> None:
        """child: the process, where it was started by now."""
        self._db, self._spool, self._poll_seconds = db, spool, poll_seconds
        #: of the database's file, set once the service has opened that: the process may begin much
        #: later, when another file may be in its place
        self.identity: FileIdentity | None = None
        self._child = child
        self.begun = False  #: has the process what it works with?
        self._writer: StreamWriter | None = None
        self._connecting = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[int, _WaitingCall] = {}  #: by number
        self._committing: set[int] = set()  #: those that could not be given up any more
        self._number = 0
        self._closing = False
        self._cut_short = False  #: are all calls given up, because the service ends?
        self._statuses: dict[str, Status] = {}
        self._expected: set[str] = set()  #: environments that the service knows
        self.lost = False  #: has the process ended by itself?
        self._heard = 0  #: messages from it, by now
        self._silent = False  #: was there none for as long as a call may take, though one was due?

    def start(self, environment: str = "") -> None:
        """Let the process begin. environment: whose state it loads at once. Raises OSError."""
        child = self._child = self._child or start(DESKS)
        if environment:
            self._expect(environment)
        begin = channel.Begin(
            db=self._db,
            identity=self.identity,
            spool=self._spool,
            poll_seconds=self._poll_seconds,
            environment=environment,
        )
        child.socket.sendall(channel.frame(begin))
        self.begun = True

    async def connect(self) -> None:
        """Listen to the process, which is started where it was not."""
        async with self._connecting:
            if self._writer is not None:
                return
            if not self.begun:
                self.start()
            assert self._child is not None
            reader, self._writer = await asyncio.open_unix_connection(
                sock=self._child.socket, limit=_LARGEST_PART
            )
            self._listening = asyncio.create_task(self._listen(reader))

    async def ask(self, call: Call, body: bytes, trace: Trace) -> tuple[bytes, str]:
        """The answer to a call, and the outcome of its decision.

        body: of the call, which goes to the process where it is needed.

        Raises NoDecision: nothing will be recorded as the call's answer, or nothing was heard for
        twice as long as the call may take. Raises InDoubt, BadRequest, and Failure where the
        environment has no rules, or where the process has ended.
        """
        try:
            if self._writer is None:
                await self.connect()
        except OSError as exc:
            raise NoDecision(channel.INTERNAL, f"internal error ({type(exc).__name__})") from exc
        if self.lost:
            raise _ended()
        self._expect(call.environment)
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = _WaitingCall(body, loop.create_future())
        left = call.started + call.seconds - time.monotonic()
        alarm = loop.call_later(left, self._give_up, number, call.seconds)
        self._send(call, number=number)
        try:
            reply, answer = await waiting.reply
        finally:
            alarm.cancel()
            del self._waiting[number]
            self._committing.discard(number)
        if reply is None:
            raise _ended()
        for step in reply.steps:
            trace.add(step.name, step.start_ns, step.end_ns, step.attributes)
        match reply:
            case Answered():
                return answer, reply.outcome
            case GivenUp():
                by = f"within {call.seconds * 1000:.0f} ms"
                said = f"no decision was recorded {_BY_END if self._cut_short else by}"
                raise NoDecision("deadline", said, doubtful=not reply.sure)
            case Failed(kind=channel.BAD_REQUEST):
                raise BadRequest(reply.text)
            case Failed(kind=channel.NO_ENVIRONMENT):
                self._forget(call.environment)
                raise Failure(404, "not-found", reply.text)
            case Failed(kind=channel.NO_RULES):
                # Not an outage that passes: no rules are active here, so there is nothing
                # to record later either.
                raise Failure(409, "conflict", reply.text, help=reply.help)
            case Failed(kind=channel.IN_DOUBT):
                raise InDoubt
            case Failed(kind=channel.UNFORESEEN):
                raise unforeseen()
        raise NoDecision(reply.kind, reply.text)

    def end_soon(self, *, seconds: float) -> None:
        """No call may wait for a newer state any longer, and none at all for more than `seconds`"""
        if self._writer is not None:
            self._send(channel.Ending())
            asyncio.get_running_loop().call_later(seconds, self._give_all_up)

    def _give_all_up(self) -> None:
        self._cut_short = True
        for number in tuple(self._waiting):
            self._give_up(number, _LAST_SECONDS)

    async def close(self, *, seconds: float) -> None:
        """End the process after the calls that it holds, without them where that takes longer."""
        self._closing = True
        if self._child is None:
            return
        process = self._child.process
        if self._writer is not None:
            self._send(channel.Stop(seconds=seconds))
        else:
            process.kill()  # the service never listened: no call is held
            self._child.socket.close()
        try:
            await in_own_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            log.warning("the process that decides did not end within %.0f seconds", seconds)
            process.kill()
            process.wait()
        if self._listening is not None and self._writer is not None:
            await self._listening
            self._writer.close()

    # --- what is only read, from any thread -------------------------------------------------------

    def has(self, environment: str) -> bool:
        """Is there such an environment, as far as is known here?

        One that only the spool names may be in no database.
        """
        status = self._statuses.get(environment)
        return environment in self._expected or (status is not None and status.revision is not None)

    @property
    def statuses(self) -> list[Status]:
        """How each desk is."""
        found = list(self._statuses.values())
        if self._silent:  # what it said last may be no longer so
            return [msgspec.structs.replace(one, problem=_STANDS_STILL) for one in found]
        return found

    # --- on the event loop ------------------------------------------------------------------------

    def _expect(self, environment: str) -> None:
        self._expected.add(environment)
        if environment not in self._statuses:
            self._statuses[environment] = Status(
                environment=environment, problem=_LOADING, revision=None
            )

    def _forget(self, environment: str) -> None:
        """There is no such environment."""
        self._expected.discard(environment)
        self._statuses.pop(environment, None)

    def _send(self, message: channel.ToDesks, *, number: int = 0, body: bytes = b"") -> None:
        assert self._writer is not None
        self._writer.write(channel.frame(message, call=number, body=body))

    def _give_up(self, number: int, seconds: float) -> None:
        """The deadline has passed: unless it is being committed, another answer is given.

        What is being committed is the answer, if it can be known within as long again.
        """
        self._send(channel.GiveUp(), number=number)
        asyncio.get_running_loop().call_later(seconds, self._suppose, number, self._heard)

    def _suppose(self, number: int, heard: int) -> None:
        """Nothing more was said of the call in all that time. heard: messages at its beginning.

        What is being committed may be in the record later: no other answer goes with it.
        """
        if number in self._committing:
            in_doubt = Failed(kind=channel.IN_DOUBT, text="", steps=[])
            self._settle(number, in_doubt, b"")
        elif number in self._waiting:
            self._settle(number, GivenUp(sure=False), b"")
            self._silent = self._heard == heard

    def _settle(self, number: int, reply: Answered | Failed | GivenUp | None, body: bytes) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.reply.done():
            waiting.reply.set_result((reply, body))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message, number, body = await channel.arrived(reader)
                self._heard += 1
                self._silent = False
                if isinstance(message, Status):
                    self._hear(message)
                elif isinstance(message, BodyNeeded):
                    if number in self._waiting:
                        self._send(channel.Body(), number=number, body=self._waiting[number].body)
                elif isinstance(message, Committing):
                    if number in self._waiting:
                        self._committing.add(number)
                else:
                    self._settle(number, message, body)
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has ended, as below
        finally:
            if not self._closing:
                self._lose()

    def _hear(self, status: Status) -> None:
        if status.missing:
            self._forget(status.environment)
            return
        before = self._statuses.get(status.environment)
        self._statuses[status.environment] = status
        if status.problem and (before is None or before.problem != status.problem):
            log.warning("no calls for `%s` are decided: %s", status.environment, status.problem)
        elif not status.problem and before is not None and before.problem not in ("", _LOADING):
            log.warning("calls for `%s` are decided again", status.environment)

    def _lose(self) -> None:
        """Nobody knows what it had committed: no call is answered with a guess."""
        self.lost = True
        assert self._child is not None
        try:
            status = self._child.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.process.kill()
            status = self._child.process.wait()
        log.error("the process that decides has ended by itself, with status %d", status)
        for number in tuple(self._waiting):
            self._settle(number, None, b"")


def _ended() -> Failure:
    return Failure(
        503,
        "unavailable",
        "the process that decides has ended, and this one ends, too; whether the call was decided"
        " is in the record",
    )
