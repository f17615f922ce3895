"""Exact Kubernetes quantities (`200m`, `1Gi`, `11400G`, `1e3`), rounded up as Kubernetes rounds.

Source: apimachinery `resource.Quantity` (`Value`, `MilliValue`): integers in base units, every
fraction that is left is rounded away from zero, values beyond int64 are capped at its ends.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Final

INT64_MAX: Final = 2**63 - 1

_FORM: Final = re.compile(
    r"([+-]?)((?:[0-9]+\.?[0-9]*)|(?:\.[0-9]+))"
    r"(?:([eE][+-]?[0-9]{1,4})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?"
)
_FACTORS: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
# Wide enough that no product of a quantity's digits and a factor is rounded before we round it.
_EXACT: Final = Context(prec=200, Emax=999_999, Emin=-999_999)
_LONGEST: Final = 80


class QuantityError(ValueError):
    """A text that is not a quantity; `str()` is the message without file, object and field."""


def _exact(text: str) -> Decimal:
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
        raise QuantityError(f"`{shown}` is not a quantity")
    sign, digits, exponent, suffix = found.groups()
    if exponent is not None:
        value = Decimal(digits + exponent)
    else:
        value = _EXACT.multiply(Decimal(digits), _FACTORS[suffix or ""])
    return -value if sign == "-" else value


@lru_cache(maxsize=65536)
def _nano(text: str) -> int:
    value = _EXACT.multiply(_exact(text), Decimal(10) ** 9)
    rounding = ROUND_CEILING if value >= 0 else ROUND_FLOOR
    return int(value.to_integral_value(rounding=rounding, context=_EXACT))


def nano(quantity: str | int | float) -> int:
    """Billionths, exact: no quantity is finer. Add these up, then round once. QuantityError."""
    if type(quantity) is int:
        return quantity * 1_000_000_000
    return _nano(quantity if isinstance(quantity, str) else repr(quantity))


def _up(nanos: int, size: int) -> int:
    value = -(-nanos // size) if nanos >= 0 else nanos // size
    return max(-INT64_MAX, min(INT64_MAX, value))


def nano_to_milli(nanos: int) -> int:
    """Thousandths (cpu), rounded away from zero, capped at int64."""
    return _up(nanos, 1_000_000)


def nano_to_units(nanos: int) -> int:
    """Whole units (bytes, devices), rounded away from zero, capped at int64."""
    return _up(nanos, 1_000_000_000)


def units(quantity: str | int | float) -> int:
    """Whole units (bytes, devices), rounded up. Raises QuantityError."""
    return nano_to_units(nano(quantity))


def milli(quantity: str | int | float) -> int:
    """Thousandths (cpu), rounded up. Raises QuantityError."""
    return nano_to_milli(nano(quantity))
