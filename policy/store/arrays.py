"""Arrays in the binary form in which Postgres receives them.

As text it would look at every character of theirs, and the driver for what is to be escaped: a
decision's documents have tens of thousands.

Source: PostgreSQL, src/backend/utils/adt/arrayfuncs.c (`array_recv`), and what receives an element
of each type (`varcharrecv`, `json_recv`, `int8recv`, `boolrecv`); src/include/catalog/pg_type.dat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from struct import Struct
from typing import Any, Final


class Array(bytes):
    """An array, ready to be sent."""


_HEAD: Final = Struct("!iiIii").pack
"""Dimensions, flags, type of the elements, and of the dimension the size and first subscript."""
_EMPTY: Final = Struct("!iiI").pack
"""The same of an array that has no dimension, as it has no elements."""
_SIZE: Final = Struct("!i").pack
_NULL: Final = _SIZE(-1)
_EIGHT: Final = _SIZE(8)
_BOOLEANS: Final = {False: _SIZE(1) + b"\0", True: _SIZE(1) + b"\1", None: _NULL}


def _of_integers(values: Sequence[int | None]) -> list[bytes]:
    # Raises OverflowError where 64 bits do not hold one, as SQLite's driver does.
    return [
        _NULL if value is None else _EIGHT + value.to_bytes(8, "big", signed=True)
        for value in values
    ]


def _of_booleans(values: Sequence[bool | None]) -> list[bytes]:
    return [_BOOLEANS[value] for value in values]


def _of_texts(values: Sequence[str | None]) -> list[bytes]:
    parts = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            encoded = value.encode()
            parts += _SIZE(len(encoded)), encoded
    return parts


def _array(
    kind: int, elements: Callable[[Sequence[Any]], list[bytes]], values: Sequence[Any]
) -> Array:
    """kind: number of the elements' type in `pg_type`."""
    if not values:
        return Array(_EMPTY(0, 0, kind))
    head = _HEAD(1, 0, kind, len(values), 1)  # the flags say what the server sees by itself
    return Array(b"".join((head, *elements(values))))


ARRAYS: Final[Mapping[str, Callable[[Sequence[Any]], Array]]] = {
    "BIGINT": partial(_array, 20, _of_integers),
    "BOOLEAN": partial(_array, 16, _of_booleans),
    "JSON": partial(_array, 114, _of_texts),
    "VARCHAR": partial(_array, 1043, _of_texts),
}
"""By the type of the elements, what makes an array of some values."""


def send_by(connection: Any) -> None:
    """Have a connection of the driver's take arrays."""
    connection.adapters.register_dumper(Array, _dumper())


@cache
def _dumper() -> type[Any]:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> Any:
            return obj

    return ArrayDumper
