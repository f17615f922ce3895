"""Instants of many objects at once; apart from `times`, which commands use that load no numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster import times

_SHAPE: Final = "2024-06-01T00:00:00Z"
"""What an API server writes."""
_DIGITS: Final = np.array([i for i, c in enumerate(_SHAPE) if c.isdigit()])
_SIGNS: Final = np.array([i for i, c in enumerate(_SHAPE) if not c.isdigit()])
_SIGN_LETTERS: Final = np.array([ord(c) for c in _SHAPE if not c.isdigit()], dtype=np.uint8)
_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_UNTIL_1970: Final = 719_468
"""Days from the 1st of March of the year 0."""


def parse_many(texts: Sequence[str | None]) -> NDArray[np.int64]:
    """`times.parse_optional` of each text; shape (texts,). Raises TimeError."""
    usual = [text if text and len(text) == len(_SHAPE) else _SHAPE for text in texts]
    joined = "".join(usual)
    if not joined.isascii():
        return np.array([times.parse_optional(text) for text in texts], dtype=np.int64)
    letters = np.frombuffer(joined.encode(), dtype=np.uint8).reshape(-1, len(_SHAPE))
    digits = letters[:, _DIGITS].astype(np.int64) - ord("0")
    year = digits[:, :4] @ np.array([1000, 100, 10, 1])
    month, day, hour, minute, second = (
        digits[:, i] * 10 + digits[:, i + 1] for i in range(4, digits.shape[1], 2)
    )
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    known = (letters[:, _SIGNS] == _SIGN_LETTERS).all(axis=1)
    known &= ((digits >= 0) & (digits <= 9)).all(axis=1)
    known &= (year > 0) & (month > 0) & (month <= 12) & (day > 0)
    known &= day <= _DAYS[np.where(known, month, 0)] + (leap & (month == 2))
    known &= (hour < 24) & (minute < 60) & (second < 60)
    # Years that begin in March, so that the day that leap years have is the last one of them.
    since_march = (month + 9) % 12
    years = year - (month < 3)
    days = 365 * years + years // 4 - years // 100 + years // 400
    days += (153 * since_march + 2) // 5 + day - 1 - _UNTIL_1970
    found: NDArray[np.int64] = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000
    of_text = [text is given for text, given in zip(usual, texts, strict=True)]
    for i in np.flatnonzero(~(known & np.array(of_text, dtype=np.bool_))).tolist():
        found[i] = times.parse_optional(texts[i])
    return found
