"""A decision made a second time, without anything that was kept from the decisions before it.

A scheduler follows its cluster change by change: orders, sums, potential victims and running totals
are kept and patched. Here the state is put together again from its objects, and the decision on it
must be the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision, document_of
from policy.extenders.recorded import RecordedExtenders
from policy.groups.decide import decide_group
from policy.preemption.decide import decide
from policy.rules.ruleset import RuleSet

_AnyDecision = TypeVar("_AnyDecision", Decision, GroupDecision)


class DecisionsDiffer(Exception):  # told to people in the words of its message
    """Two decisions on one state are not the same: what was kept is wrong."""

    help: Final = (
        "this is a defect of the program, and nothing was recorded of it; please report it"
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
        offer=decision.trace.offer,
    )
    _require_equal(decision, again, subject=f"the decision for `{decision.preemptor}`")


def look_again_at_group(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> None:
    """Run the cycle of a pod group again, as `look_again` does. Raises DecisionsDiffer."""
    again = decide_group(snapshot.made_anew(), rules, decision.group, seed=decision.seed)
    _require_equal(decision, again, subject=f"the cycle of pod group `{decision.group}`")


def _require_equal(one: _AnyDecision, again: _AnyDecision, *, subject: str) -> None:
    if again.canonical == one.canonical:
        return
    apart = ", ".join(f"`{part}`" for part in _apart(document_of(one), document_of(again)))
    raise DecisionsDiffer(
        f"{subject} is another one on the same state put together anew: {apart} differ"
    )


def _apart(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for name, value in one.items():
        if name == "trace":
            yield from (f"trace.{part}" for part in _apart(value, other[name]))
        elif value != other[name]:
            yield name
