"""The translation for the solver against the product's own evaluation, value by value."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import z3
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policy.proving import terms
from policy.proving.patterns import NotTranslatable, pattern, text_value
from policy.rules.expressions import (
    Columns,
    Context,
    Expression,
    IntColumn,
    InternedColumn,
    Scalar,
    TimestampColumn,
    ValueType,
    compile_expression,
)
from policy.rules.expressions.kernels import (
    DURATION_LIMIT_MS,
    INT_MAX,
    INT_MIN,
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
)
from tests.property.test_expressions import compiled, expressions, make_columns
from tests.support.proving import by_terms

NUMBERS = [INT_MIN, INT_MIN + 1, -(2**32), -7, -2, -1, 0, 1, 2, 3, 7, 2**31, 2**32, INT_MAX]
TEXTS = ["", "a", "b", "ab", "ba", "aba", "12", "-7", "\\u{61}", "a\\", "é", "\uffff", "\U0001f600"]
INSTANTS = [
    *(TIMESTAMP_MIN_MS, TIMESTAMP_MIN_MS + 1, -1001, -1, 0, 1, 999, 1_700_000_000_123),
    *(TIMESTAMP_MAX_MS - 1, TIMESTAMP_MAX_MS, DURATION_LIMIT_MS, -DURATION_LIMIT_MS),
]
SPANS = ["0s", "1ms", "-1ms", "1500ms", "-1500ms", "-90s", "3599s", "-3600s", "2500000h"]
RANDOM_ROWS = int(os.environ.get("POLICY_PROVING_ROWS", "100000"))


def expression(source: str) -> Expression:
    return compile_expression(source, context=Context.VICTIMS, expected=frozenset(ValueType))


def pairs(values: list[Any]) -> tuple[list[Any], list[Any]]:
    return [a for a in values for _ in values], [b for _ in values for b in values]


def edges() -> Columns:
    """Every pair of edge values, of numbers, texts and instants."""
    size = max(len(NUMBERS), len(TEXTS), len(INSTANTS)) ** 2

    def filled(values: list[Any]) -> list[list[Any]]:
        return [(side * (size // len(side) + 1))[:size] for side in pairs(values)]

    (a, b), (s, t), (x, y) = filled(NUMBERS), filled(TEXTS), filled(INSTANTS)
    rows = np.arange(size)
    return Columns(
        size,
        {
            "victim.priority": IntColumn(np.array(a)),
            "victim.cpuMilli": IntColumn(np.array(b)),
            "victim.namespace": InternedColumn(rows, s),
            "victim.name": InternedColumn(rows, t),
            "victim.startTime": TimestampColumn(np.array(x)),
            "victim.createdAt": TimestampColumn(np.array(y)),
            "victim.labels": InternedColumn(
                rows, [{one: two} for one, two in zip(s, t, strict=True)]
            ),
            "now": Scalar(0),
        },
    )


A, B, S, T = "victim.priority", "victim.cpuMilli", "victim.namespace", "victim.name"
X, Y = "victim.startTime", "victim.createdAt"
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
BY_PAIR = [
    *(f"{A} {sign} {B}" for sign in ("+", "-", "*", "/", "%", *COMPARISONS)),
    *(f"{S} {sign} {T}" for sign in ("+", *COMPARISONS)),
    *(f"{S}.{name}({T})" for name in ("startsWith", "endsWith", "contains")),
    *(f"{X} {sign} {Y}" for sign in ("-", *COMPARISONS)),
    *(f"{X} {sign} duration('{span}')" for sign in "+-" for span in SPANS),
    *(f"({X} - {Y}) {sign} duration('{span}')" for sign in "+-" for span in SPANS),
    *(f"({X} - {Y}).{part}()" for part in ("getHours", "getMinutes", "getSeconds")),
    *(f"{X}.get{part}()" for part in ("Hours", "Minutes", "Seconds", "Milliseconds", "DayOfWeek")),
    *(f"-{A}", f"string({A})", f"int({X})", f"int({S})", f"size({S})", f"string({A} < {B})"),
    *(f"{A} / {B} > 0 {sign} {B} / {A} > 0" for sign in ("&&", "||")),
    *(f"!({A} / {B} > 0)", f"{A} / {B} > 0 ? {B} / {A} > 0 : {A} % {B} == 0"),
    *(f"{A} > 0 ? {A} / {B} : {A} + {B}", f"{A} in [{B}, {A} / {B}, 7]", f"{S} in ['a', {T}]"),
    *(f"victim.labels[{T}]", f"{T} in victim.labels", "victim.labels.a", "has(victim.labels.a)"),
    *("victim.labels['a'] == ''", f"{S} in victim.labels && victim.labels[{S}] == {T}"),
    *(f"[{A}, {B}].exists(x, x / {B} > 0)", f"[{A}, {B}].all(x, {A} / x > 0)"),
    *(f"[{S}, {T}, 'a'].exists_one(x, x == 'a')", f"[{A}].map(x, x + 1) == [{B}]"),
    *("{'a': 1, 'b': 2}[" + S + "]", S + " in {'a': 1}", f"[{A}, 7][{B}]"),
    f"({A} < 0) < ({B} < 0)",
    *(f"{S}.matches('{p}')" for p in ("^a", "b$", "^[^ab]*$", "^(a|b)+$", "[0-9]{1,2}", "^.$")),
]  # fmt: skip
"""Each operator on each pair of edge values."""


def differences(source: str, columns: Columns) -> list[tuple[int, Any, Any]]:
    one = expression(source)
    expected = one.evaluate(columns).broadcast(columns.size).tolist()
    found = by_terms(one, columns)
    assert found is not None, source
    both = zip(range(columns.size), found, expected, strict=True)
    return [row for row in both if row[1] != row[2]]


@pytest.mark.parametrize("source", BY_PAIR)
def test_an_operator_on_every_pair_of_edge_values(source: str) -> None:
    """Value and error are those of the product for every pair."""
    assert differences(source, edges()) == []


def operator(name: str, *kinds: ValueType) -> tuple[str, tuple[Any, ...]]:
    return "_ARITHMETIC", (name, *kinds)


INT, MOMENT, SPAN = ValueType.INT, ValueType.TIMESTAMP, ValueType.DURATION
Operator = Callable[..., tuple[Any, Any]]
MISTAKES: dict[str, tuple[str, Any, Any, str]] = {
    "division rounds down": (
        *operator("_/_", INT, INT),
        lambda a, b: (a / b, terms._bad_division(a, b)),
        f"{A} / {B}",
    ),
    "remainder is never negative": (
        *operator("_%_", INT, INT),
        lambda a, b: (a % b, terms._bad_division(a, b)),
        f"{A} % {B}",
    ),
    "the smallest number divided by -1": (
        *operator("_/_", INT, INT),
        lambda a, b: (terms.truncated(a, b), b == 0),
        f"{A} / {B}",
    ),
    "a sum has no end": (
        *operator("_+_", INT, INT),
        lambda a, b: (a + b, terms.NEVER),
        f"{A} + {B}",
    ),
    "a product has no end": (
        *operator("_*_", INT, INT),
        lambda a, b: (a * b, terms.NEVER),
        f"{A} * {B}",
    ),
    "the smallest number negated": ("_UNARY", ("-_", INT), lambda a: (-a, terms.NEVER), f"-{A}"),
    "startsWith swapped": ("_COMPARISONS", "startsWith", z3.PrefixOf, f"{S}.startsWith({T})"),
    "endsWith swapped": ("_COMPARISONS", "endsWith", z3.SuffixOf, f"{S}.endsWith({T})"),
    "contains swapped": (
        "_COMPARISONS",
        "contains",
        lambda a, b: z3.Contains(b, a),
        f"{S}.contains({T})",
    ),
    "instants without limits": (
        *operator("_+_", MOMENT, SPAN),
        lambda a, b: (a + b, terms.NEVER),
        f"{X} + duration('2500000h')",
    ),
    "spans in whole seconds not limited": (
        *operator("_-_", MOMENT, MOMENT),
        lambda a, b: (a - b, terms.NEVER),
        f"{X} - {Y}",
    ),
    "a negative number as text": (
        "_UNARY",
        ("string", INT),
        lambda a: (z3.IntToStr(a), terms.NEVER),
        f"string({A})",
    ),
    "half an hour before 1970": (
        "_UNARY",
        ("getHours", SPAN),
        lambda a: (a / 3_600_000, terms.NEVER),
        f"({X} - {Y}).getHours()",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of edge values tell each of these mistakes from the right translation."""
    table, key, wrong, source = MISTAKES[mistake]
    monkeypatch.setattr(terms, table, {**getattr(terms, table), key: wrong})
    assert differences(source, edges()) != []


@pytest.mark.slow
def test_random_expressions_have_the_values_of_the_product() -> None:
    """100,000 rows of generated expressions, where they are understood."""
    rows = understood = 0

    @settings(
        max_examples=RANDOM_ROWS // 40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(source=expressions(), seed=st.integers(0, 2**32))
    @example(source="history.preemptedCount(string(32 / 0), duration('1h')) > 1", seed=1)
    @example(source="victim.labels[string(32 % (victim.priority * 0))] == 'a'", seed=1)
    def law(source: str, seed: int) -> None:
        nonlocal rows, understood
        one, columns = compiled(source), make_columns(seed, 60)
        found = by_terms(one, columns)
        if found is None:
            return
        assert found == one.evaluate(columns).broadcast(60).tolist()
        rows += 60
        understood += 1

    law()
    assert rows >= RANDOM_ROWS, (rows, understood)


PATTERNS = [
    *("", "a", "^a", "a$", "^a$", "^$", "a|b", "^a|b$", "^(a|b)$", "(?:ab)*", "^a+b?$", "a{2}"),
    *("^a{1,2}$", "^a{2,}$", "[ab]", "^[^a]", "[a-c]$", r"\d", r"^\w+$", r"\s", r"^\D*$", r"a\.b"),
    *("^.{3}$", r"^[\w.-]+$", r"\x41", "]", "^[]a]$", "a*?b", r"\Aab\z", "{", "a{,2}"),
]


@pytest.mark.parametrize("source", PATTERNS)
def test_a_pattern_finds_what_the_product_finds(source: str) -> None:
    """On every text of a few characters, and on those that differ by a line break."""
    letters = ["", "a", "b", "c", "A", "5", ".", " ", "\n", "é", "{", "]"]
    texts = sorted({a + b + c for a in letters for b in letters for c in ("", "a", "b", "\n")})
    columns = Columns(len(texts), {S: InternedColumn(np.arange(len(texts)), texts)})
    quoted = source.replace("\\", "\\\\")
    expected = expression(f"{S}.matches('{quoted}')").evaluate(columns).tolist()
    found = [z3.is_true(z3.simplify(z3.InRe(text_value(text), pattern(source)))) for text in texts]
    assert found == expected


@pytest.mark.parametrize("source", ["(?i)a", r"\bx", r"\pL", "a^b", "(^a)", "[[:alpha:]]"])
def test_a_pattern_that_is_not_understood_is_not_guessed(source: str) -> None:
    """What goes beyond the subset is refused."""
    with pytest.raises(NotTranslatable):
        pattern(source)
