"""Law: an expression evaluated over columns gives what the CEL engine gives row by row.

Holds for every expression that type-checks and every column within the declared types:
the same values, and errors in the same rows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from policy.rules.expressions import (
    BoolColumn,
    Columns,
    Context,
    Evaluated,
    Expression,
    ExpressionError,
    IntColumn,
    InternedColumn,
    NoValue,
    Scalar,
    TimestampColumn,
    ValueTable,
    ValueType,
    compile_expression,
)

ROWS = 100
# At least 100,000 rows are evaluated in a run; more with POLICY_EXPRESSION_EXAMPLES.
EXAMPLES = int(os.environ.get("POLICY_EXPRESSION_EXAMPLES", "1100"))
ERRORS = (
    NoValue.OVERFLOW,
    NoValue.INSTANT,
    NoValue.DIVISION,
    NoValue.NUMBER,
)
"""All of them have to come up in a run."""

REFUSED = (
    *("nested too deeply", "has no value", "division by zero", "a whole number"),
    *("is outside the list", "the map does not have the key"),
)
"""What loading says of generated texts that fail whatever the values are."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
EDGES = [INT_MIN, INT_MIN + 1, -(2**32), -7, -2, -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**62, INT_MAX]
STRINGS = ["", "a", "b", "ab", "gold", "12", "-7", "x" * 5, "été", "😀", "\uffff", "a.b", "9" * 20]
KEYS = ["tier", "team", "a", "b"]
# Instants of a cluster's life, and a few at which arithmetic leaves the range.
INSTANTS = [
    0,
    -1,
    1_700_000_000_000,
    1_700_000_000_123,
    1_699_999_400_000,
    1_699_996_400_001,
    253_402_300_799_000,
    -62_135_510_400_000,
    9_223_372_036_854,
    -9_223_372_036_854,
    4_102_444_800_000,
]

# -- expressions -------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Grammar:
    """Draws the text of a well-typed expression."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def form(self, kind: str, depth: int) -> str:
        """One of the forms of a type; `{int}` and its like stand for smaller expressions."""
        forms = LEAVES[kind] if depth == 0 else LEAVES[kind] + FORMS[kind]
        return PLACEHOLDER.sub(lambda match: self.fill(match[1], depth - 1), self.one(forms))

    def fill(self, name: str, depth: int) -> str:
        if name in FORMS:
            return self.form(name, max(depth, 0))
        if name == "literal":
            return str(self.draw(st.sampled_from(EDGES) | st.integers(-100, 100)))
        if name.removesuffix("s") in FORMS:
            count = self.draw(st.integers(0, 3))
            return ", ".join(self.form(name[:-1], max(depth, 0)) for _ in range(count))
        return str(self.one(WORDS[name]))


PLACEHOLDER = re.compile(r"<([a-z-]+)>")
WORDS: dict[str, Sequence[str]] = {
    "int-name": (
        "victim.priority",
        "preemptor.priority",
        "victim.cpuMilli",
        "node.podCount",
        "preemptor.cpuMilli",
    ),
    "bool-name": ("victim.terminating", "node.unschedulable"),
    "text-name": (
        "victim.namespace",
        "preemptor.namespace",
        "victim.owner",
        "victim.name",
        "node.name",
    ),
    "text-literal": [quoted(text) for text in STRINGS],
    "map": ("victim.labels", "preemptor.labels", "victim.annotations"),
    "int-map": ("victim.requests", "preemptor.requests"),
    "time-name": ("now", "victim.startTime", "preemptor.createdAt"),
    "span": (
        *("0s", "1s", "-90s", "10m", "1h30m", "1500ms", "1.5s", "1us"),
        *("2500000h", "-2500000h", "9000000h"),
    ),
    "key": KEYS,
    "plus": "+-",
    "operator": "+-*/%",
    "division": "/%",
    # Zero in some rows, or in all.
    "divisor": ("node.podCount", "(victim.priority - victim.priority)", "0"),
    "compare": ("==", "!=", "<", "<=", ">", ">="),
    "logic": ("&&", "||"),
    "affix": ("startsWith", "endsWith", "contains"),
    "pattern": ("^a", "[0-9]+$", "", "g.l", "(?i)GOLD"),
    "macro": ("all", "exists", "exists_one"),
    "unit": ("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    "calendar": (
        "getFullYear",
        "getMonth",
        "getDayOfMonth",
        "getDate",
        "getDayOfYear",
        "getDayOfWeek",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    ),
}
LEAVES: dict[str, list[str]] = {
    "bool": ["<bool-name>", "true", "false", "has(<map>.<key>)"],
    "int": ["<int-name>", "<int-name>", "<literal>", "<int-map>['<key>']"],
    "text": ["<text-name>", "<text-literal>", "<map>['<key>']", "<map>.<key>"],
    "time": ["<time-name>", "<time-name>", "timestamp('2026-11-21T00:00:00.5Z')"],
    "duration": ["duration('<span>')"],
}
FORMS: dict[str, list[str]] = {
    "bool": [
        "(<int> <compare> <int>)",
        "(<text> <compare> <text>)",
        "(<time> <compare> <time>)",
        "(<duration> <compare> <duration>)",
        "(<bool> <compare> <bool>)",
        "(<bool> <logic> <bool>)",
        "(<bool> <logic> <bool>)",
        "!<bool>",
        "(<bool> ? <bool> : <bool>)",
        "(<int> in [<ints>])",
        "(<text> in [<texts>])",
        "(<bool> in [<bools>])",
        "(<int> in [-1, 0, 7])",
        "(<text> in ['a', 'gold'])",
        "(<text> in <map>)",
        "(<text> in <int-map>)",
        "<text>.<affix>(<text>)",
        # No array form: regular expressions, loops, lists as values.
        "<text>.matches('<pattern>')",
        "<map>.<macro>(k, k == <text>)",
        "([<int>, <int>] == [<int>, 1])",
        "(history.preemptedCount(<text>, duration('1h')) > 1)",
        "[<text>].exists(o, history.secondsSinceLastPreempted(o) > 50)",
    ],
    "int": [
        "(<int> <operator> <int>)",
        "(<int> <operator> <int>)",
        "(<int> <division> <divisor>)",
        "-(<int>)",
        "size(<text>)",
        "size(<map>)",
        "<int-map>.size()",
        "<int-map>[<text>]",
        "int(<time>)",
        "int(<int>)",
        "(<bool> ? <int> : <int>)",
        "<time>.<calendar>()",
        "<duration>.<unit>()",
        "history.namespacePreemptions(<text>, duration('30m'))",
        # No array form: numbers in text, doubles, time zones.
        "int(<text>)",
        "int(double(<int>) * 0.5)",
        "<time>.getHours('Europe/Berlin')",
    ],
    "text": [
        "(<text> + <text>)",
        "string(<int>)",
        "string(<bool>)",
        "string(<text>)",
        "(<bool> ? <text> : <text>)",
        "<map>[<text>]",
    ],
    "time": [
        "(<time> <plus> <duration>)",
        "(<duration> + <time>)",
        "(<bool> ? <time> : <time>)",
    ],
    "duration": ["(<time> - <time>)", "(<duration> <plus> <duration>)"],
}


@st.composite
def expressions(draw: st.DrawFn, kinds: Sequence[str] = tuple(FORMS), depth: int = 3) -> str:
    grammar = Grammar(draw)
    return grammar.form(grammar.one(kinds), depth)


# -- columns -----------------------------------------------------------------------------------


class Figures:
    """Figures for a few of the owners."""

    def figures(self, function: str, window_seconds: int | None) -> dict[str, int]:
        del window_seconds
        return {"a": 2, "gold": 1} if function == "preemptedCount" else {"b": 60, "ab": 40}


def make_columns(seed: int, rows: int) -> Columns:
    """Columns in which edge values and repetition are common."""
    rng = np.random.default_rng(seed)

    def pick(pool: list[Any], size: int) -> list[Any]:
        return [pool[i] for i in rng.integers(0, len(pool), size)]

    def numbers() -> IntColumn:
        small = rng.integers(-50, 50, rows)
        return IntColumn(np.where(rng.random(rows) < 0.3, pick(EDGES, rows), small))

    def mappings(values: list[Any]) -> list[dict[str, Any]]:
        return [
            {key: pick(values, 1)[0] for key in [*KEYS, ""] if rng.random() < 0.6} for _ in range(5)
        ]

    def interned(values: list[Any]) -> InternedColumn:
        table = ValueTable(values) if rng.random() < 0.5 else values
        return InternedColumn(rng.integers(0, len(values), rows), table)

    def interned_codes_of(other: InternedColumn, values: list[Any]) -> InternedColumn:
        return InternedColumn(other.codes, [pick(values, 1)[0] for _ in other.values])

    namespace = interned(pick(STRINGS, 6))
    many = [f"{text}{i}" if i % 3 else text for i, text in enumerate(pick(STRINGS, rows * 2))]
    return Columns(
        rows,
        {
            "victim.priority": numbers(),
            "preemptor.priority": Scalar(pick(EDGES, 1)[0]),
            "victim.cpuMilli": numbers(),
            "preemptor.cpuMilli": Scalar(int(rng.integers(-5, 5))),
            "node.podCount": IntColumn(rng.integers(0, 3, rows)),
            "victim.terminating": BoolColumn(rng.random(rows) < 0.5),
            "node.unschedulable": BoolColumn(rng.random(rows) < 0.1),
            "victim.namespace": namespace,
            "victim.owner": interned_codes_of(namespace, STRINGS),
            "preemptor.namespace": Scalar(pick(STRINGS, 1)[0]),
            "victim.name": InternedColumn(rng.integers(0, rows * 2, rows), many),
            "node.name": interned(STRINGS),
            "victim.labels": interned(mappings(STRINGS)),
            "victim.annotations": interned(mappings(STRINGS)),
            "preemptor.labels": Scalar(mappings(STRINGS)[0]),
            "victim.requests": interned(mappings(EDGES)),
            "preemptor.requests": Scalar(mappings(EDGES)[0]),
            "now": Scalar(pick(INSTANTS, 1)[0]),
            "victim.startTime": TimestampColumn(np.array(pick(INSTANTS, rows), np.int64)),
            "preemptor.createdAt": Scalar(pick(INSTANTS, 1)[0]),
        },
        Figures(),
    )


def outcome(result: Evaluated, rows: int) -> list[Any]:
    """Values with None for errors, one per row."""
    return result.broadcast(rows).tolist()


def compiled(source: str) -> Expression:
    """The expression; texts are passed over that loading refuses."""
    try:
        return compile_expression(source, context=Context.VICTIMS, expected=frozenset(ValueType))
    except ExpressionError as exc:
        # Only what no generated text can avoid: depth, and constants without a value.
        assume(not any(sign in str(exc) for sign in REFUSED))
        raise


# -- laws --------------------------------------------------------------------------------------


def test_columns_equal_the_engine_row_by_row() -> None:
    """Values and errors of the array form are those of the CEL engine, row for row.

    100,000 evaluations at least, and among them every kind of error that rules can meet.
    """
    rows = 0
    errors: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(source=expressions(), seed=st.integers(0, 2**32))
    # What chance draws a few times only; no run goes without it.
    @example(source="victim.priority % node.podCount", seed=1)
    @example(source="victim.priority / node.podCount", seed=1)
    @example(source="victim.startTime + duration('2500000h') > now", seed=1)
    @example(source="int(victim.namespace)", seed=1)
    def law(source: str, seed: int) -> None:
        nonlocal rows
        expression = compiled(source)
        columns = make_columns(seed, ROWS)
        expected = outcome(expression.evaluate_rows(columns), ROWS)
        assert outcome(expression.evaluate(columns), ROWS) == expected
        rows += ROWS
        failing = [row for row, value in enumerate(expected) if value is None]
        for row in failing[:3]:
            reason = expression.error_at(columns, row) or ""
            errors.update(kind for kind in ERRORS if kind in reason)

    law()
    assert rows >= 100_000
    assert errors.keys() == set(ERRORS)


@settings(max_examples=100, deadline=None)
@given(source=expressions(["bool"], 2), seed=st.integers(0, 2**32), rows=st.sampled_from([0, 1, 2]))
def test_few_rows_equal_many(source: str, seed: int, rows: int) -> None:
    """The number of rows changes nothing about a row, down to none."""
    expression = compiled(source)
    many = make_columns(seed, 10)
    few = many.take(np.arange(rows))
    expected = outcome(expression.evaluate(many), 10)[:rows]
    assert outcome(expression.evaluate(few), rows) == expected


@settings(max_examples=100, deadline=None)
@given(source=expressions(["bool"], 2), seed=st.integers(0, 2**32))
def test_a_row_alone_equals_the_row_among_others(source: str, seed: int) -> None:
    """What a row evaluates to does not depend on the rows beside it."""
    expression = compiled(source)
    columns = make_columns(seed, 5)
    expected = outcome(expression.evaluate(columns), 5)
    alone = [outcome(expression.evaluate(columns.at(row)), 1)[0] for row in range(5)]
    assert alone == expected
    reasons = [expression.error_at(columns, row) for row in range(5)]
    assert [reason is not None for reason in reasons] == [value is None for value in expected]


@pytest.mark.parametrize("source", ["victim.priority + 1", "victim.namespace", "now"])
def test_a_table_that_grew_is_evaluated_for_its_new_values(source: str) -> None:
    """Results cached for a table of values cover the values appended later."""
    text = f"string({source}).matches('^[a-z0-9]+$')"
    expression = compile_expression(text, context=Context.VICTIMS, expected=frozenset(ValueType))
    table = ValueTable(["a", "-"])
    base = {"victim.priority": IntColumn(np.array([1, -5, 3])), "now": Scalar(0)}
    first = Columns(
        2,
        {
            "victim.priority": IntColumn(np.array([1, -5])),
            "now": Scalar(0),
            "victim.namespace": InternedColumn(np.array([0, 1]), table),
        },
    )
    before = outcome(expression.evaluate(first), 2)
    table.values.append("b")
    second = Columns(3, {**base, "victim.namespace": InternedColumn(np.array([0, 1, 2]), table)})
    after = outcome(expression.evaluate(second), 3)
    rows = outcome(expression.evaluate_rows(second), 3)
    assert (before, after) == (rows[:2], rows)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "==", "<", "<="])
def test_every_pair_of_edge_values_equals_the_engine(operator: str) -> None:
    """Where int64 ends, zero divides or signs differ, no combination is left to chance."""
    pairs = [(a, b) for a in EDGES for b in EDGES]
    columns = Columns(
        len(pairs),
        {
            "victim.priority": IntColumn(np.array([a for a, _ in pairs])),
            "victim.cpuMilli": IntColumn(np.array([b for _, b in pairs])),
        },
    )
    expression = compile_expression(
        f"victim.priority {operator} victim.cpuMilli",
        context=Context.VICTIMS,
        expected=frozenset(ValueType),
    )
    by_rows = outcome(expression.evaluate_rows(columns), len(pairs))
    assert outcome(expression.evaluate(columns), len(pairs)) == by_rows


@pytest.mark.parametrize("key", ["victim.labels['a']", "victim.labels.b"])
def test_a_missing_label_reads_as_the_empty_string(key: str) -> None:
    """A missing label is the empty string, also where it is the key of another label."""
    labels: list[dict[str, str]] = [{"a": "x", "b": ""}, {}]
    columns = Columns(
        2,
        {
            "victim.labels": InternedColumn(np.array([0, 1]), labels),
            "preemptor.labels": Scalar({"x": "1", "": "2"}),
        },
    )
    expression = compile_expression(
        f"preemptor.labels[{key}]", context=Context.VICTIMS, expected=frozenset(ValueType)
    )
    by_rows = outcome(expression.evaluate_rows(columns), 2)
    expected = ["1" if key.endswith("['a']") else "2", "2"]
    assert (outcome(expression.evaluate(columns), 2), by_rows) == (expected, expected)
