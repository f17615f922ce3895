"""JSON texts cut into objects while they are read: no more than one object is held at a time.

A list of any length, or any number of documents one after the other, is given item by item, as
bytes that are valid JSON. Where the parts end is found by msgspec, which reads over a value
without making one. The ordinary items of a long list are decoded many at a time (`Items`), as far
as they stand in one piece of the text and nothing about them is odd.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from policy.manifests import odd
from policy.manifests.sources import CHUNK, Text

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_BETWEEN: Final = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*\"[A-Za-z]+\"[ \t\r\n]*:")
"""From the end of one item to the first key of the next."""
_TRIES: Final = 3
_PIECE: Final = 32 * 1024
"""Bytes of items that are decoded at a time: what is made of more leaves a processor's caches."""
_SKIP: Final = msgspec.json.Decoder(msgspec.Raw).decode
_MANY: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode
_END: Final = "JSON is malformed: trailing characters (byte "
_TRUNCATED: Final = "truncated"


class JsonError(Exception):
    """A text that is not JSON; carries the place."""

    def __init__(self, message: str, *, line: int, column: int, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.help = help


class TooLarge(Exception):
    """An object that exceeds the limit; carries its text where it was read to the end."""

    def __init__(self, text: bytes = b"") -> None:
        super().__init__()
        self.text = text


class JsonPart(NamedTuple):
    """One value of a text."""

    document: int  #: from 1
    item: int  #: from 1; 0 for a whole document
    text: bytes  #: of the value; empty where `value` holds it
    kind: str | None = None  #: of the list that it stands in, where that was read before it
    value: Any = None  #: read already, because it is odd (see `odd`)


class Items(NamedTuple):
    """Objects of a list that stand one after the other; none of them is odd (see `odd`)."""

    item: int  #: the number of the first, from 1
    values: list[dict[str, Any]]
    kind: str | None  #: of the list, where that was read before them; otherwise each has its own


@dataclass(frozen=True, slots=True)
class EndOfList:
    """The end of a list whose items were given one by one."""

    kind: str | None
    repeated: tuple[str, ...]  #: keys of the list itself that stand more than once


class Parts:
    """The values of one text, in their order. Raises JsonError, TooLarge, SourceError."""

    def __init__(self, text: Text, *, most: int) -> None:
        self._text = text
        self._most = most
        self._data = b""
        self._at = 0
        self._ended = False
        self._lines = 0  # before the data
        self._column = 0  # of the data's begin
        self.document = 0
        self.item = 0

    def __iter__(self) -> Iterator[JsonPart | Items | EndOfList]:
        while start := self._peek():
            self.document += 1
            self.item = 0
            try:
                text, value = self._value()
                yield JsonPart(self.document, 0, text, None, value)
            except TooLarge as whole:
                if start == b"[":
                    yield from self._array(None)
                elif start == b"{":
                    yield from self._mapping(whole)
                else:
                    raise

    # --- the buffer --------------------------------------------------------------------------

    def _more(self) -> None:
        """Forget what was used up, and read on."""
        used = self._data[: self._at]
        newline = used.rfind(b"\n")
        if newline >= 0:
            self._lines += used.count(b"\n")
            self._column = len(used) - newline - 1
        else:
            self._column += len(used)
        chunk = self._text.read(CHUNK)
        self._ended = not chunk
        self._data = self._data[self._at :] + chunk
        self._at = 0

    def _peek(self) -> bytes:
        """The next byte that is no space; nothing at the end."""
        while True:
            found = _SPACE.match(self._data, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._data) or self._ended:
                return self._data[self._at : self._at + 1]
            self._more()

    def _expect(self, wanted: bytes) -> bytes:
        """Take the next byte, which must be one of these."""
        found = self._peek()
        if not found or found not in wanted:
            raise self._error(f"expecting '{wanted.decode()}'" if found else "", self._at)
        self._at += 1
        return found

    # --- values ------------------------------------------------------------------------------

    def _value(self) -> tuple[bytes, Any]:
        """The next value: its text, or where it is odd the value itself."""
        while True:
            try:
                _SKIP(memoryview(self._data)[self._at :])
            except msgspec.DecodeError as exc:
                message = str(exc)
                if message.startswith(_END):  # counted from 1
                    return self._taken(self._at + int(message[len(_END) : -1]) - 1), None
                if _TRUNCATED not in message or self._ended:
                    return b"", self._odd()
            except RecursionError:
                raise self._error("nested too deeply", self._at) from None
            else:
                if self._ended or self._data.endswith((b"}", b"]", b'"')):  # a number could go on
                    return self._taken(len(self._data)), None
            if len(self._data) - self._at > self._most:
                raise TooLarge
            self._more()

    def _taken(self, end: int) -> bytes:
        text = self._data[self._at : end]
        if len(text) > self._most:
            raise TooLarge(text)
        self._at = end
        return text

    def _odd(self) -> Any:
        """The next value as Python reads it, which takes more and says where it fails."""
        while not self._ended and len(self._data) - self._at <= self._most:
            self._more()
        text = self._data[self._at :].decode(errors="replace")
        start = len(text) - len(text.lstrip(" \t\r\n"))
        try:
            value, end = odd.decode(text, start)
        except RecursionError:
            raise self._error("nested too deeply", self._at) from None
        except json.JSONDecodeError as exc:
            at = self._at + len(text[: exc.pos].encode())
            if text[exc.pos :].strip():
                message = f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]}"
                raise self._error(message, at) from None
            if not self._ended:
                raise TooLarge from None
            raise self._error("", at) from None
        self._taken(self._at + len(text[:end].encode()))
        return value

    def _error(self, message: str, at: int) -> JsonError:
        """A mistake at a place of the data; without a message the text ends too early."""
        line = self._lines + self._data.count(b"\n", 0, at) + 1
        newline = self._data.rfind(b"\n", 0, at)
        before = self._data[newline + 1 : at].decode(errors="replace")
        column = len(before) + 1 + (self._column if newline < 0 else 0)
        if message:
            return JsonError(message, line=line, column=column)
        return JsonError(
            "the text ends in the middle of a JSON value",
            line=line,
            column=column,
            help="the file was cut off; export or copy it again",
        )

    # --- lists that are larger than one object may be -----------------------------------------

    def _array(self, kind: str | None) -> Iterator[JsonPart | Items]:
        self._expect(b"[")
        if self._peek() == b"]":
            self._at += 1
            return
        tried, until = b"", 0  # the data of which a piece is read one by one, and the piece's end
        while True:
            self.item += 1
            text, value = self._value()
            yield JsonPart(self.document, self.item, text, kind, value)
            if self._data is not tried or self._at >= until:
                while items := self._many(kind):
                    yield Items(self.item + 1, items, kind)
                    self.item += len(items)
                tried, until = self._data, self._at + _PIECE
            if self._data[self._at : self._at + 1] == b",":
                self._at += 1
            elif self._expect(b",]") == b"]":
                return

    def _many(self, kind: str | None) -> list[dict[str, Any]]:
        """The items behind the one that was read, as far as the next piece of the text has them.

        Nothing where they are to be read one by one: what is odd or wrong about one is found so.
        """
        between = _BETWEEN.match(self._data, self._at - 1)
        if between is None:
            return []
        first = between.end()
        end = min(len(self._data), self._at + min(_PIECE, self._most))
        for _ in range(_TRIES):
            # What stands between two items may stand inside of one as well. Where the text up to
            # there is a list by itself, with all that was opened closed again, it is between two.
            end = self._data.rfind(between[0], first, end)
            if end < 0:
                break
            text = self._data[self._at : end + 1].replace(b",", b"[", 1) + b"]"
            try:
                items = _MANY(text)
            except (msgspec.DecodeError, RecursionError):
                continue
            if odd.maybe(text, items) or not (kind or all("kind" in item for item in items)):
                break
            self._at = end + 1
            return items
        return []

    def _mapping(self, whole: TooLarge) -> Iterator[JsonPart | Items | EndOfList]:
        """The members of a list object; only its items may be large. Raises `whole` for another."""
        self._expect(b"{")
        seen: set[str] = set()
        repeated: list[str] = []
        kind: str | None = None
        while True:
            if self._peek() != b'"':
                raise self._error("not valid JSON: expecting a key in quotes", self._at)
            key = self._decoded()
            if not isinstance(key, str):
                raise self._error("not valid JSON: expecting a key in quotes", self._at)
            if key in seen:
                repeated.append(key)
            seen.add(key)
            self._expect(b":")
            if key == "items" and self._peek() == b"[":
                yield from self._array(kind)
                self.item = 0
            else:
                self._peek()
                try:
                    value = self._decoded()
                except TooLarge:
                    raise whole from None
                if key == "kind" and isinstance(value, str):
                    kind = value
            if self._expect(b",}") == b"}":
                break
        if "items" not in seen:  # one object of many large parts
            raise whole
        yield EndOfList(kind, tuple(repeated))

    def _decoded(self) -> Any:
        text, value = self._value()
        return odd.decode(text.decode())[0] if text else value
