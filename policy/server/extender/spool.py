"""Calls that were answered without a decision, kept until the store can take them.

One file a call, on the disk before the call is answered; it goes when the call is in the record.
A file that was recorded and then not removed (the process was killed in between) is found in the
record by its digest and arrival, and not recorded twice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

MAX_BYTES: Final = 1 << 30
"""Room that waiting calls may take; beyond it a call is only counted, and said in the log."""

_SUFFIX: Final = ".call"


class SpoolFull(Exception):  # told to the log in the words of its message
    """There is no room for another call."""


class SpooledCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and what it was answered."""

    environment: str
    mode: str
    caller: str
    answer: str
    failure: str  #: why no decision was answered
    arrived_ms: int
    duration_us: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A spooled call and where it is."""

    path: Path
    call: SpooledCall


class Spool:
    """A folder of calls. Several processes may share it: a name is taken by one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, call: SpooledCall) -> None:
        """Keep a call on the disk. Raises OSError, SpoolFull."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = msgspec.msgpack.encode(call)
        taken = sum(file.stat().st_size for file in self._files())
        if taken + len(data) > MAX_BYTES:
            raise SpoolFull(f"the spool `{self._folder}` holds {taken} bytes, the most it may")
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=f"{call.arrived_ms}-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(name + _SUFFIX)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def depth(self) -> int:
        """How many calls wait."""
        return len(self._files())

    def waiting(self, environment: str) -> Iterator[Waiting]:
        """The calls of an environment, oldest first. Files that are no calls stay."""
        for path in self._files():
            with suppress(OSError, msgspec.MsgspecError):
                call = msgspec.msgpack.decode(path.read_bytes(), type=SpooledCall)
                if call.environment == environment:
                    yield Waiting(path=path, call=call)

    def done(self, waiting: Waiting) -> None:
        """The call is in the record."""
        waiting.path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
