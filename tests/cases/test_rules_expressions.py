"""What expressions mean, where they may use which variable, and what they tell about themselves."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from policy.rules.expressions import (
    CONDITION,
    NEVER,
    VARIABLES,
    Columns,
    Context,
    Expression,
    ExpressionError,
    IntColumn,
    InternedColumn,
    OnError,
    Scalar,
    TimestampColumn,
    ValueType,
    compile_expression,
)
from policy.rules.expressions.columns import BoolColumn, Column

INT_MAX = 2**63 - 1


def an_expression(source: str, context: Context = Context.VICTIMS) -> Expression:
    return compile_expression(source, context=context, expected=frozenset(ValueType))


def values(source: str, columns: Columns) -> list[Any]:
    return an_expression(source).evaluate(columns).broadcast(columns.size).tolist()


def three_pods(**more: Column) -> Columns:
    """Three pods; labels of the third are empty."""
    return Columns(
        3,
        {
            "victim.priority": IntColumn(np.array([-7, 0, INT_MAX])),
            "victim.terminating": BoolColumn(np.array([True, False, True])),
            "victim.labels": InternedColumn(
                np.array([0, 1, 2]), [{"tier": "gold", "n": "5"}, {"tier": "silver"}, {}]
            ),
            "victim.namespace": InternedColumn(np.array([1, 0, 1]), ["a", "b"]),
            "victim.owner": InternedColumn(np.array([0, 1, 1]), ["Job/x", "Job/y"]),
            "victim.startTime": TimestampColumn(np.array([0, 1_500, -1_500])),
            "preemptor.priority": Scalar(10),
            "now": Scalar(3_600_000),
            **{name.replace("__", "."): column for name, column in more.items()},
        },
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("victim.priority < preemptor.priority", [True, True, False]),
        ("victim.priority / 2", [-3, 0, INT_MAX // 2]),
        ("victim.priority % 4", [-3, 0, 3]),
        ("victim.priority + 1", [-6, 1, None]),
        ("-victim.priority", [7, 0, -INT_MAX]),
        ("victim.priority * victim.priority", [49, 0, None]),
        ("10 / victim.priority", [-1, None, 0]),
        ("10 / victim.priority > 0 || victim.priority == 0", [False, True, False]),
        ("10 / victim.priority > 0 && victim.terminating", [False, False, False]),
        ("victim.priority == 0 ? 0 : 70 / victim.priority", [-10, 0, 0]),
        ("victim.labels['tier'] == 'gold'", [True, False, False]),
        ("victim.labels.tier != 'gold'", [False, True, True]),
        ("has(victim.labels.tier) && victim.labels.tier == 'gold'", [True, False, False]),
        ("'tier' in victim.labels", [True, True, False]),
        ("int(victim.labels['n']) > 4", [True, None, None]),
        ("victim.labels['tier'].matches('^g')", [True, False, False]),
        ("victim.namespace in ['b', 'c']", [True, False, True]),
        ("victim.namespace + '/' + victim.owner", ["b/Job/x", "a/Job/y", "b/Job/y"]),
        ("victim.labels.exists(k, k == 'n')", [True, False, False]),
        ("now - victim.startTime", [3_600_000, 3_598_500, 3_601_500]),
        ("now - victim.startTime >= duration('1h')", [True, False, True]),
        ("int(victim.startTime)", [0, 1, -2]),
        ("(victim.startTime - timestamp(0)).getSeconds()", [0, 1, -1]),
        ("victim.startTime.getHours()", [0, 0, 23]),
        ("victim.startTime.getDayOfWeek()", [4, 4, 3]),
        ("now", [3_600_000] * 3),
    ],
)
def test_values_and_errors(source: str, expected: list[Any]) -> None:
    """CEL's arithmetic, missing keys and absorbed errors, over columns; None is an error."""
    assert values(source, three_pods()) == expected


class Figures:
    """Figures that are frozen in a test; remembers what was asked for."""

    def __init__(self, figures: Mapping[tuple[str, int | None], dict[str, int]]) -> None:
        self.table = figures

    def figures(self, function: str, window_seconds: int | None) -> dict[str, int]:
        return self.table[function, window_seconds]


def test_history_reads_frozen_figures() -> None:
    """`history` functions read the figures of their window; an unknown owner has the default."""
    history = Figures(
        {("preemptedCount", 3600): {"Job/x": 4}, ("secondsSinceLastPreempted", None): {"Job/y": 9}}
    )
    columns = Columns(3, three_pods().values, history)
    found = [
        values(source, columns)
        for source in (
            "history.preemptedCount(victim.owner, duration('1h'))",
            "history.secondsSinceLastPreempted(victim.owner)",
            "[victim.owner].exists(o, history.preemptedCount(o, duration('60m')) > 3)",
        )
    ]
    assert found == [[4, 0, 0], [NEVER, 9, 9], [True, False, False]]


def test_an_expression_names_the_history_that_it_needs() -> None:
    """Functions and windows in seconds are known before any evaluation."""
    expression = an_expression(
        "history.preemptedCount(victim.owner, duration('1h')) < 3"
        " && history.secondsSinceLastPreempted(victim.owner) > 60"
    )
    assert expression.history_needs == {
        ("preemptedCount", 3600),
        ("secondsSinceLastPreempted", None),
    }


def test_variables_that_an_expression_reads_are_listed() -> None:
    """Loop variables of macros are not among the variables."""
    expression = an_expression(
        "victim.labels.all(k, k != preemptor.name) && now > victim.startTime"
    )
    assert expression.variables == ("now", "preemptor.name", "victim.labels", "victim.startTime")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("victim.priority < 3", ()),
        ("victim.labels['a'].matches('x')", ()),
        (
            "victim.name.matches('x')",
            ("`matches` on string, string, once per distinct value of `victim.name`",),
        ),
        (
            "double(victim.priority) > 1.5",
            ("`>` on double, double, once per distinct value of `victim.priority`",),
        ),
        (
            "now - victim.startTime > duration('1us')",
            ("`duration` on string, once per distinct value of `victim.startTime`",),
        ),
    ],
)
def test_row_by_row_evaluation_is_confessed(source: str, expected: tuple[str, ...]) -> None:
    """An expression says which part has no array form, and nothing where all parts have one."""
    expression = an_expression(source)
    assert (expression.vectorised, expression.row_wise_reasons) == (not expected, expected)


def test_a_microsecond_is_not_lost() -> None:
    """A duration finer than a millisecond is compared by the CEL engine, not rounded."""
    columns = three_pods(victim__startTime=TimestampColumn(np.array([3_600_000, 3_599_999, 0])))
    assert values("now - victim.startTime > duration('1us')", columns) == [False, True, True]


def test_constants_are_known_at_load() -> None:
    """An expression without variables carries its value."""
    found = [an_expression(s).constant for s in ("1 + 1 == 2", "1 > 2", "victim.started")]
    assert found == [True, False, None]


def test_strings_sort_by_code_point() -> None:
    """Order keys of strings sort as Python and CEL compare them, equal strings alike."""
    column = InternedColumn(np.array([0, 1, 2, 3, 0]), ["b", "B", "b", "\U0001f600"])
    columns = Columns(5, {"victim.name": column})
    keys = an_expression("victim.name").evaluate(columns).order_keys(errors_as=0)
    assert keys.tolist() == [1, 0, 1, 2, 1]


def test_what_has_no_value_counts_as_it_is_told_to() -> None:
    """`holds` counts an error as true or as false, and everything else as it is."""
    evaluated = an_expression("int(victim.labels['n']) == 7").evaluate(numbered_pods())
    found = [evaluated.holds(4, on_error).tolist() for on_error in OnError]
    assert found == [[True, False, True, True], [True, False, False, False]]


def test_an_error_is_explained_on_demand() -> None:
    """Why one row has no value is told in words of our own, which recorded decisions keep."""
    expression = an_expression("int(victim.labels['n']) == 7")
    found = [expression.error_at(numbered_pods(), row) for row in range(4)]
    assert found == [None, None, "the text is not a number", "the text is not a number"]


def numbered_pods() -> Columns:
    labels = InternedColumn(np.arange(4), [{"n": "7"}, {"n": "8"}, {"n": "x"}, {}])
    return Columns(4, {"victim.labels": labels})


def test_an_instant_before_the_calendar_is_an_error() -> None:
    """Kubernetes' zero time, the first instant of the year 1, has no value in either engine."""
    columns = three_pods(
        victim__startTime=TimestampColumn(np.array([-62_135_596_800_000, 0, 253_402_300_800_000]))
    )
    expression = an_expression("now - victim.startTime > duration('1s') || victim.priority == 0")
    by_columns, by_rows = expression.evaluate(columns), expression.evaluate_rows(columns)
    assert (by_columns.tolist(), by_rows.tolist()) == ([None, True, None], [None, True, None])


CONTEXT_GROUPS = {
    Context.ELIGIBILITY: {"preemptor", "nominated", "cluster", "now"},
    Context.VICTIMS: {"preemptor", "victim", "node", "now"},
    Context.FORBID: {"preemptor", "victim", "node", "now"},
    Context.IMPORTANCE: {"preemptor", "victim", "node", "now"},
    Context.RANKING: {"preemptor", "node", "candidate", "cluster", "now"},
    Context.SCORING: {"preemptor", "node", "now"},
    Context.GROUP_ELIGIBILITY: {"group", "cluster", "now"},
    Context.UNITS: {"group", "unit", "cluster", "now"},
    Context.UNIT_IMPORTANCE: {"group", "unit", "cluster", "now"},
}


@pytest.mark.parametrize("context", Context)
def test_a_place_knows_its_groups_of_variables(context: Context) -> None:
    """Each place of a rule file sees the variables that have a value there, and no other."""
    groups = {name.partition(".")[0] for name, v in VARIABLES.items() if context in v.contexts}
    assert groups == CONTEXT_GROUPS[context]


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_type_checks_where_it_is_allowed(name: str) -> None:
    """A variable compiles with its declared type in its places, and is refused elsewhere."""
    variable = VARIABLES[name]
    found: dict[Context, str] = {}
    for context in Context:
        try:
            found[context] = f"{an_expression(name, context).type}"
        except ExpressionError as exc:
            found[context] = exc.complaints[0].message
    assert found == {
        context: variable.type.value
        if context in variable.contexts
        else f"`{name}` is not available"
        for context in Context
    }


def test_every_variable_is_documented() -> None:
    """No variable is declared without a sentence on what it means."""
    assert [name for name, variable in VARIABLES.items() if not variable.doc] == []


def test_every_complaint_comes_at_once() -> None:
    """A wrong place and a wrong literal in one expression are both reported, with offsets."""
    source = "candidate.victimCount > 1 && now - victim.startTime > duration('1d')"
    with pytest.raises(ExpressionError) as refused:
        compile_expression(source, context=Context.VICTIMS, expected=CONDITION)
    found = [(c.offset, c.length, c.message) for c in refused.value.complaints]
    assert found == [
        (0, 21, "`candidate.victimCount` is not available"),
        (63, 4, "`1d` is not a duration"),
    ]


def test_an_expression_travels_between_processes() -> None:
    """A pickled expression is compiled again from its text."""
    expression = an_expression("victim.priority < preemptor.priority")
    copy = pickle.loads(pickle.dumps(expression))
    assert (copy, copy.evaluate(three_pods()).tolist()) == (expression, [True, True, False])
