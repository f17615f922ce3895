"""What the rule set says of a group and of units: may it preempt, what may leave, what stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows, Snapshot
from policy.decision.model import RuleFired
from policy.groups.members import Muster
from policy.groups.units import Units
from policy.groups.variables import UnitVariables, group_variables
from policy.preemption.columns import FrozenHistory
from policy.preemption.eligibility import FirstRule, first_that_holds
from policy.preemption.no_value import row_of
from policy.rules.expressions import Columns, Expression
from policy.rules.group_rules import GroupRules
from policy.rules.ruleset import ImportanceKey, Verdict

ELIGIBILITY = "groups.eligibility"
ELIGIBLE = "groups.victims.eligible"
IMPORTANCE = "groups.victims.importance"


def eligibility(snapshot: Snapshot, found: Muster, rules: GroupRules) -> FirstRule:
    """May the group preempt? The first rule whose condition holds decides."""
    history = FrozenHistory(snapshot.history or {})
    columns = Columns(1, group_variables(snapshot, found), history)
    return first_that_holds(rules.eligibility, columns, section=ELIGIBILITY)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PotentialUnits:
    """The units that the rules allow, and why not the others."""

    units: Rows  #: the most important first
    fired: tuple[RuleFired, ...]


def potential_units(units: Units, found: Muster, rules: GroupRules) -> PotentialUnits:
    """The units that may be preempted, in order of importance; equals in the order found."""
    snapshot = units.snapshot
    variables = UnitVariables(units, found).beside(group_variables(snapshot, found))
    columns = Columns(len(units), variables, FrozenHistory(snapshot.history or {}))
    allowed, fired = _allowed(units, rules, columns)
    keys = []
    for key in rules.victims.importance:
        values, errors = _key(key, columns, allowed)
        keys.append(values)
        if errors.any():
            fired.append(_unknown(units, key.expression, columns, allowed[errors], key.id))
    order = np.lexsort((np.arange(allowed.size), *reversed(keys)))
    return PotentialUnits(units=allowed[order], fired=tuple(fired))


def _allowed(units: Units, rules: GroupRules, columns: Columns) -> tuple[Rows, list[RuleFired]]:
    """The units that the first rule which holds allows; none denies."""
    size = len(units)
    undecided = np.ones(size, dtype=np.bool_)
    allowed = np.zeros(size, dtype=np.bool_)
    fired = []
    for rule in rules.victims.eligible:
        matched = undecided
        if rule.when is not None:
            found = rule.when.evaluate(columns)
            matched = undecided & found.holds(size, rule.on_error)
            if found.errors is not None:
                unknown = np.flatnonzero(undecided & found.errors)
                if unknown.size:
                    fired.append(_unknown(units, rule.when, columns, unknown, rule.id))
        undecided = undecided & ~matched
        if rule.verdict is Verdict.ALLOW:
            allowed |= matched
        if matched.any():
            fired.append(_counted(rule.id, rule.verdict.value, rule.reason, int(matched.sum())))
    if undecided.any():
        fired.append(_counted("", Verdict.DENY.value, "", int(undecided.sum())))
    return np.flatnonzero(allowed), fired


def _counted(rule: str, verdict: str, reason: str, units: int) -> RuleFired:
    return RuleFired(
        section=ELIGIBLE, rule=rule, verdict=verdict, reason=reason, inputs={"units": units}
    )


def _key(
    key: ImportanceKey, columns: Columns, units: Rows
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    found = key.expression.evaluate(columns.take(units.astype(np.intp)))
    # Fails closed: a unit without a value is kept as if it were the most important.
    best = np.iinfo(np.int64).max if key.descending else np.iinfo(np.int64).min
    values = np.broadcast_to(found.order_keys(errors_as=best), (units.size,))
    none = np.zeros(units.size, dtype=np.bool_)
    errors = none if found.errors is None else np.broadcast_to(found.errors, (units.size,))
    # Bitwise not reverses the order without overflow at the smallest integer.
    return ~values if key.descending else values, errors


def _unknown(
    units: Units, expression: Expression, columns: Columns, at: Rows, rule: str
) -> RuleFired:
    """A condition or key without a value for some units; the first found tells why."""
    first = int(at[0])
    why = expression.error_at(columns, first)
    assert why is not None
    pod = units.snapshot.keys[int(units.first[first])]
    inputs: dict[str, str | int | bool] = {"units": int(at.size), "first": pod}
    return row_of(section=ELIGIBLE, rule=rule, why=why, inputs=inputs)
