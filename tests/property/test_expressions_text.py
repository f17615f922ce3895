"""Law: any text is an expression or an `ExpressionError` whose complaints lie within the text."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from policy.rules.expressions import (
    Complaint,
    Context,
    ExpressionError,
    ValueType,
    compile_expression,
)

FRAGMENTS = [
    *("victim.", "priority", "labels", "['tier']", "preemptor.key", "now", "candidate.node", "int"),
    *("history.preemptedCount(victim.owner, duration('1h'))", "duration('", "timestamp(", "1d')"),
    *("<", "==", "&&", "||", "!", "?", ":", "+", "-", "in", "(", ")", "[", "]", "{", "}", ",", "."),
    *(".exists(x, x)", "has(", "size(", "type(", "dyn(", "true", "null", "1", "1.5", "2u", "b'a'"),
    *(
        " ",
        "\n",
        "\t",
        "#",
        "//",
        "'",
        '"',
        "\\",
        "`",
        "\x00",
        "é",
        "\U0001f600",
        "\ud7ff",
        "=",
        "and",
    ),
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join)


def well_formed(complaint: Complaint, text: str) -> bool:
    one_line = bool(complaint.message) and "\n" not in complaint.message
    return one_line and 0 <= complaint.offset <= len(text) and complaint.length >= 1


@settings(max_examples=1500, deadline=None)
@given(text=texts, context=st.sampled_from(Context))
@example(text="[int].exists(t, t == type(victim.priority))", context=Context.VICTIMS)
@example(text="type(victim.priority) == int", context=Context.VICTIMS)
@example(text="google.protobuf.Timestamp{seconds: 3} < now", context=Context.VICTIMS)
def test_text_compiles_or_is_explained(text: str, context: Context) -> None:
    """No text makes the checker fail in another way, and every complaint has a place in it."""
    bad: list[Complaint] = []
    try:
        compile_expression(text, context=context, expected=frozenset(ValueType))
    except ExpressionError as exc:
        bad = [complaint for complaint in exc.complaints if not well_formed(complaint, text)]
        bad += [] if exc.complaints else [Complaint(offset=0, length=0, message="silent")]
    assert bad == []
