"""What an expression means where it has no value: the one definition that all else follows.

The evaluation over columns, the evaluation of one row, the rule sets, the lint and the
documentation read it here, and so may a proof of rules. A condition is true, false or without a
value (None, an error):

1. A key that a map of the cluster does not have reads as a default (`DEFAULTS`): a missing label
   or annotation is the empty string, a resource that is not requested is 0. `'k' in m` and
   `has(m.k)` tell the two apart. Maps that are written in the expression have no default.
2. `&&`, `||` and `? :` are CEL's: false on one side of `&&` and true on one side of `||` absorb
   the other side, also where it has no value; `? :` needs its condition and the side it takes.
   Every other operator and function needs all its operands.
3. What is left without a value fails closed: a rule that protects holds, a rule that permits does
   not, unless its `onError` says otherwise. A pod without a key of the importance order counts as
   the most important, a candidate without a ranking value as the worst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from policy.rules.expressions.variables import VARIABLES, Context, ValueType

Truth: TypeAlias = bool | None
"""A condition's value; None where it has none."""


class OnError(StrEnum):
    """What a rule does where its condition has no value; the words of rule files."""

    HOLDS = "holds"  # as if the condition were true
    SKIP = "skip"  # as if it were false: the next rule is tried


DEFAULTS: Final[Mapping[ValueType, str | int]] = MappingProxyType(
    {ValueType.STRING_MAP: "", ValueType.INT_MAP: 0}
)
"""What a key that is not there reads as, by the type of the map."""

PERMITS: Final = "allow"
"""The verdict that takes protection away; every other one protects."""


def default_on_error(verdict: str) -> OnError:
    """What a rule of this verdict (`allow`, `deny`, `forbid`) does unless it says otherwise."""
    return OnError.SKIP if verdict == PERMITS else OnError.HOLDS


def holds(truth: Truth, on_error: OnError) -> bool:
    """Does a rule take effect?"""
    return on_error is OnError.HOLDS if truth is None else truth


def conjunction(left: Truth, right: Truth) -> Truth:
    """`left && right`."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def disjunction(left: Truth, right: Truth) -> Truth:
    """`left || right`."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def negation(truth: Truth) -> Truth:
    """`!truth`."""
    return None if truth is None else not truth


def choice(condition: Truth, first: Truth, second: Truth) -> Truth:
    """`condition ? first : second` of conditions."""
    return None if condition is None else first if condition else second


MEANING: Final[Mapping[Context, str]] = MappingProxyType(
    {
        Context.ELIGIBILITY: "a `deny` holds, so the pod may not preempt; an `allow` is skipped",
        Context.VICTIMS: "a `deny` holds, so the pod stays; an `allow` is skipped",
        Context.FORBID: "the rule holds, so the pod stays",
        Context.IMPORTANCE: "the pod is kept first, as if it had the most important value",
        Context.RANKING: "the node comes last, as if it had the worst value",
        Context.SCORING: "the node gets 0, the lowest score",
        Context.GROUP_ELIGIBILITY: "a `deny` holds, so the group may not preempt; an `allow` is "
        "skipped",
        Context.UNITS: "a `deny` holds, so the unit stays; an `allow` is skipped",
        Context.UNIT_IMPORTANCE: "the unit is kept first, as if it had the most important value",
    }
)
"""What an error means in each place of a rule file, unless `onError` says otherwise."""


class NoValue(StrEnum):
    """Why an expression has no value: part of recorded decisions, so never renamed."""

    DIVISION = "division by zero"
    OVERFLOW = "the number is out of range"
    NUMBER = "the text is not a number"
    TRUTH = "the text is not a truth value"
    DURATION = "the text is not a duration"
    TIMESTAMP = "the text is not a timestamp"
    INSTANT = "the instant is outside the years 1 to 9999"
    ENCODING = "the bytes are not UTF-8"
    KEY = "the map does not have the key"
    DUPLICATE_KEY = "the map has a key twice"
    INDEX = "the list is shorter"
    PATTERN = "the pattern is not a regular expression"
    ZONE = "the time zone is unknown"
    TYPES = "the operator does not apply to these types"
    COST = "the evaluation takes too many steps"
    HISTORY = "the snapshot does not have the history figures"
    OTHER = "the expression has no value"


_SIGNS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(?:divide|modulus) by zero", NoValue.DIVISION),
        (r"timestamp (?:overflow|out of range)", NoValue.INSTANT),
        *(
            (rf"No value with name.*{re.escape(name)}", NoValue.HISTORY)
            for name, variable in VARIABLES.items()
            if variable.history
        ),
        (r"No value with name", NoValue.INSTANT),  # an instant that CEL cannot hold is left out
        (r"overflow|out of \w+ range|out of range", NoValue.OVERFLOW),
        (r"convert string to (?:int|uint|double)", NoValue.NUMBER),
        (r"from 'string' to 'bool'", NoValue.TRUTH),
        (r"String to Duration", NoValue.DURATION),
        (r"String to Timestamp", NoValue.TIMESTAMP),
        (r"malformed UTF-8", NoValue.ENCODING),
        (r"[Kk]ey not found", NoValue.KEY),
        (r"duplicate key", NoValue.DUPLICATE_KEY),
        (r"Index error", NoValue.INDEX),
        (r"invalid regular expression", NoValue.PATTERN),
        (r"Invalid timezone", NoValue.ZONE),
        (r"No matching overload", NoValue.TYPES),
        (r"budget exceeded", NoValue.COST),
    )
)


def no_value(report: str) -> NoValue:
    """Why there is no value, from the words of the CEL library, which may change."""
    if NoValue.HISTORY.value in report:
        return NoValue.HISTORY
    return next((kind for sign, kind in _SIGNS if sign.search(report)), NoValue.OTHER)
