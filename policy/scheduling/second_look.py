"""A decision made a second time, without anything that was kept from the decisions before it.

A scheduler follows its cluster change by change: orders, sums, potential victims and running totals
are kept and patched. Here the state is put together again from its objects, and the decision on it
must be the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, document_of
from policy.extenders.recorded import RecordedExtenders
from policy.preemption.decide import decide
from policy.rules.ruleset import RuleSet


class DecisionsDiffer(Exception):  # told to people in the words of its message
    """Two decisions on one state are not the same: what was kept is wrong."""

    help: Final = (
        "this is a defect of the program, and nothing was recorded for this pod; please report it"
        " with a copy of the database"
    )


def look_again(snapshot: Snapshot, rules: RuleSet, decision: Decision) -> None:
    """Make the decision, which was made on the snapshot, again. Raises DecisionsDiffer.

    It takes as long as to load the cluster. Extenders are not queried a second time.
    """
    calls = decision.trace.extender_calls
    again = decide(
        snapshot.made_anew(),
        rules,
        decision.preemptor,
        seed=decision.seed,
        evaluate_all=decision.evaluate_all,
        extenders=RecordedExtenders(calls) if rules.extenders else None,
    )
    if again.canonical == decision.canonical:
        return
    apart = ", ".join(f"`{part}`" for part in _apart(document_of(decision), document_of(again)))
    raise DecisionsDiffer(
        f"the decision for `{decision.preemptor}` is another one on the same state put together"
        f" anew: {apart} differ"
    )


def _apart(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for name, value in one.items():
        if name == "trace":
            yield from (f"trace.{part}" for part in _apart(value, other[name]))
        elif value != other[name]:
            yield name
