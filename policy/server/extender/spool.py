"""Calls that were answered without a decision, kept until the store can take them.

On the disk before a call is answered: calls that come together share a file, and so the time that
the disk takes. A file goes when all of its calls are in the record. The name of a file says how
many of its calls, the last ones, wait. One of which no call that waits can be read gets another
ending, and is not read again; what stands before a damage is recorded first.

Each call is recorded once, though processes that share the folder may record it at the same time,
and one may be killed when a call is recorded and still in its file. Why that holds: the call has a
key (`Waiting.key`), which is taken in the transaction that records it. So of several transactions
one is committed, and the call is in the record exactly if its key is taken. What a call says is no
key: several may be alike, in the same millisecond. One whose decision may be in a commit that is
still under way is looked for in the record in the same transaction, behind the lock that the commit
holds. Keys are known for a day: where a process was killed at that instant, another one has to look
at the folder by then.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final, TypeAlias

import msgspec

from policy.server.extender.cut_short import whole_values
from policy.store.record.keys import WriteKey
from policy.text.system import explained
from policy.typed import UNDECODABLE, prepared, undecodable

log = logging.getLogger("policy.server")

MAX_BYTES: Final = 1 << 30
"""Room that waiting calls may take; beyond it a call is only counted, and said in the log."""

_FILE_BYTES: Final = 1 << 20
"""A file that has so many gets no further call: it is read whole."""

_SUFFIX: Final = ".calls"
_REFUSED: Final = ".refused"
"""Of calls that cannot be recorded; named as the others they are tried again."""
_NAME: Final = re.compile(r"(\d+)-(\d+)-(.+)")
"""Of a file: when its first call arrived, how many calls still wait, and what makes it unique."""
_UNFINISHED: Final = ".unfinished"
"""Of a file that is being written: no file of somebody else's is taken for one, and removed."""


_Content: TypeAlias = tuple[int, int, int, int]
"""Tells a file with what is in it from others, under whatever name."""


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
    #: may a decision be in the record that was made in time?
    doubtful: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A spooled call and where it is."""

    path: Path  #: as long as this call is the first one of the file that waits
    call: SpooledCall

    @property
    def key(self) -> WriteKey:
        """Tells it from each other call of any spool, and is the same in all processes.

        The name of a file is unique, but for how many of its calls wait, and that is another number
        for each of them.
        """
        return WriteKey(principal="extender", operation="spool", key=self.path.name)


class Spool:
    """A folder of calls, which several processes may share; used from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming: SimpleQueue[tuple[SpooledCall, Future[None]]] = SimpleQueue()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._telling = threading.Lock()
        self._told: dict[Path, str] = {}  #: why files could not be read, as the log has it
        #: by file, of which environments it has calls: those of others are not read each time
        self._environments: dict[_Content, frozenset[str]] = {}

    def add(self, call: SpooledCall) -> Future[None]:
        """Keep a call; the future is done when it is on the disk, or has OSError or SpoolFull."""
        kept: Future[None] = Future()
        self._coming.put((call, kept))
        self._writer.submit(self._write)
        return kept

    def close(self) -> None:
        """Add no more calls, when those are written that were."""
        self._writer.shutdown()

    def depth(self) -> int:
        """How many calls wait."""
        return sum(_left(path) for path in self._files() if path.is_file())

    def environments(self) -> set[str]:
        """Those of which calls wait."""
        return {one.call.environment for path in self._files() for one in self._calls_of(path)}

    def waiting(self, environment: str) -> Iterator[Waiting]:
        """The calls of an environment, oldest first.

        A file without a call that can be read is set aside; one that cannot be opened stays, and is
        tried again the next time. The log says both.
        """
        files = {path: _content(path) for path in self._files()}
        known = self._environments
        known = {one: known[one] for one in files.values() if one is not None and one in known}
        self._environments = known
        for path, content in files.items():
            if content in known and environment not in known[content]:
                continue
            calls = self._calls_of(path)
            if content is not None and calls:
                known[content] = frozenset(one.call.environment for one in calls)
            for one in calls:
                if one.call.environment == environment:
                    yield one

    def done(self, waiting: Waiting) -> None:
        """The call, and every one before it in its file, is in the record."""
        left = _left(waiting.path) - 1
        with suppress(FileNotFoundError):  # another process was faster
            if left:
                waiting.path.rename(_named(waiting.path, left))
            else:
                waiting.path.unlink()

    def set_aside(self, waiting: Waiting) -> Path:
        """Move a call that cannot be recorded to a file that is not read again. Raises OSError."""
        name = f"{waiting.call.arrived_ms}-1-"
        data = msgspec.msgpack.encode([waiting.call])
        kept = _written(self._folder, data, prefix=name, suffix=_REFUSED)
        self.done(waiting)
        return kept

    def remove_unfinished(self) -> None:
        """Remove what processes were writing when they ended: no call in it was answered.

        Who writes a file holds its lock, which ends with the process. Where the file was made a
        moment ago and is not locked yet, its writer finds it gone and makes another one.
        """
        for path in self._unfinished():
            with suppress(OSError), path.open("r+b") as file:  # it is locked, or finished by now
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    def _files(self) -> list[Path]:
        found = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
        for path in tuple(self._told):
            if path not in found:
                self._told.pop(path, None)
        return found

    def _calls_of(self, path: Path) -> list[Waiting]:
        """The calls of a file that wait and can be read."""
        waiting: list[Waiting] = []
        try:
            calls, count, problem = _calls(path.read_bytes())
            if calls:
                path = _with_right_name(path, calls[0], count)
                waiting = [
                    Waiting(path=_named(path, number), call=calls[count - number])
                    for number in range(_left(path), count - len(calls), -1)
                ]
            if not waiting:
                kept = _moved(path, path.with_suffix(_REFUSED))
                said = problem or "none of its calls waits"
                log.error("spooled calls in `%s` cannot be read: %s; see `%s`", path, said, kept)
        except OSError as exc:
            self._tell(path, exc)
        else:
            self._told.pop(path, None)
        return waiting

    def _tell(self, path: Path, exc: OSError) -> None:
        """Say once why a file cannot be read, or not be renamed."""
        if isinstance(exc, FileNotFoundError) and not path.is_symlink():
            return  # another process has recorded its calls
        said = explained(exc).message
        with self._telling:
            if self._told.get(path) != said:
                log.error("spooled calls in `%s` wait, to be read later: %s", path, said)
            self._told[path] = said

    def _unfinished(self) -> list[Path]:
        found = self._folder.glob(f"*{_UNFINISHED}") if self._folder.is_dir() else ()
        return [path for path in found if _NAME.match(path.name)]

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
        for path in (*self._files(), *self._unfinished()):
            with suppress(FileNotFoundError):  # recorded meanwhile
                taken += path.lstat().st_size
        if taken + len(data) > MAX_BYTES:
            raise SpoolFull(f"the spool `{self._folder}` holds {taken} bytes, the most it may")
        first = f"{calls[0].arrived_ms}-{len(calls)}-"
        _written(self._folder, data, prefix=first, suffix=_SUFFIX)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _written(folder: Path, data: bytes, *, prefix: str, suffix: str) -> Path:
    """A new file with that on the disk; it has its suffix when it is whole. Raises OSError."""
    file, made = _made(folder, prefix=prefix)
    with file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            return made.rename(made.with_suffix(suffix))
        except OSError:
            # On a full disk, the part that was written would be missing to every later call.
            made.unlink(missing_ok=True)
            raise


def _made(folder: Path, *, prefix: str) -> tuple[BinaryIO, Path]:
    """A new file, locked: `remove_unfinished` of another process does not take it away."""
    while True:
        handle, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=_UNFINISHED)
        file = os.fdopen(handle, "wb")
        with suppress(OSError):  # a file system without locks, on which nothing is removed either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return file, Path(name)
        file.close()


def _calls(data: bytes) -> tuple[list[SpooledCall], int, str]:
    """The calls of a file before a damage; how many it had; and what is wrong with it, or ""."""
    try:
        calls = msgspec.msgpack.decode(data, type=prepared(list[SpooledCall]))
    except UNDECODABLE as exc:
        problem = undecodable(exc)
    else:
        return calls, len(calls), ""
    count, values = whole_values(data)
    calls = []
    with suppress(*UNDECODABLE):
        for value in values:
            calls.append(msgspec.msgpack.decode(value, type=prepared(SpooledCall)))
    return calls, count, problem


def _content(path: Path) -> _Content | None:
    """None where there is no such file any more, or it cannot be looked at."""
    try:
        of = path.stat()
    except OSError:
        return None
    return of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns


def _left(path: Path) -> int:
    """How many calls of a file wait."""
    name = _NAME.match(path.name)
    return int(name[2]) if name else 1


def _named(path: Path, left: int) -> Path:
    """The file when so many of its calls wait."""
    name = _NAME.match(path.name)
    return path.with_name(f"{name[1]}-{left}-{name[3]}") if name else path


def _with_right_name(path: Path, first: SpooledCall, count: int) -> Path:
    """The file, whose name says how many of its calls wait, as whoever put it here may not know.

    Raises OSError.
    """
    name = _NAME.match(path.name)
    if name is None:
        return _moved(path, path.with_name(f"{first.arrived_ms}-{count}-{path.name}"))
    return path if int(name[2]) <= count else _moved(path, _named(path, count))


def _moved(path: Path, to: Path) -> Path:
    """Renamed, where no other file has that name; else to one like it. Raises OSError."""
    free = to
    for number in itertools.count(2):
        if not os.path.lexists(free):
            break
        free = to.with_stem(f"{to.stem}-{number}")
    return path.rename(free)
