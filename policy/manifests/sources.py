"""From what the user named (files, folders, `-`) to the text of manifests, piece by piece."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from policy.manifests.limits import Limits, too_much
from policy.text.problems import Problem
from policy.text.system import explained

STDIN: Final = "<stdin>"
ENDINGS: Final = (".json", ".yaml", ".yml", ".jsonl", ".ndjson")
"""Files that a folder is searched for, with or without `.gz`."""

CHUNK: Final = 1 << 20
BEGINNING: Final = 4096
_MOST_LAYERS: Final = 3
_BINARY: Final = 1024
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """One file to read, or standard input (`path` is None)."""

    name: str
    path: Path | None
    size: int  #: bytes on disk, 0 where unknown
    from_folder: bool = False

    @property
    def named_as_yaml(self) -> bool:
        return self.name.removesuffix(".gz").endswith((".yaml", ".yml"))


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files behind what the user named."""

    sources: tuple[ManifestSource, ...]
    other_files: int  #: files in folders that are no manifests by their name
    problems: tuple[Problem, ...]


def find(paths: Sequence[str | Path]) -> FoundFiles:
    """Expand folders (recursively, in name order); report what does not exist."""
    sources: list[ManifestSource] = []
    problems: list[Problem] = []
    others = 0
    for given in paths:
        if str(given) == "-":
            sources.append(ManifestSource(STDIN, None, 0))
            continue
        path = Path(given)
        try:
            status = path.stat()
        except (OSError, ValueError) as exc:
            problems.append(_refused(exc, str(given), like=path))
            continue
        if not stat.S_ISDIR(status.st_mode):
            sources.append(ManifestSource(_name(given), path, status.st_size))
            continue
        for file in _files_under(path, problems):
            if not file.name.removesuffix(".gz").endswith(ENDINGS):
                others += 1
                continue
            try:
                size = file.stat().st_size
            except OSError as exc:  # a link that leads nowhere, or to itself
                problems.append(_refused(exc, str(file)))
            else:
                sources.append(ManifestSource(_name(file), file, size, from_folder=True))
    return FoundFiles(tuple(sources), others, tuple(problems))


def _name(path: str | Path) -> str:
    """The name of a file as text: Linux knows names that are none."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _files_under(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files in name order; pipes, sockets and devices are none. Reports what cannot be listed."""

    def report(error: OSError) -> None:
        problems.append(_refused(error, str(error.filename)))

    for root, folders, files in os.walk(folder, onerror=report):
        folders.sort()
        for name in sorted(files):
            file = Path(root, name)
            if file.is_symlink() or file.is_file():
                yield file


def _refused(error: OSError | ValueError, name: str, *, like: Path | None = None) -> Problem:
    said = explained(error)
    close = _like(like) if like is not None and isinstance(error, FileNotFoundError) else ""
    return Problem(source=name, message=said.message, help=close or said.help)


def _like(path: Path) -> str:
    import difflib

    try:
        names = [found.name for found in path.parent.iterdir()]
    except OSError:  # then there is nothing to propose
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean `{path.parent / close[0]}`?" if close else ""


class SourceError(Exception):
    """A source that cannot be read (further)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def opened(
    source: ManifestSource, stdin: IO[bytes] | None, *, limits: Limits, read_before: int = 0
) -> Iterator[Text]:
    """The text of a source, to be read in pieces. Raises SourceError, here and while reading.

    `read_before`: bytes of text that count towards the limit of the whole input already.
    """
    if source.path is None:
        if stdin is None:
            problem = Problem(source=source.name, message="standard input is not available")
            raise SourceError(problem)
        yield Text(source.name, stdin, limits, read_before)
        return
    try:
        file = source.path.open("rb")
    except OSError as exc:
        raise SourceError(_refused(exc, source.name)) from exc
    with file:
        yield Text(source.name, file, limits, read_before)


class Text:
    """UTF-8 text of a source in pieces: gunzipped, without byte-order mark, checked and counted."""

    def __init__(self, name: str, file: IO[bytes], limits: Limits, read_before: int) -> None:
        self.name = name
        self.size = 0  #: bytes of text read so far, as they stand in the (unpacked) file
        self._file = file
        self._limits = limits
        self._read_before = read_before
        self._lines = 0
        self._column = 0
        self._stream: IO[bytes] = file
        self._start = self._unpacked()
        self._decoder: codecs.IncrementalDecoder
        self._utf16 = self._start[:2] in _UTF16  # `kubectl ... > file` in Windows PowerShell
        self._decoder = codecs.getincrementaldecoder("utf-16" if self._utf16 else "utf-8")()
        self._ended = False
        if not self._utf16:
            self._refuse_binaries(self._start)
            self._start = self._start.removeprefix(_UTF8_MARK)
        #: the first bytes of the text, at least `BEGINNING` where there are so many
        self.beginning = self._next(b"" if self._start else None)
        self._start = self.beginning

    @property
    def position(self) -> int:
        """Bytes of the file that were read, 0 where that cannot be known."""
        try:
            return self._file.tell()
        except (OSError, ValueError):
            return 0

    def read(self, size: int = -1, /) -> bytes:
        """About `size` bytes of UTF-8, nothing at the end. Raises SourceError."""
        if self._start:
            start, self._start = self._start, b""
            return start
        return self._next(None, CHUNK if size < 0 else size)

    # --- bytes of the file -------------------------------------------------------------------

    def _unpacked(self) -> bytes:
        """Put the stream behind its compression, and read how it begins."""
        start = self._bytes(BEGINNING)
        layers = 0
        while start[:2] == _GZIP:
            layers += 1
            if layers > _MOST_LAYERS:
                raise self._error(f"compressed more than {_MOST_LAYERS} times")
            # GzipFile wants no more of its file than `read`.
            packed = cast("IO[bytes]", _Chained(start, self._stream))
            self._stream = cast("IO[bytes]", gzip.GzipFile(fileobj=packed, mode="rb"))
            start = self._bytes(BEGINNING)
        return start

    def _bytes(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        parts = []
        try:
            while size > 0 and (part := self._stream.read(size)):
                parts.append(part)
                size -= len(part)
        except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
            advice = "`gzip --test` tells; copy or export the file again"
            raise self._error("gzip data is damaged or cut off", help=advice) from exc
        except OSError as exc:
            raise SourceError(_refused(exc, self.name)) from exc
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _error(
        self, message: str, *, line: int = 0, column: int = 0, help: str = ""
    ) -> SourceError:
        return SourceError(
            Problem(source=self.name, line=line, column=column, message=message, help=help)
        )

    def _refuse_binaries(self, start: bytes) -> None:
        if start[257:262] == b"ustar" or start[:4] == _ZIP:
            advice = "unpack it and name the folder that holds the files"
            raise self._error("an archive, not a manifest", help=advice)
        if b"\0" in start[:_BINARY]:
            raise self._error("a binary file, not a manifest")

    # --- text --------------------------------------------------------------------------------

    def _next(self, given: bytes | None, size: int = 0) -> bytes:
        """The next piece as UTF-8; the beginning first."""
        if self._ended:
            return b""
        data = self._start if given is not None else self._bytes(max(size, BEGINNING))
        self.size += len(data)
        if self._read_before + self.size > self._limits.input_bytes:
            message, advice = too_much(self._limits)
            raise self._error(message, help=advice)
        self._ended = not data
        pending = 0 if self._utf16 else len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as exc:
            if self._utf16:
                raise self._error("damaged UTF-16 text", help="save it as UTF-8") from exc
            start = max(0, exc.start - pending)
            line = self._lines + data.count(b"\n", 0, start) + 1
            column = start - data.rfind(b"\n", 0, start)
            if line == self._lines + 1:
                column += self._column
            advice = "save it as UTF-8"
            raise self._error("not UTF-8 text", line=line, column=column, help=advice) from exc
        if self._utf16:
            return text.encode() if text or self._ended else self._next(None, size)
        newline = data.rfind(b"\n")
        if newline >= 0:
            self._lines += data.count(b"\n")
            self._column = len(data) - newline - 1
        else:
            self._column += len(data)
        return data


class _Chained:
    """A stream whose beginning was read already."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        self._start = start
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        if not self._start:
            return self._stream.read(size)
        cut = len(self._start) if size < 0 else size
        start, self._start = self._start[:cut], self._start[cut:]
        return start
