"""How large the answer of a query may be for those who ask a service, which holds it whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from policy.store.errors import InvalidValue

ANSWER_MIB: Final = 32

_Row = TypeVar("_Row", bound=Sequence[Any])


def within(rows: Iterable[_Row], most_mib: int | None) -> Iterator[_Row]:
    """The rows one by one, as long as their texts together are not larger. None for no limit.

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


def _size(value: Any) -> int:
    """Bytes of a value, about; JSON is read by the driver."""
    return len(value if isinstance(value, str | bytes) else str(value))
