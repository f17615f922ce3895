"""What `policy replay` and `policy batch replay` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from policy.audit.inputs import Replayed, ReplayVerdict, document
from policy.cli import output
from policy.cli.exits import Exit

_COLUMNS: Final = ("verdict", "first_difference", "recorded", "replayed", "missing")


def printed(
    results: Iterator[Replayed[Any]],
    total: int,
    *,
    noun: str,
    shown: Sequence[str],
    named: bool,
    form: str,
) -> int:
    """Print what differs or cannot be replayed, and all that was named; give the exit status.

    noun: `decision` or `session`; shown: what says which, in front of the table's other columns.
    """
    counts: Counter[str] = Counter()
    told: list[Replayed[Any]] = []
    with output.progress("replaying") as advance:
        for number, result in enumerate(results, start=1):
            counts[result.verdict.value] += 1
            advance(number, total)
            if named or result.verdict is not ReplayVerdict.EQUAL:
                told.append(result)
    told.sort(key=lambda result: result.row.id)
    if told or form != "table":
        lines = [_line(result, shown) for result in told]
        output.rows(lines, form, columns=(*shown, *_COLUMNS), right=("id",))
    for result in told:
        if result.detail:
            output.say(f"{noun} {result.row.id}: {result.detail}")
    output.say(
        f"{output.number(counts.total(), noun)} replayed: {counts['equal']} equal, "
        f"{counts['different']} different, {counts['incomplete']} incomplete"
    )
    if counts["different"]:
        return Exit.DIFFERS
    return Exit.ERROR if counts["incomplete"] else Exit.OK


def _line(result: Replayed[Any], shown: Sequence[str]) -> dict[str, Any]:
    return {
        "id": result.row.id,
        "cluster": result.row.cluster,
        **{name: getattr(result.row, name) for name in shown},
        **document(result),
    }
