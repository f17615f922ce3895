"""An array in MessagePack that is damaged: the values before the damage.

Source: the MessagePack specification, "Formats".
"""

from __future__ import annotations

from typing import Final

_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Of bytes and texts: how many bytes their length has, which follow."""
_NUMBERS: Final = dict(zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True))
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_UNUSED: Final = frozenset({0xC1, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)})
"""What no value of ours begins with."""


def whole_values(data: bytes) -> tuple[int, list[bytes]]:
    """How many values the array says that it has, and those that are there before a damage.

    Whether a value means something is not looked at. (0, []) where the data is no array.
    """
    head = data[0] if data else 0
    if head in _ARRAYS:
        at = 1 + _ARRAYS[head]
        count = int.from_bytes(data[1:at])
    elif 0x90 <= head <= 0x9F:
        at, count = 1, head & 0x0F
    else:
        return 0, []
    values: list[bytes] = []
    while len(values) < count:
        end = _end(data, at)
        if end is None:
            break
        values.append(data[at:end])
        at = end
    return count, values


def _end(data: bytes, at: int) -> int | None:
    """Where the value ends that begins there; None where it is cut short, or none."""
    values = 1
    while values and at < len(data):
        values -= 1
        head = data[at]
        at += 1
        if head in _UNUSED:
            return None
        if head in _LENGTHS:
            size = _LENGTHS[head]
            at += size + int.from_bytes(data[at : at + size])
        elif head in _NUMBERS:
            at += _NUMBERS[head]
        elif head in _ARRAYS:
            size = _ARRAYS[head]
            values += int.from_bytes(data[at : at + size])
            at += size
        elif head in _MAPS:
            size = _MAPS[head]
            values += 2 * int.from_bytes(data[at : at + size])
            at += size
        elif 0x80 <= head <= 0x8F:
            values += 2 * (head & 0x0F)
        elif 0x90 <= head <= 0x9F:
            values += head & 0x0F
        elif 0xA0 <= head <= 0xBF:
            at += head & 0x1F
    return at if not values and at <= len(data) else None
