"""From what the user named (files, folders, `-`) to the bytes of manifests."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from policy.manifests.problems import Problem
from policy.text.system import explained

STDIN: Final = "<stdin>"
ENDINGS: Final = (".json", ".yaml", ".yml", ".jsonl", ".ndjson")
"""Files that a folder is searched for, with or without `.gz`."""

_CHUNK: Final = 1 << 20
_BINARY: Final = 1024
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read, or standard input (`path` is None)."""

    name: str
    path: Path | None
    size: int  #: bytes on disk, 0 where unknown
    from_folder: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The files behind what the user named."""

    sources: tuple[Source, ...]
    other_files: int  #: files in folders that are no manifests by their name
    problems: tuple[Problem, ...]


def find(paths: Sequence[str | Path]) -> Found:
    """Expand folders (recursively, in name order); report what does not exist."""
    sources: list[Source] = []
    problems: list[Problem] = []
    others = 0
    for given in paths:
        if str(given) == "-":
            sources.append(Source(STDIN, None, 0))
            continue
        path = Path(given)
        try:
            status = path.stat()
        except (OSError, ValueError) as exc:
            problems.append(_refused(exc, str(given), like=path))
            continue
        if not stat.S_ISDIR(status.st_mode):
            sources.append(Source(_name(given), path, status.st_size))
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
                sources.append(Source(_name(file), file, size, from_folder=True))
    return Found(tuple(sources), others, tuple(problems))


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


def load(source: Source, stdin: IO[bytes] | None) -> bytes | Problem:
    """The text of a source as UTF-8 bytes: gunzipped, without byte-order mark."""
    try:
        if source.path is None:
            if stdin is None:
                return Problem(source=source.name, message="standard input is not available")
            data = stdin.read()
        else:
            data = source.path.read_bytes()
        while data[:2] == _GZIP:
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return Problem(
            source=source.name,
            message="gzip data is damaged or cut off",
            help="`gzip --test` tells; copy or export the file again",
        )
    except OSError as exc:
        return _refused(exc, source.name)
    return _as_utf8(source.name, data)


def _as_utf8(name: str, data: bytes) -> bytes | Problem:
    if data[:2] in _UTF16:  # what `kubectl ... > file` writes in Windows PowerShell
        try:
            return data.decode("utf-16").encode()
        except UnicodeDecodeError:
            return Problem(source=name, message="damaged UTF-16 text", help="save it as UTF-8")
    if data[257:262] == b"ustar" or data[:4] == _ZIP:
        return Problem(
            source=name,
            message="an archive, not a manifest",
            help="unpack it and name the folder that holds the files",
        )
    data = data.removeprefix(_UTF8_MARK)
    if b"\0" in data[:_BINARY]:
        return Problem(source=name, message="a binary file, not a manifest")
    start = _not_utf8(data)
    if start is None:
        return data
    line = data.count(b"\n", 0, start) + 1
    column = start - data.rfind(b"\n", 0, start)
    return Problem(
        source=name, line=line, column=column, message="not UTF-8 text", help="save it as UTF-8"
    )


def _not_utf8(data: bytes) -> int | None:
    """Offset of the first byte that is not UTF-8, found without a second copy of the text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = 0
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        try:
            decoder.decode(chunk, final=start + _CHUNK >= len(data))
        except UnicodeDecodeError as exc:
            return start - pending + exc.start
        pending = len(decoder.getstate()[0])
    return None
