"""What the process that decides and the one that records say to one another.

Frames. A decision about a call is sent as it is made, with a number. Those that wait together share
a transaction: while that is written its calls are claimed, all or none of them; then
it is committed, or nothing of it is kept.
"""

from __future__ import annotations

from typing import BinaryIO, Final

import msgspec

from policy.cluster.objects import Pod
from policy.decision.record import DecisionRecord
from policy.server.extender import frames
from policy.server.extender.call import Deadline
from policy.store.model.decisions import Recorded, ServedCall
from policy.store.record.keys import WriteKey
from policy.store.record.rule_sets import RuleSetText
from policy.store.sqlite_file import FileIdentity
from policy.store.state.around import PodId
from policy.typed import prepared

# --- to the recorder ------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message: the database. No command line may show its URL."""

    db: str
    identity: FileIdentity | None  #: of its file


class DecidedCall(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The decision about a call, made on the state that the one before it led to."""

    cluster: str
    environment: str
    actor: str
    rules: RuleSetText
    expected_revision: int  #: that it was made on, or that `taken` is to be recorded on
    expected_digest: str  #: of the state there
    taken: list[tuple[str, Pod | None]]  #: pods that the call knows better, by namespace/name
    new_uid: str | None  #: of its pod, where that is taken for one that was never there
    record: DecisionRecord
    pods: list[tuple[str, Pod | None]]  #: those that it changes, by namespace/name
    at_ms: int  #: when it was recorded, since 1970 UTC
    served: ServedCall
    once: WriteKey | None  #: under which one process records it; None where no other has the call
    unless_decided: tuple[str, ...]  #: not where it is in the record with one of these failures
    waiting: int  #: calls that wait for their decision
    deadline: Deadline | None  #: up to which it is of use; None where it always is


class Claimed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """May these calls be recorded? Not where one of them was answered in another way."""

    calls: list[int]
    granted: bool


# --- from the recorder ----------------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """These calls are being written; nothing is committed before they are claimed."""

    calls: list[int]


class CallsRecorded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The decisions are in the database."""

    calls: list[int]
    recorded: list[Recorded]  #: parallel to `calls`


class CallsOvertaken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written: the calls are to be decided again."""

    calls: list[int]
    text: str
    other_rules: bool  #: was another rule set activated meanwhile?


class CallsGone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written: pods of the calls had been there, and have left.

    All of the calls are to be decided again.
    """

    calls: list[int]
    text: str
    pods: list[PodId]


class CallsKnown(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written: the calls were in the record by then, under their key."""

    calls: list[int]
    text: str


class CallsFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written, as far as is known: the database could not take it."""

    calls: list[int]
    message: str
    help: str
    unavailable: bool  #: is the database away?


class CallsInDoubt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The connection broke while they were committed: all of them are recorded, or none."""

    calls: list[int]
    text: str


class CallsBroken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An error that was not foreseen, which the log has; nothing was written."""

    calls: list[int]
    text: str


ToRecorder = Begin | DecidedCall | Claimed
FromRecorder = (
    Claim
    | CallsRecorded
    | CallsOvertaken
    | CallsGone
    | CallsKnown
    | CallsFailed
    | CallsInDoubt
    | CallsBroken
)

_TO_RECORDER: Final = msgspec.msgpack.Decoder(prepared(ToRecorder))
_FROM_RECORDER: Final = msgspec.msgpack.Decoder(prepared(FromRecorder))


def frame(message: ToRecorder | FromRecorder, *, call: int = 0) -> bytes:
    """The bytes of a message. call: the number of the call that it decides."""
    return frames.frame(message, number=call)


def to_recorder(file: BinaryIO) -> tuple[ToRecorder, int] | None:
    """The next message to the process that records, and the number of its call; None at the end."""
    found = frames.read(file, _TO_RECORDER)
    return found and found[:2]


def from_recorder(file: BinaryIO) -> FromRecorder | None:
    """The next message from it; None at the end."""
    found = frames.read(file, _FROM_RECORDER)
    return found and found[0]
