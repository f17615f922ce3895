"""Law: what is said about conditions without evaluating them is true of every value."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.rules.expressions import (
    CONDITION,
    BoolColumn,
    Columns,
    Context,
    Expression,
    IntColumn,
    InternedColumn,
    OnError,
    compile_expression,
)
from policy.rules.expressions.implication import follows, impossible

NUMBERS = range(-1, 6)
WORDS = ["a", "b", "c"]
LABELS = [{}, {"t": "a"}, {"t": "b"}]
ROWS = list(itertools.product(NUMBERS, WORDS, (False, True), range(len(LABELS))))

numbers = st.sampled_from([0, 1, 3, 4])
texts = st.sampled_from(["'a'", "'b'"])
comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
atoms = st.one_of(
    st.builds("victim.priority {} {}".format, comparisons, numbers),
    st.builds("{} {} victim.priority".format, numbers, comparisons),
    st.builds("victim.namespace == {}".format, texts),
    st.builds("victim.namespace in [{}, {}]".format, texts, texts),
    st.builds("victim.labels['t'] == {}".format, texts),
    st.sampled_from(["victim.started", "!victim.started", "true", "false"]),
)
negated = st.builds("!({})".format, st.lists(atoms, min_size=1, max_size=2).map(" || ".join))
together = st.lists(st.one_of(atoms, negated), min_size=1, max_size=3).map(" && ".join)
conditions = st.lists(together, min_size=1, max_size=2).map(" || ".join)


def compiled(source: str) -> Expression:
    return compile_expression(source, context=Context.VICTIMS, expected=CONDITION)


def holding(condition: Expression) -> np.ndarray:
    """Whether the condition holds, for every combination of values."""
    numbers, words, started, labels = zip(*ROWS, strict=True)
    columns = Columns(
        len(ROWS),
        {
            "victim.priority": IntColumn(np.array(numbers)),
            "victim.namespace": InternedColumn(np.array([WORDS.index(w) for w in words]), WORDS),
            "victim.started": BoolColumn(np.array(started)),
            "victim.labels": InternedColumn(np.array(labels), LABELS),
        },
    )
    return condition.evaluate(columns).holds(len(ROWS), OnError.SKIP)


@settings(max_examples=1000, deadline=None)
@given(later=conditions, earlier=conditions)
def test_what_follows_holds_wherever_the_other_does(later: str, earlier: str) -> None:
    """No value makes the later one hold and the earlier one not, or an impossible one hold."""
    one, other = compiled(later), compiled(earlier)
    if follows(one, other):
        assert not (holding(one) & ~holding(other)).any()
    if impossible(one):
        assert not holding(one).any()


@pytest.mark.parametrize(
    ("later", "earlier", "expected"),
    [
        ("victim.priority < 3", "victim.priority < 4", True),
        ("victim.priority < 4", "victim.priority < 3", False),
        ("victim.priority <= 3", "4 > victim.priority", True),
        ("victim.priority == 3", "victim.priority >= 3", True),
        ("victim.priority == 3 && victim.started", "victim.started", True),
        ("victim.started", "victim.started && victim.priority < 3", False),
        ("victim.namespace == 'a'", "victim.namespace in ['a', 'b']", True),
        ("victim.namespace in ['a', 'b']", "victim.namespace == 'a'", False),
        ("victim.started", "victim.started || victim.priority < 3", True),
        ("victim.priority < 1 || victim.priority == 2", "victim.priority < 3", True),
        # An alternative that always holds follows from anything.
        ("victim.namespace == 'c'", "true || victim.priority < 3", True),
        ("victim.labels['t'] == 'a'", "victim.labels['u'] == 'a'", False),
        ("victim.labels['t'] == 'a'", "victim.labels.t == 'a'", True),
        ("victim.priority < victim.cpuMilli", "victim.cpuMilli > victim.priority", True),
        ("!(victim.priority >= victim.cpuMilli)", "victim.priority < victim.cpuMilli", True),
        ("!(victim.priority > 3 || !victim.started)", "victim.started", True),
        ("victim.priority < 3", "!(victim.priority >= 3 && victim.started)", True),
        ("!(victim.namespace == 'a')", "victim.namespace != 'a'", True),
    ],
)
def test_what_is_seen_to_follow(later: str, earlier: str, expected: bool) -> None:
    """Narrower ranges and sets, more conditions, fewer alternatives."""
    assert follows(compiled(later), compiled(earlier)) is expected
