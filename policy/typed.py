"""Types that are decoded, and threads; and what is wrong with bytes that cannot be.

What a struct's fields are msgspec looks up when the struct is decoded for the first time. While
one thread does that, a second one that decodes the same struct finds it half looked up, and the
process ends with a segmentation fault (msgspec 0.22, also with the GIL). So every type goes
through `prepared`, where one thread at a time looks.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar, overload

import msgspec

_T = TypeVar("_T")
_LOCK: Final = Lock()
_PREPARED: Final[set[Any]] = set()

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
"""What decoding raises. The latter is of msgspec up to 0.22, for texts that are not UTF-8."""

NOT_UTF8: Final = "one of its texts is not UTF-8"


def undecodable(error: Exception) -> str:
    """What is wrong with the bytes, in words: those of msgspec, but of texts that are not UTF-8."""
    if isinstance(error, UnicodeDecodeError) or "Invalid UTF-8" in str(error):
        return NOT_UTF8
    return str(error)


@overload
def prepared(kind: type[_T]) -> type[_T]: ...
@overload
def prepared(kind: Any) -> Any: ...
def prepared(kind: Any) -> Any:
    """The type itself, with all that it refers to, once msgspec knows it."""
    if kind not in _PREPARED:
        with _LOCK:
            msgspec.json.Decoder(kind)
            _PREPARED.add(kind)
    return kind
