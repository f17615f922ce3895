"""May the pod preempt at all? The first eligibility rule whose condition holds decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, PREEMPTED, PRIORITY, TERMINATING, Bools
from policy.decision.model import RuleFired
from policy.preemption.columns import Provider, scalar
from policy.preemption.context import Context
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import row_of
from policy.rules.expressions import Columns, Expression, Scalar
from policy.rules.ruleset import Rule, Verdict


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Eligibility:
    eligible: bool
    fired: RuleFired
    without_value: tuple[RuleFired, ...]  #: rules up to that one whose condition had no value


def eligibility(context: Context, filtered: Filtered) -> Eligibility:
    """The first rule whose condition holds, or has no value and says that it holds then."""
    variables = context.variables.also(_nominated_variables(context, filtered))
    columns = Columns(1, variables, context.history)
    return first_that_holds(context.rules.eligibility, columns, section="eligibility")


def first_that_holds(rules: Sequence[Rule], columns: Columns, *, section: str) -> Eligibility:
    """What the first of the rules says that holds; columns: variables of one row."""
    without_value: list[RuleFired] = []
    for rule in rules:
        holds = True
        if rule.when is not None:
            found = rule.when.evaluate(columns)
            holds = bool(found.holds(1, rule.on_error)[0])
            if found.errors is not None and found.errors[0]:
                without_value.append(_without_value(section, rule, rule.when, columns))
        if holds:
            return Eligibility(
                eligible=rule.verdict is Verdict.ALLOW,
                fired=_fired(section, rule, columns),
                without_value=tuple(without_value),
            )
    raise AssertionError("a rule set ends its eligibility with a rule that always holds")


def _nominated_variables(context: Context, filtered: Filtered) -> dict[str, Provider]:
    """nominated.* and cluster.failedNodeCount."""
    snapshot = context.snapshot
    name = context.incoming.pod.status.nominated_node_name
    node = snapshot.nodes.index.get(name, NOWHERE) if name else NOWHERE

    @cache
    def terminating() -> Rows:
        if node == NOWHERE:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero((snapshot.node == node) & snapshot.column(TERMINATING))

    def lower() -> Bools:
        return np.asarray(snapshot.column(PRIORITY)[terminating()] < context.incoming.priority)

    def by_preemption() -> Bools:
        return np.asarray(snapshot.column(PREEMPTED)[terminating()])

    def preempted() -> int:
        # Who may be a victim is a question about the whole cluster: not asked for an empty node.
        rows = terminating()
        return int((by_preemption() & context.allowed.pods[rows]).sum()) if rows.size else 0

    def status() -> str:
        if node == NOWHERE or name not in filtered.statuses:
            return ""
        return filtered.statuses[name].code.label

    values: dict[str, Callable[[], str | int | bool]] = {
        "nominated.node": lambda: name,
        "nominated.exists": lambda: node != NOWHERE,
        "nominated.status": status,
        "nominated.lowerPriorityTerminating": lambda: int(lower().sum()),
        "nominated.preemptedPodsTerminating": preempted,
        "nominated.preemptedLowerPriorityTerminating": lambda: int(
            (by_preemption() & lower()).sum()
        ),
        "cluster.failedNodeCount": lambda: filtered.failed_count,
    }
    return {key: scalar(of) for key, of in values.items()}


def _without_value(section: str, rule: Rule, when: Expression, columns: Columns) -> RuleFired:
    why = when.error_at(columns, 0)
    assert why is not None
    inputs: dict[str, str | int | bool] = {"onError": rule.on_error.value}
    return row_of(section=section, rule=rule.id, why=why, inputs=inputs)


def _fired(section: str, rule: Rule, columns: Columns) -> RuleFired:
    """The rule with the values of the plain variables that its condition reads."""
    inputs: dict[str, str | int | bool] = {}
    for name in rule.when.variables if rule.when is not None else ():
        column = columns.get(name)
        value = column.value if isinstance(column, Scalar) else None
        if isinstance(value, str | int | bool):
            inputs[name] = value
    return RuleFired(
        section=section,
        rule=rule.id,
        verdict=rule.verdict.value,
        reason=rule.reason,
        inputs=inputs,
    )
