"""Who may not be a victim, and which rule says so: for cases beside rules, and for explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policy.cluster.snapshot import Snapshot
from policy.filters.base import Incoming
from policy.preemption.columns import FrozenHistory, pod_variables, uses_of
from policy.preemption.importance import Importance
from policy.preemption.victims import Allowed, allowed_victims, budget_violations
from policy.preemption.whole_groups import UNITS, kept_because, kept_together
from policy.rules.expressions import BoolColumn, Columns
from policy.rules.ruleset import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why one pod stays where it is."""

    section: str  #: `victims.eligible`, `victims.forbid` or `groups.units`
    rule: str  #: id; "" where no rule allows the pod
    reason: str


def denials(snapshot: Snapshot, rules: RuleSet, preemptor: str) -> Mapping[str, Denial]:
    """The pods on nodes that may not leave for `preemptor`, by namespace/name.

    Raises KeyError for a pod that the snapshot does not have.
    """
    allowed, columns = judged(snapshot, rules, preemptor)
    victims = rules.victims
    found: dict[str, Denial] = {}
    kept = kept_together(_incoming(snapshot, rules, preemptor), rules, allowed)
    for i in np.flatnonzero(kept).tolist():
        found[snapshot.keys[i]] = Denial(section=UNITS, rule="", reason=kept_because(rules))
    for i in np.flatnonzero((snapshot.node >= 0) & ~allowed.pods).tolist():
        decided = int(allowed.rule[i])
        rule = victims.eligible[decided] if decided >= 0 else None
        found[snapshot.keys[i]] = Denial(
            section="victims.eligible",
            rule=rule.id if rule else "",
            reason=rule.reason if rule else "",
        )
    rows = np.flatnonzero(allowed.pods & ~kept)
    columns = columns.take(rows)
    for rule in victims.forbid:
        held = np.ones(rows.size, dtype=np.bool_)
        if rule.when is not None:
            held = rule.when.evaluate(columns).holds(rows.size, rule.on_error)
        for i in rows[held].tolist():
            denial = Denial(section="victims.forbid", rule=rule.id, reason=rule.reason)
            found.setdefault(snapshot.keys[i], denial)
    return found


def judged(snapshot: Snapshot, rules: RuleSet, preemptor: str) -> tuple[Allowed, Columns]:
    """Which pods may be victims of `preemptor`, and the variables of rules, one row per pod.

    Budgets are counted on each node as if it were looked at. Raises KeyError for a pod that the
    snapshot does not have.
    """
    incoming = _incoming(snapshot, rules, preemptor)
    history = FrozenHistory(snapshot.history or {})
    variables = pod_variables(incoming, uses_of(rules))
    victims = rules.victims
    allowed = allowed_victims(victims.eligible, snapshot, variables, history)
    importance = Importance(snapshot, victims.importance, variables, history)

    def violating() -> BoolColumn:
        order = importance.order()
        return BoolColumn(budget_violations(victims.budgets, snapshot, order, allowed.pods))

    also = variables.also({"victim.pdbViolating": violating})
    return allowed, Columns(len(snapshot.pods), also, history)


def _incoming(snapshot: Snapshot, rules: RuleSet, preemptor: str) -> Incoming:
    """Raises KeyError for a pod that the snapshot does not have."""
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise KeyError(preemptor)
    return Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row, messages=rules.messages)
