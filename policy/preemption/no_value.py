"""What the trace says of conditions and keys without a value: how many pods, and why the first.

What such a value means is `policy.rules.expressions.semantics`'; here it is only counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Bools
from policy.decision.model import NO_VALUE, RuleFired
from policy.preemption.context import DecisionContext
from policy.preemption.victims import PotentialVictims
from policy.rules.expressions import BoolColumn, Columns, Expression


def row_of(*, section: str, rule: str, why: str, inputs: dict[str, str | int | bool]) -> RuleFired:
    """One rule or criterion that had no value."""
    return RuleFired(section=section, rule=rule, verdict=NO_VALUE, reason=why, inputs=inputs)


def conditions_without_value(
    context: DecisionContext, nodes: Rows, potential: PotentialVictims
) -> Iterator[RuleFired]:
    """Rules about victims and keys of their order without a value for pods on the nodes.

    nodes: those that were examined; potential: the potential victims on them.
    """
    snapshot, rules = context.snapshot, context.rules.victims
    columns = Columns(len(snapshot.pods), context.variables, context.history)
    for i, pods in context.allowed.without_value:
        rule = rules.eligible[i]
        assert rule.when is not None
        rows = np.flatnonzero(pods)
        rows = rows[np.isin(snapshot.node[rows], nodes)]
        inputs = {"onError": rule.on_error.value}
        yield from _of_pods(snapshot, rule.when, columns, rows, "eligible", rule.id, inputs)
    if potential.without_value:
        violating = context.violating
        also = context.variables.also({"victim.pdbViolating": lambda: BoolColumn(violating)})
        judged = Columns(len(snapshot.pods), also, context.history)
        for i, rows in potential.without_value:
            rule = rules.forbid[i]
            assert rule.when is not None
            inputs = {"onError": rule.on_error.value}
            yield from _of_pods(snapshot, rule.when, judged, rows, "forbid", rule.id, inputs)
    for key in rules.importance:
        if key.expression.total:
            continue
        found = key.expression.evaluate(columns.take(potential.rows.astype(np.intp)))
        if found.errors is not None:
            rows = potential.rows[np.broadcast_to(found.errors, potential.rows.shape)]
            yield from _of_pods(snapshot, key.expression, columns, rows, "importance", key.id, {})


def _of_pods(
    snapshot: Snapshot,
    expression: Expression,
    columns: Columns,
    rows: Rows,
    section: str,
    rule: str,
    inputs: dict[str, str],
) -> Iterator[RuleFired]:
    """The row about these pods, none where there are none; the first one by name tells why."""
    if not rows.size:
        return
    first = int(rows[np.argmin(snapshot.rank[rows])])
    why = expression.error_at(columns, first)
    assert why is not None
    yield row_of(
        section=f"victims.{section}",
        rule=rule,
        why=why,
        inputs={"pods": int(rows.size), "first": snapshot.keys[first], **inputs},
    )


def criterion_without_value(
    criterion: str, expression: Expression, columns: Columns, errors: Bools, names: list[str]
) -> RuleFired:
    """errors: (candidates,) of which some are true; names: of the candidates' nodes, sorted."""
    first = int(np.flatnonzero(errors)[0])
    why = expression.error_at(columns, first)
    assert why is not None
    return row_of(
        section="ranking",
        rule=criterion,
        why=why,
        inputs={"nodes": int(errors.sum()), "first": names[first]},
    )
