"""Calls that the caller can stop waiting for: after some seconds, or at a Ctrl-C."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

_Result = TypeVar("_Result")

_GRACE_SECONDS: Final = 2.0
"""What a cancelled call is given to end by itself."""

_LOOK_SECONDS: Final = 0.5
"""How long a wait lasts at most: a signal that comes just before one is seen only after it."""

_AGAIN_SECONDS: Final = 0.05
"""How soon it is cancelled again: one that had not begun its work did not see the first."""

_LAST_NICE: Final = 19
"""Of a thread that is left behind: nothing waits for it."""


class OutOfTime(Exception):  # a signal to the caller, who words it
    """The calls together took longer than they may."""


class Stoppable:
    """Makes calls one after the other in a thread of its own, within a time for all of them.

    Only waiting counts: what the caller does between two calls does not use the time up. The
    thread is a daemon, so that a call which cannot be cancelled never holds the process back.
    """

    def __init__(
        self,
        *,
        seconds: float | None,
        cancel: Callable[[], None],
        require: Callable[[], None] | None = None,
        left: list[Stoppable] | None = None,
    ) -> None:
        """seconds: None for no limit; cancel: ends the call that is running, from any thread.

        require: asked twice a second while a call runs; what it raises ends the call.
        left: takes this up where a call is given up that cannot be cancelled.
        """
        self._left = seconds
        self._cancel = cancel
        self._require = require
        self._left_behind = left
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.running = False  #: a call was given up and may still be running
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], _Result]) -> _Result:
        """What the function returns or raises. Raises OutOfTime, what `require` does."""
        begun = time.monotonic()
        self.running = True
        try:
            self._calls.put(function)
            value, error = self._result(self._left)
        except Empty:
            self._give_up()
            raise OutOfTime from None
        except BaseException:  # a Ctrl-C, or what is required is not so
            self._give_up()
            raise
        self.running = False
        if self._left is not None:
            self._left = max(0.0, self._left - (time.monotonic() - begun))
        if error is not None:
            raise error
        return cast("_Result", value)

    def close(self) -> None:
        """Let the thread end."""
        self._calls.put(None)

    def late(self) -> object:
        """What a call returned that was given up and is not `running` any more; once."""
        with suppress(Empty):
            return self._results.get(timeout=_LOOK_SECONDS)[0]
        return None

    def _result(self, seconds: float | None) -> tuple[Any, BaseException | None]:
        """What comes within that time. Raises Empty, what `require` does."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LOOK_SECONDS if until is None else until - time.monotonic()
            try:
                return self._results.get(timeout=max(0.0, min(left, _LOOK_SECONDS)))
            except Empty:
                if left <= _LOOK_SECONDS and until is not None:
                    raise
            if self._require is not None:
                self._require()

    def _give_up(self) -> None:
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until:
            self._cancel()
            try:
                self._results.get(timeout=_AGAIN_SECONDS)
            except Empty:
                continue
            self.running = False
            return
        self._let_others_go_first()
        if self._left_behind is not None:
            self._left_behind.append(self)

    def _let_others_go_first(self) -> None:
        number = self._thread.native_id
        if sys.platform == "linux" and number is not None:  # elsewhere it is that of a process
            with suppress(OSError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, number, _LAST_NICE)

    def _serve(self) -> None:
        while (function := self._calls.get()) is not None:
            result: tuple[Any, BaseException | None]
            try:
                result = function(), None
            except BaseException as exc:  # noqa: BLE001  # raised where the result is waited for
                result = None, exc
            self.running = False  # also where nothing waits for it any more
            self._results.put(result)
            del function, result
