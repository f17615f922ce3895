"""The process that solves: started early, and shared by all questions of a command.

It loads the solver while this process still reads rules, and answers each question in a process
of its own (`policy.proving.child`). Where it does not answer in time it is ended, and the next
question starts another.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_CHILD: Final = Path(__file__).with_name("child.py")

LATE_SECONDS: Final = 0.9
"""How long after its time limit an answer is waited for; the child gives up earlier than that."""

_START_SECONDS: Final = 30.0
"""How long it may take until the solver is loaded."""


def start() -> None:
    """Begin to load the solver, for the questions that will follow."""
    _shared().start()


def answer_to(question: dict[str, Any]) -> dict[str, Any]:
    """What the solver answers to a question, within its `seconds` and a little more."""
    return _shared().answer_to(question)


@cache
def _shared() -> _Solving:
    solving = _Solving()
    atexit.register(solving.stop)
    return solving


@dataclass(slots=True)
class _Solving:
    running: subprocess.Popen[bytes] | None = None
    loaded: bool = False
    rest: bytes = b""  #: written behind the last line that was read

    def start(self) -> None:
        if self.running is not None and self.running.poll() is None:
            return
        self.stop()
        self.running = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.communicate()
        self.running, self.loaded, self.rest = None, False, b""

    def answer_to(self, question: dict[str, Any]) -> dict[str, Any]:
        self.start()
        if not self.loaded:
            self.loaded = bool(self._line(_START_SECONDS))
        line: bytes | None = b""
        if self.loaded and self._put(json.dumps(question).encode() + b"\n"):
            line = self._line(question["seconds"] + LATE_SECONDS)
        if line:
            return dict(json.loads(line))
        self.stop()
        reason = "timeout" if line is None else "the solver ended without an answer"
        return {"status": "unknown", "reason": reason}

    def _put(self, line: bytes) -> bool:
        assert self.running is not None and self.running.stdin is not None
        try:
            self.running.stdin.write(line)
            self.running.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _line(self, seconds: float) -> bytes | None:
        """The next line; None where the time is over, empty where the process ended."""
        assert self.running is not None and self.running.stdout is not None
        pipe, until = self.running.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            part = os.read(pipe, 1 << 16)
            if not part:
                return b""
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return line
