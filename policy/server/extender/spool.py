"""Calls that were answered without a decision, kept until the store can take them.

On the disk before a call is answered: calls that come together share a file, and so the time that
the disk takes. A file goes when all of its calls are in the record. Calls that were recorded while
their file was not removed (the process was killed in between) are found in the record by digest and
arrival, and not recorded twice.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from policy.typed import prepared

MAX_BYTES: Final = 1 << 30
"""Room that waiting calls may take; beyond it a call is only counted, and said in the log."""

_FILE_BYTES: Final = 1 << 20
"""A file that has so many gets no further call: it is read whole."""

_SUFFIX: Final = ".calls"
_COUNT: Final = re.compile(r"\d+-(\d+)-")
"""Of the calls in a file, by its name."""


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
    place: int  #: among the calls of the file
    last: bool  #: is it the last one of the file?
    call: SpooledCall


class Spool:
    """A folder of calls, which several processes may share; used from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming: SimpleQueue[tuple[SpooledCall, Future[None]]] = SimpleQueue()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._recorded: dict[Path, int] = {}  #: how many calls of a file this process is done with

    def add(self, call: SpooledCall) -> Future[None]:
        """Keep a call; the future is done when it is on the disk, or has OSError or SpoolFull."""
        kept: Future[None] = Future()
        self._coming.put((call, kept))
        self._writer.submit(self._write)
        return kept

    def depth(self) -> int:
        """How many calls wait."""
        return sum(self._left(path) for path in self._files())

    def waiting(self, environment: str) -> Iterator[Waiting]:
        """The calls of an environment, oldest first. Files that are no calls stay."""
        for path in self._files():
            with suppress(OSError, msgspec.MsgspecError):
                calls = msgspec.msgpack.decode(path.read_bytes(), type=prepared(list[SpooledCall]))
                for place, call in enumerate(calls):
                    if call.environment == environment and place >= self._recorded.get(path, 0):
                        last = place == len(calls) - 1
                        yield Waiting(path=path, place=place, last=last, call=call)

    def done(self, waiting: Waiting) -> None:
        """The call, and every one before it in its file, is in the record."""
        if waiting.last:
            waiting.path.unlink(missing_ok=True)
            self._recorded.pop(waiting.path, None)
        else:
            self._recorded[waiting.path] = waiting.place + 1

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []

    def _left(self, path: Path) -> int:
        count = _COUNT.match(path.name)
        return (int(count[1]) if count else 1) - self._recorded.get(path, 0)

    # --- the thread ----------------------------------------------------------------------------

    def _write(self) -> None:
        """Write what has come by now, a file for each environment."""
        together: dict[str, list[tuple[SpooledCall, Future[None]]]] = {}
        size = 0
        while size < _FILE_BYTES and not self._coming.empty():
            call, kept = self._coming.get()
            if kept.set_running_or_notify_cancel():
                together.setdefault(call.environment, []).append((call, kept))
                size += len(call.body)
        for added in together.values():
            try:
                self._write_file([call for call, _ in added])
            except (OSError, SpoolFull) as exc:
                for _, kept in added:
                    kept.set_exception(exc)
            else:
                for _, kept in added:
                    kept.set_result(None)

    def _write_file(self, calls: Sequence[SpooledCall]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = msgspec.msgpack.encode(calls)
        taken = 0
        for file in self._files():
            with suppress(FileNotFoundError):  # recorded meanwhile
                taken += file.stat().st_size
        if taken + len(data) > MAX_BYTES:
            raise SpoolFull(f"the spool `{self._folder}` holds {taken} bytes, the most it may")
        first = f"{calls[0].arrived_ms}-{len(calls)}-"
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=first)
        with os.fdopen(handle, "wb") as made:
            made.write(data)
            made.flush()
            os.fsync(made.fileno())
        Path(name).rename(name + _SUFFIX)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
