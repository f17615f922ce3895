"""How large what a query needs may be, for those who ask a service.

That holds the answer whole, and shares its disk with the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from policy.store.errors import InvalidValue

ANSWER_MIB: Final = 32
TEMPORARY_MIB: Final = 512
"""Temporary files of SQLite, of all statements that run in the process."""
_TEMPORARY: Final = "/etilqs_"
"""How their names begin. SQLite removes a file when it has opened it: they have no other place.

Source: SQLite documentation, "Temporary Files Used By SQLite".
"""
_OPEN_FILES: Final = Path("/proc/self/fd")

_JSON: Final = msgspec.json.Encoder()
_Row = TypeVar("_Row", bound=Sequence[Any])


def within(rows: Iterable[_Row], most_mib: int | None) -> Iterator[_Row]:
    """The rows one by one, as long as they are not larger in JSON. None for no limit.

    Raises InvalidValue.
    """
    left = None if most_mib is None else most_mib << 20
    for row in rows:
        if left is not None:
            left -= sum(map(_size, row))
            if left < 0:
                raise InvalidValue(
                    f"the answer is larger than {most_mib} MiB",
                    help="ask for fewer rows or columns",
                )
        yield row


def require_little_temporary() -> None:
    """Raises InvalidValue where SQLite's temporary files in this process are too large.

    On Linux; elsewhere the system does not say which files are open.
    """
    blocks = 0
    for file in _OPEN_FILES.glob("*"):
        with suppress(OSError):  # it is closed by now
            if _TEMPORARY in str(file.readlink()):
                blocks += file.stat().st_blocks
    if blocks * 512 > TEMPORARY_MIB << 20:
        raise InvalidValue(
            f"statements that run now need more than {TEMPORARY_MIB} MiB of temporary files",
            help="have the statement sort or join less at a time",
        )


def _size(value: Any) -> int:
    """Bytes of a value in JSON, about, where a control character has six."""
    if isinstance(value, bytes):
        return len(value)
    text = value if isinstance(value, str) else str(value)  # JSON is read by the driver
    return len(_JSON.encode(text))
