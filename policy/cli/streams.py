"""Standard output and standard error as commands see them: the outermost frame of what is printed.

Between a command and the terminal stand two layers. `Sink` writes bytes as they are and knows what
to do where that fails; `EscapedText`, which is what `sys.stdout` and `sys.stderr` are while a
command runs, escapes whatever a terminal would obey. Data for programs goes to the sink directly.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from policy.text.printable import printable_lines


class Sink:
    """A stream whose failures do not stop the command.

    What a command records does not depend on who reads its output: after a failed write nothing
    more is written, and the command goes on. `unread` tells loops that do nothing but print.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        if stream is not None and hasattr(stream, "reconfigure"):
            # Text that the terminal's encoding cannot hold is escaped, like all else.
            stream.reconfigure(errors="backslashreplace")

    @property
    def unread(self) -> bool:
        """Whether what is written from now on is lost."""
        return self.failure is not None

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str:
        return "backslashreplace"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Words: in the encoding of the terminal."""
        with self._failing():
            if self._stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if not self.unread:
                self._stream.write(text)
        return len(text)

    def write_data(self, text: str) -> int:
        """Data for programs: UTF-8, whatever the encoding of the terminal."""
        if self.encoding.lower().replace("-", "") == "utf8":
            return self.write(text)
        return self.write_bytes(text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, content: bytes) -> int:
        with self._failing():
            if self._stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if not self.unread:
                self._stream.flush()
                self._stream.buffer.write(content)
        return len(content)

    def flush(self) -> None:
        if self._stream is not None and not self.unread:
            with self._failing():
                self._stream.flush()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.failure = self.failure or exc
            self._discard()

    def _discard(self) -> None:
        """What is still in buffers goes nowhere, so that the end of the process does not fail."""
        if self._stream is None:
            return
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class _Bytes:
    """The bytes side of a stream, by which a library hands over what it has encoded itself."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, content: bytes) -> int:
        return self._sink.write_bytes(content)

    def flush(self) -> None:
        self._sink.flush()


class EscapedText:
    """A text stream for people: everything is escaped that does more than show itself."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.buffer = _Bytes(sink)

    @property
    def encoding(self) -> str:
        return self.sink.encoding

    @property
    def errors(self) -> str:
        return self.sink.errors

    def isatty(self) -> bool:
        return self.sink.isatty()

    def fileno(self) -> int:
        return self.sink.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.sink.write(printable_lines(text))
        return len(text)

    def flush(self) -> None:
        self.sink.flush()


def sink(stream: TextIO | None) -> Sink:
    """What stands behind `sys.stdout` or `sys.stderr`; None is one that the caller closed."""
    return stream.sink if isinstance(stream, EscapedText) else Sink(stream)


def guard() -> Sink:
    """From now on everything printed passes through sinks; the one of standard output."""
    out = sink(sys.stdout)
    sys.stdout, sys.stderr = (
        cast("TextIO", EscapedText(out)),
        cast("TextIO", EscapedText(sink(sys.stderr))),
    )
    return out


@contextmanager
def guarded() -> Iterator[Sink]:
    """Likewise, and the streams as they were before at the end."""
    before = sys.stdout, sys.stderr
    try:
        yield guard()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = before


def occupy() -> None:
    """Open the standard descriptors that the caller closed.

    A database would get their numbers otherwise, and be written to by whatever prints there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
