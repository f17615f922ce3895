"""One call of a scheduler on its way: who may still say what is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from policy.server.extender.wire import PreemptRequest
from policy.server.tracing import UNTRACED, Trace
from policy.store.model.decisions import CallMode

_PART_TO_WRITE: Final = 0.75
"""Of the time that a call has left; in the rest it is answered in another way."""
_LEAST_TO_WRITE: Final = 0.2
"""Seconds for that also where less is left: what is written without waiting, however busy the
machine, does not take back what shares its transaction."""
_LEAST_PART: Final = 0.5
"""Of all the time of a call, where that is less: by twice that time it is unknown what became
of one that is still being written."""


class Deadline(NamedTuple):
    """Up to when a decision is of use as the answer to a call."""

    at: float  #: `time.monotonic`
    seconds: float  #: from the beginning of the call

    @property
    def left(self) -> float:
        """Seconds up to then; less than 0 behind it."""
        return self.at - time.monotonic()

    def seconds_to_write(self) -> float:
        """How long a statement may take, from now on, so that there is an answer if it fails."""
        return max(_PART_TO_WRITE * self.left, self._least)

    def seconds_to_claim(self) -> float:
        """After how long, from now on, a claim that has no answer yet will not be granted."""
        return max(0.0, self.left) + self._least

    @property
    def _least(self) -> float:
        return min(_LEAST_TO_WRITE, _LEAST_PART * self.seconds)


class GivenUp(Exception):
    """The call was answered without a decision; what was decided is not recorded as its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a decision lets the scheduler be answered."""

    body: bytes
    outcome: str
    decision_id: int


class _Stage(Enum):
    WAITING = 1  # nothing is committed; the deadline may give the call up
    COMMITTING = 2  # all is written; what is answered is decided
    GIVEN_UP = 3


@dataclass(slots=True)
class PreemptCall:
    """A preempt call; its answer is in `said`, or why there is none."""

    request: PreemptRequest
    mode: CallMode
    caller: str
    arrived_ms: int  #: since 1970 UTC
    seconds: float  #: after `started` up to which a decision is of use
    body: bytes = b""  #: empty where it is not known here
    need_body: Callable[[], None] = lambda: None  #: has the call submitted again, with its body
    trace: Trace = UNTRACED
    patience: float = 0.0  #: seconds after `started` up to which it may wait for a newer state
    started: float = field(default_factory=time.monotonic)
    said: Future[Said] = field(default_factory=Future)
    _held_at: float | None = None  #: since when it waits for a newer state
    _stage: _Stage = _Stage.WAITING
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def duration_us(self) -> int:
        return int((time.monotonic() - self.started) * 1_000_000)

    @property
    def held(self) -> bool:
        """Has it waited for a newer state?"""
        return self._held_at is not None

    @property
    def waited_us(self) -> int:
        """How long it has waited for a newer state, microseconds."""
        return 0 if self._held_at is None else int((time.monotonic() - self._held_at) * 1_000_000)

    @property
    def deadline(self) -> Deadline:
        return Deadline(self.started + self.seconds, self.seconds)

    @property
    def left(self) -> float:
        """Seconds in which a decision is still of use."""
        return self.deadline.left

    @property
    def patient(self) -> bool:
        """Is there time left to wait?"""
        return time.monotonic() < self.started + self.patience

    def hold(self) -> bool:
        """Let it wait for a newer state; False where there is no time left for that."""
        if not self.patient:
            return False
        self._held_at = time.monotonic() if self._held_at is None else self._held_at
        return True

    def fail(self, reason: BaseException) -> None:
        """There is no decision.

        The reason goes without its frames: they hold the call, and the call would hold them, and
        with them its body, until the collector comes round.
        """
        self.said.set_exception(reason.with_traceback(None))

    @property
    def given_up(self) -> bool:
        return self._stage is _Stage.GIVEN_UP

    def claim(self) -> None:
        """The last step before the commit: from here on the decision is the answer.

        Raises GivenUp where another answer was given by then, or will be: who waits for it gives
        up at the deadline, and may wait no longer by the time that is heard here.
        """
        with self._lock:
            if self.left < 0:
                self._stage = _Stage.GIVEN_UP
            if self._stage is _Stage.GIVEN_UP:
                raise GivenUp
            self._stage = _Stage.COMMITTING

    def reopen(self) -> None:
        """The commit failed: nothing was written."""
        with self._lock:
            if self._stage is _Stage.COMMITTING:
                self._stage = _Stage.WAITING

    def give_up(self) -> bool:
        """Take the answer away from the decision; False where that is being committed."""
        with self._lock:
            if self._stage is _Stage.COMMITTING:
                return False
            self._stage = _Stage.GIVEN_UP
            return True
