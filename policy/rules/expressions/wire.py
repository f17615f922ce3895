"""The few parts of protobuf's wire format that serialised expressions are written in."""

from __future__ import annotations

from collections.abc import Iterator


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, number or bytes) of a message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        value: int | bytes
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        else:
            value, at = data[at : at + 4], at + 4
        yield tag >> 3, value


def text(value: int | bytes) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def signed(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value - (1 << 64) if value >= 1 << 63 else value


def message(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode(field: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return encode_varint(field << 3 | 2) + encode_varint(len(payload)) + payload


def encode_number(field: int, value: int) -> bytes:
    """A field that holds a number."""
    return encode_varint(field << 3) + encode_varint(value)


def map_entry(data: bytes) -> tuple[int, int | bytes]:
    parts = dict(fields(data))
    key = parts.get(1, 0)
    assert isinstance(key, int)
    return key, parts.get(2, 0)
