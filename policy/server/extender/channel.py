"""What the service and the process of its desks say to one another, with numbers of calls."""

from __future__ import annotations

import asyncio
from typing import Any, BinaryIO, Final

import msgspec

from policy.server.extender import frames
from policy.server.extender.wire import PreemptRequest
from policy.store.sqlite_file import FileIdentity
from policy.typed import prepared


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a call, for its trace. Times in nanoseconds since 1970 UTC."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int | bool]


# --- to the desks ---------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message: what the desks work with. It has what no command line may show."""

    db: str
    identity: FileIdentity | None  #: of the database's file, which is the one of the service
    spool: str
    poll_seconds: float
    environment: str  #: whose desk is opened at once beside those of spooled calls; "" for none


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A preempt call, without its body: mostly all that is said of victims is known here."""

    request: PreemptRequest
    environment: str
    mode: str
    caller: str
    arrived_ms: int  #: since 1970 UTC
    started: float  #: `time.monotonic`, which all processes of a machine share
    seconds: float  #: after `started` up to which a decision is of use
    patience: float  #: seconds after `started` up to which it may wait for a newer state
    traced: bool  #: are its steps wanted?


class Body(msgspec.Struct, frozen=True, tag=True):
    """The body of a call, which was asked for, follows."""


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """Take the answer away from the call's decision, where that is not being committed."""


class Ending(msgspec.Struct, frozen=True, tag=True):
    """The service is about to end: no call may wait for a newer state any longer."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End after the calls that were sent."""

    seconds: float  #: given for it; then the service kills the process


# --- from the desks -------------------------------------------------------------------------------


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The decision is in the record; what is answered follows as body."""

    outcome: str
    steps: list[Step]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """There is no decision."""

    kind: str
    text: str
    help: str = ""
    steps: list[Step]


class BodyNeeded(msgspec.Struct, frozen=True, tag=True):
    """The call cannot be decided without its body."""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No decision will be recorded as the answer of this call."""

    steps: list[Step] = []
    sure: bool = True  #: False where that is only supposed, because nothing is heard of the desks


class Committing(msgspec.Struct, frozen=True, tag=True):
    """The call cannot be given up: its decision is being committed."""


class Status(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How an environment's desk is, sent when that changes."""

    environment: str
    problem: str  #: why no call can be decided; "" where it can
    revision: int | None  #: newest one that is known there; None before the state is loaded
    missing: bool = False  #: is there no such environment?


BAD_REQUEST: Final = "bad-request"
NO_ENVIRONMENT: Final = "no-environment"
NO_RULES: Final = "no-rules"
OVERLOAD: Final = "overload"
STORE: Final = "store"
IN_DOUBT: Final = "in-doubt"
INTERNAL: Final = "internal"
UNFORESEEN: Final = "unforeseen"
"""Kinds of failures: the call is wrong; there is no such environment, or it has no rules; too many
calls; the database; the same, where it may have taken the decision; an error of the system; one
that was not foreseen, which the log has."""

ToDesks = Begin | Call | Body | GiveUp | Ending | Stop
FromDesks = Answered | Failed | BodyNeeded | GivenUp | Committing | Status

_TO_DESKS: Final = msgspec.msgpack.Decoder(prepared(ToDesks))
_FROM_DESKS: Final = msgspec.msgpack.Decoder(prepared(FromDesks))


def frame(message: ToDesks | FromDesks, *, call: int = 0, body: bytes = b"") -> bytes:
    """The bytes of a message. call: the number of the call that it is about."""
    return frames.frame(message, number=call, body=body)


def read(file: BinaryIO) -> tuple[ToDesks, int, bytes] | None:
    """The next message to the desks, the number of its call, and its body; None at the end."""
    return frames.read(file, _TO_DESKS)


async def arrived(reader: asyncio.StreamReader) -> tuple[FromDesks, int, bytes]:
    """The next message from the desks. Raises IncompleteReadError at the end, and OSError."""
    call, size, more = frames.HEAD.unpack(await reader.readexactly(frames.HEAD.size))
    message: Any = _FROM_DESKS.decode(await reader.readexactly(size))
    return message, call, await reader.readexactly(more) if more else b""
