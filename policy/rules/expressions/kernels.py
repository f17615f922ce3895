"""CEL's integer, time and logic operators on arrays, with an error mask beside the values.

Arrays broadcast (a scalar has length 1). A mask of None means no error. Where a value is an
error its number is a placeholder. Integers are int64: leaving the range is an error, never a
wrap; division truncates towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy.rules.expressions.columns import BoolArray, IntArray

Errors = BoolArray | None
Numbers = NDArray[Any]

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
# The engine computes durations in nanoseconds, so 292 years is the longest one.
DURATION_LIMIT_MS = INT_MAX // 1_000_000
# The engine cannot hold the first instant of the year 1 nor the last millisecond of 9999.
TIMESTAMP_MIN_MS = -62_135_596_800_000 + 1
TIMESTAMP_MAX_MS = 253_402_300_800_000 - 2


def either(left: Errors, right: Errors) -> Errors:
    """Errors of an operator that needs both operands."""
    if left is None:
        return right
    if right is None:
        return left
    return left | right


def _only_if_any(mask: BoolArray) -> Errors:
    return mask if mask.any() else None


def add(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """`a + b`."""
    total = a + b
    return total, _only_if_any(((a ^ total) & (b ^ total)) < 0)


def subtract(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """`a - b`."""
    difference = a - b
    return difference, _only_if_any(((a ^ b) & (a ^ difference)) < 0)


def _largest_magnitude(a: IntArray) -> int:
    return max(int(a.max()), -int(a.min())) if a.size else 0


def multiply(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """`a * b`."""
    product = a * b
    if _largest_magnitude(a) * _largest_magnitude(b) <= INT_MAX:
        return product, None
    # A wrapped product does not divide back. -1 is left to its own test, because
    # INT_MIN // -1 wraps as well.
    divisor = np.where((a == 0) | (a == -1), 1, a)
    wrapped = (divisor == a) & (product // divisor != b)
    return product, _only_if_any(wrapped | ((a == -1) & (b == INT_MIN)))


def _bad_division(a: IntArray, b: IntArray) -> Errors:
    return _only_if_any((b == 0) | ((b == -1) & (a == INT_MIN)))


def divide(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """`a / b`, truncated."""
    bad = _bad_division(a, b)
    divisor = b if bad is None else np.where(bad, 1, b)
    quotient = a // divisor
    inexact = quotient * divisor != a
    # numpy floors: one too low where the exact quotient is negative and not whole.
    return quotient + (inexact & ((a < 0) ^ (divisor < 0))), bad


def modulo(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """`a % b`, with the sign of `a`."""
    bad = _bad_division(a, b)
    divisor = b if bad is None else np.where(bad, 1, b)
    return np.fmod(a, divisor), bad


def negate(a: IntArray) -> tuple[IntArray, Errors]:
    """`-a`."""
    return -a, _only_if_any(a == INT_MIN)


def _outside(values: IntArray, low: int, high: int) -> Errors:
    if not values.size or (int(values.min()) >= low and int(values.max()) <= high):
        return None
    return (values < low) | (values > high)


def timestamp_range(values: IntArray) -> Errors:
    """Milliseconds that are no timestamp."""
    return _outside(values, TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS)


def duration_range(values: IntArray) -> Errors:
    """Milliseconds that are no duration."""
    return _outside(values, -DURATION_LIMIT_MS, DURATION_LIMIT_MS)


def add_time(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """timestamp + duration, in either order. No operand is near the int64 range."""
    moved = a + b
    return moved, timestamp_range(moved)


def subtract_duration(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """timestamp - duration."""
    moved = a - b
    return moved, timestamp_range(moved)


def add_durations(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """duration + duration."""
    total = a + b
    return total, duration_range(total)


def subtract_durations(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """duration - duration."""
    difference = a - b
    return difference, duration_range(difference)


def subtract_timestamps(a: IntArray, b: IntArray) -> tuple[IntArray, Errors]:
    """timestamp - timestamp."""
    difference = a - b
    errors = duration_range(difference)
    if errors is None and _largest_magnitude(difference) < DURATION_LIMIT_MS - 2_000:
        return difference, None
    # The engine subtracts the whole seconds first, and these may be one more apart.
    seconds = a // 1000 - b // 1000
    limit = DURATION_LIMIT_MS // 1000
    return difference, either(errors, _outside(seconds, -limit, limit))


def truncated_units(milliseconds: IntArray, unit: int) -> IntArray:
    """Whole units in a duration, towards zero."""
    quotient: IntArray = milliseconds // unit
    short: BoolArray = (quotient * unit != milliseconds) & (milliseconds < 0)
    whole: IntArray = quotient + short
    return whole


_DAY_MS = 86_400_000


def _days(milliseconds: IntArray) -> NDArray[np.datetime64]:
    return (milliseconds // _DAY_MS).astype("datetime64[D]")


def _since(milliseconds: IntArray, unit: str) -> IntArray:
    """Days since the start of the month or year, from 0."""
    days = _days(milliseconds)
    start = days.astype(f"datetime64[{unit}]").astype("datetime64[D]")
    passed: IntArray = (days - start).astype(np.int64)
    return passed


CALENDAR: Mapping[str, Callable[[IntArray], IntArray]] = {
    "getFullYear": lambda ms: _days(ms).astype("datetime64[Y]").astype(np.int64) + 1970,
    "getMonth": lambda ms: _days(ms).astype("datetime64[M]").astype(np.int64) % 12,
    "getDayOfMonth": lambda ms: _since(ms, "M"),
    "getDate": lambda ms: _since(ms, "M") + 1,
    "getDayOfYear": lambda ms: _since(ms, "Y"),
    "getDayOfWeek": lambda ms: (ms // _DAY_MS + 4) % 7,
    "getHours": lambda ms: ms // 3_600_000 % 24,
    "getMinutes": lambda ms: ms // 60_000 % 60,
    "getSeconds": lambda ms: ms // 1_000 % 60,
    "getMilliseconds": lambda ms: ms % 1_000,
}
"""Parts of an instant in UTC: months, days of the month and of the year count from 0,
weekdays from Sunday."""

COMPARISONS: Mapping[str, Callable[[Numbers, Numbers], BoolArray]] = {
    "_==_": np.equal,
    "_!=_": np.not_equal,
    "_<_": np.less,
    "_<=_": np.less_equal,
    "_>_": np.greater,
    "_>=_": np.greater_equal,
}


def logical_and(a: BoolArray, ea: Errors, b: BoolArray, eb: Errors) -> tuple[BoolArray, Errors]:
    """`a && b`: false on one side absorbs an error on the other."""
    if ea is None and eb is None:
        return a & b, None
    surely_false = _sure(~a, ea) | _sure(~b, eb)
    errors = either(ea, eb)
    assert errors is not None
    errors = errors & ~surely_false
    return ~surely_false & ~errors, _only_if_any(errors)


def logical_or(a: BoolArray, ea: Errors, b: BoolArray, eb: Errors) -> tuple[BoolArray, Errors]:
    """`a || b`: true on one side absorbs an error on the other."""
    if ea is None and eb is None:
        return a | b, None
    surely_true = _sure(a, ea) | _sure(b, eb)
    errors = either(ea, eb)
    assert errors is not None
    return surely_true, _only_if_any(errors & ~surely_true)


def _sure(mask: BoolArray, errors: Errors) -> BoolArray:
    return mask if errors is None else mask & ~errors


def choose_errors(condition: BoolArray, ec: Errors, ea: Errors, eb: Errors) -> Errors:
    """Errors of `condition ? a : b`: those of the branch taken, and of the condition."""
    if ec is None and ea is None and eb is None:
        return None
    none = np.zeros(1, np.bool_)
    taken = np.where(condition, none if ea is None else ea, none if eb is None else eb)
    if ec is not None:
        taken = taken | ec
    return _only_if_any(taken)
