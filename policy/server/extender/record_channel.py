"""What the process that decides and the one that records say to one another.

Frames with numbers of rows. A row is recorded as one transaction: it is sent, and shortly before
the commit its calls are claimed; then it is recorded, or nothing of it is.
"""

from __future__ import annotations

from typing import BinaryIO, Final

import msgspec

from policy.cluster.objects import Pod
from policy.decision.record import DecisionRecord
from policy.server.extender import frames
from policy.store.model.decisions import Recorded, ServedCall
from policy.store.record.rule_sets import RuleSetText
from policy.typed import prepared

# --- to the recorder ------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message: the database. No command line may show its URL."""

    db: str


class DecidedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a call, made on the state that the one before it led to."""

    record: DecisionRecord
    pods: list[tuple[str, Pod | None]]  #: those that it changes, by namespace/name
    at_ms: int  #: when it was recorded, since 1970 UTC
    served: ServedCall


class Row(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Decisions that are recorded together."""

    cluster: str
    environment: str
    actor: str
    rules: RuleSetText
    expected_revision: int  #: that the first one was made on
    decided: list[DecidedCall]


class Claimed(msgspec.Struct, frozen=True, tag=True):
    """May the row be committed? Not where one of its calls was answered in another way."""

    granted: bool


# --- from the recorder ----------------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True, tag=True):
    """All of the row is written; its calls are to be claimed before it is committed."""


class RowRecorded(msgspec.Struct, frozen=True, tag=True):
    """The row is in the database."""

    recorded: list[Recorded]


class RowMoved(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written: the row is to be decided again."""

    text: str
    other_rules: bool  #: was another rule set activated meanwhile?


class RowFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing was written, as far as is known: the database could not take it."""

    message: str
    help: str
    unavailable: bool  #: is the database away?


class RowBroken(msgspec.Struct, frozen=True, tag=True):
    """An error that was not foreseen, which the log has; nothing was written."""

    text: str


ToRecorder = Begin | Row | Claimed
FromRecorder = Claim | RowRecorded | RowMoved | RowFailed | RowBroken

_TO_RECORDER: Final = msgspec.msgpack.Decoder(prepared(ToRecorder))
_FROM_RECORDER: Final = msgspec.msgpack.Decoder(prepared(FromRecorder))


def frame(message: ToRecorder | FromRecorder, *, row: int = 0) -> bytes:
    """The bytes of a message. row: the number of the row that it is about."""
    return frames.frame(message, number=row)


def to_recorder(file: BinaryIO) -> tuple[ToRecorder, int] | None:
    """The next message to the process that records, and the number of its row; None at the end."""
    found = frames.read(file, _TO_RECORDER)
    return found and found[:2]


def from_recorder(file: BinaryIO) -> tuple[FromRecorder, int] | None:
    """The next message from it, and the number of its row; None at the end."""
    found = frames.read(file, _FROM_RECORDER)
    return found and found[:2]
