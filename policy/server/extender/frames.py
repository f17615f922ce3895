"""Messages between processes of the service, over one socket: as bytes, and read back.

A frame is a head of sixteen bytes (the number of what the message is about, 0 for nothing; the
length of the message; the length of the body), the message in MessagePack, and a body.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final, TypeVar

import msgspec

HEAD: Final = struct.Struct("!QII")
_ENCODE: Final = msgspec.msgpack.Encoder().encode

M = TypeVar("M")


def frame(message: msgspec.Struct, *, number: int = 0, body: bytes = b"") -> bytes:
    """The bytes of a message. number: of the call that it is about."""
    said = _ENCODE(message)
    return b"".join((HEAD.pack(number, len(said), len(body)), said, body))


def read(file: BinaryIO, messages: msgspec.msgpack.Decoder[M]) -> tuple[M, int, bytes] | None:
    """The next message, the number of what it is about, and its body; None at the end."""
    try:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        number, size, more = HEAD.unpack(head)
        said, body = file.read(size), file.read(more)
    except ConnectionResetError:  # the other process was killed before it had read everything
        return None
    if len(said) + len(body) < size + more:
        return None
    return messages.decode(said), number, body
