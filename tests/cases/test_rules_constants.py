"""What loading refuses: constants without a value, and expressions that cost too much."""

from __future__ import annotations

import pytest

from policy.rules.expressions import CONDITION, Context, Expression, ExpressionError
from policy.rules.expressions import compile_expression as compiled
from policy.rules.expressions.cost import MAX_COST, MAX_STEPS, estimate
from policy.rules.expressions.engine import environment
from policy.rules.expressions.syntax import decode


def a_condition(source: str) -> Expression:
    return compiled(source, context=Context.VICTIMS, expected=CONDITION)


def refused(source: str) -> list[tuple[str, str]]:
    """What is pointed at, and what is said of it."""
    with pytest.raises(ExpressionError) as caught:
        a_condition(source)
    return [(source[c.offset :][: c.length], c.message) for c in caught.value.complaints]


ZONE = "write a name like `Europe/Berlin`, or an offset like `+01:00`"


@pytest.mark.parametrize(
    ("source", "at", "message"),
    [
        ("victim.name.matches('[')", "'['", "`[` is not a regular expression: missing ]: ["),
        ("matches(victim.name, '(')", "'('", "`(` is not a regular expression: missing ): ("),
        ("'a'.matches('[')", "'['", "`[` is not a regular expression: missing ]: ["),
        ("now.getHours('Mars/X') > 1", "'Mars/X'", "`Mars/X` is not a time zone"),
        ("now.getDayOfWeek('x') > 1", "'x'", "`x` is not a time zone"),
        ("duration('5x') > duration('1s')", "'5x'", "`5x` is not a duration"),
        ("timestamp('monday') < now", "'monday'", "`monday` is not a timestamp"),
        ("int('x') > 1", "'x'", "`x` is not a whole number"),
        ("uint('-1') > 1u", "'-1'", "`-1` is not a whole number of 0 or more"),
        ("double('x') > 1.0", "'x'", "`x` is not a number"),
        ("bool('maybe')", "'maybe'", "`maybe` is not `true` or `false`"),
        ("victim.priority / 0 > 1", "0", "division by zero"),
        ("victim.priority % (5 - 5) > 1", "5 - 5", "division by zero"),
        ("true || 1 / 0 > 1", "0", "division by zero"),
        ("[1, 2].map(x, x / 0).size() > 1", "0", "division by zero"),
        ("[1, 2][2] > 1", "2", "index 2 is outside the list of 2 entries"),
        ("[victim.priority][1] > 1", "1", "index 1 is outside the list of 1 entry"),
        ("{'a': victim.priority}['b'] > 1", "'b'", "the map does not have the key `b`"),
        ("{'a': 1, 'a': 2}.size() > 1", "'a'", "the map has the key `a` twice"),
        (
            "9223372036854775807 + 1 > victim.priority",
            "9223372036854775807 + 1",
            "this part has no value: the number is out of range",
        ),
        (
            "int(1e30) > victim.priority",
            "int(1e30)",
            "this part has no value: the number is out of range",
        ),
    ],
)
def test_a_constant_without_a_value_is_refused(source: str, at: str, message: str) -> None:
    """Whatever the values are, the part has none: it is an error at load, with its place."""
    assert refused(source) == [(at, message)]


@pytest.mark.parametrize(
    "source",
    [
        "victim.name.matches('^web-[0-9]+$')",
        "now.getHours('Europe/Berlin') > 1",
        "now.getHours('+01:00') > 1",
        "victim.priority / 2 > 1",
        "[victim.priority, 2][1] > 1",
        "{'a': victim.priority}['a'] > 1",
        "{victim.name: 1}['b'] > 1",
        "victim.name.matches(victim.namespace)",
        "int(victim.labels['n']) > 1",
    ],
)
def test_what_may_have_a_value_is_accepted(source: str) -> None:
    """Arguments that vary, and constants that are sound, are left to the evaluation."""
    assert a_condition(source).source == source


# -- cost ----------------------------------------------------------------------------------------

THREE_LOOPS = "victim.labels.all(a, victim.labels.all(b, victim.labels.all(c, a != b || b != c)))"
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
CONSTANT_LOOPS = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, true)))))"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            THREE_LOOPS,
            "the loops of the expression make about 266,304 passes, more than",
        ),
        (CONSTANT_LOOPS, "the loops of the expression make about 111,110 passes, more than the"),
        (
            "victim.annotations.all(a, victim.annotations.all(b, "
            "victim.annotations[a].contains(victim.annotations[b])))",
            "the expression costs about 43,",
        ),
    ],
)
def test_a_dear_expression_is_refused_with_its_estimate(source: str, message: str) -> None:
    """Nested loops multiply: what would take too long for one pod never decides for thousands."""
    [(_, said)] = refused(source)
    assert said.startswith(message)


def test_two_loops_over_labels_are_within_the_budget() -> None:
    """What people write is far from the limits."""
    source = "victim.labels.all(a, victim.labels.all(b, a == b || victim.labels[a] != ''))"
    found = estimate(decode(environment().compile(source).serialize()).root)
    assert a_condition(source).source == source
    assert (found.steps, found.cost < MAX_COST, found.steps < MAX_STEPS) == (4160, True, True)


# -- where a value may be missing ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "likely"),
    [
        ("victim.labels['a'] == 'b'", []),
        ("int(victim.labels['a']) > 1", ["`int(...)` of text"]),
        ("victim.priority / victim.pdbMatches > 1", ["a division by what may be zero"]),
        ("victim.priority % victim.pdbMatches > 1", ["a remainder by what may be zero"]),
        ("victim.priority / 7 + 1 > 1", []),
        ("victim.name.matches(victim.namespace)", ["a pattern that is made from values"]),
        ("now.getHours(victim.namespace) > 1", ["a time zone that is made from values"]),
        ("[1, 2][victim.pdbMatches] > 1", ["an index of a list that may not be there"]),
        ("{'a': 1}[victim.name] > 1", ["a key of a map that may not be there"]),
        ("dyn(victim.priority) == 'x'", ["an operator on values of mixed types"]),
        ("duration(victim.labels['d']) > duration('1s')", ["`duration(...)` of text"]),
        ("victim.labels.all(k, victim.labels[k] != '')", []),
    ],
)
def test_where_ordinary_values_leave_no_value(source: str, likely: list[str]) -> None:
    """Lint names the operations that ordinary values bring to fail, and no others."""
    assert [hazard.what for hazard in a_condition(source).hazards if hazard.likely] == likely


@pytest.mark.parametrize(
    ("source", "total"),
    [("victim.priority < 3", True), ("victim.priority + 1 < 3", False), ("victim.started", True)],
)
def test_an_expression_knows_that_it_cannot_fail(source: str, total: bool) -> None:
    """Only then is nothing looked for when a decision is traced."""
    assert a_condition(source).total is total
