"""May the pod preempt at all? The first eligibility rule whose condition holds decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np

from policy.cluster import times
from policy.cluster.leaving import leaving_since_ms
from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, PREEMPTED, PRIORITY, TERMINATING
from policy.decision.model import LeavingPod, OfferedNode, RuleFired
from policy.extenders.protocol import uid_of
from policy.preemption.context import DecisionContext
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import row_of
from policy.rules.expressions import Columns, Expression, Scalar
from policy.rules.ruleset import Rule, Verdict


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Eligibility:
    eligible: bool
    fired: RuleFired
    waits_for: tuple[LeavingPod, ...]  #: pods because of whose leaving the pod may not preempt
    without_value: tuple[RuleFired, ...]  #: rules up to that one whose condition had no value


def eligibility(
    context: DecisionContext, filtered: Filtered, offer: Sequence[OfferedNode] = ()
) -> Eligibility:
    """The first rule whose condition holds, or has no value and says that it holds then.

    offer: the candidates that a scheduler found, where it did.
    """
    leaving = _leaving_sets(context, offer)
    variables = context.variables.with_source(
        (_NOMINATED, _Nominated(context=context, filtered=filtered, leaving=leaving))
    )
    columns = Columns(1, variables, context.history)
    first = first_that_holds(context.rules.eligibility, columns, section="eligibility")
    return Eligibility(
        eligible=first.allows,
        waits_for=() if first.allows else _waits_for(context, first.rule, leaving),
        fired=first.fired,
        without_value=first.without_value,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FirstRule:
    """The first rule of a list that holds."""

    rule: Rule
    fired: RuleFired
    without_value: tuple[RuleFired, ...]  #: rules up to that one whose condition had no value

    @property
    def allows(self) -> bool:
        return self.rule.verdict is Verdict.ALLOW


def first_that_holds(rules: Sequence[Rule], columns: Columns, *, section: str) -> FirstRule:
    """The first of the rules that holds; columns: variables of one row."""
    without_value: list[RuleFired] = []
    for rule in rules:
        holds = True
        if rule.when is not None:
            found = rule.when.evaluate(columns)
            holds = bool(found.holds(1, rule.on_error)[0])
            if found.errors is not None and found.errors[0]:
                without_value.append(_without_value(section, rule, rule.when, columns))
        if holds:
            return FirstRule(
                rule=rule,
                fired=_fired(section, rule, columns),
                without_value=tuple(without_value),
            )
    raise AssertionError("a rule set ends its eligibility with a rule that always holds")


_NO_PODS: Final = np.zeros(0, dtype=np.int64)
_NONE_LEAVING: Final[Mapping[str, Callable[[], Rows]]] = dict.fromkeys(
    (
        "nominated.lowerPriorityTerminating",
        "nominated.preemptedPodsTerminating",
        "nominated.preemptedLowerPriorityTerminating",
    ),
    lambda: _NO_PODS,
)


def _leaving_sets(
    context: DecisionContext, offer: Sequence[OfferedNode]
) -> Mapping[str, Callable[[], Rows]]:
    """Terminating pods on the nominated node, by the variable that counts them.

    Without those that a scheduler preempted by the state, and offers there as victims: no scheduler
    asks for a pod while such pods leave its node, so it was not carried out that they leave.
    """
    snapshot = context.snapshot
    node = context.nominated
    if node == NOWHERE:
        return _NONE_LEAVING

    @cache
    def terminating() -> Rows:
        rows = snapshot.column(TERMINATING).nonzero()[0]  # of many pods, a few
        here = np.asarray(rows[snapshot.node[rows] == node])
        return _not_offered(context, here, offer) if here.size and offer else here

    def lower(rows: Rows) -> Rows:
        return np.asarray(rows[snapshot.column(PRIORITY)[rows] < context.incoming.priority])

    def by_preemption() -> Rows:
        rows = terminating()
        return np.asarray(rows[snapshot.column(PREEMPTED)[rows]])

    def preempted() -> Rows:
        # Who may be a victim is a question about the whole cluster: not asked for an empty node.
        rows = by_preemption()
        return np.asarray(rows[context.allowed.pods[rows]]) if rows.size else rows

    return {
        "nominated.lowerPriorityTerminating": lambda: lower(terminating()),
        "nominated.preemptedPodsTerminating": preempted,
        "nominated.preemptedLowerPriorityTerminating": lambda: lower(by_preemption()),
    }


def _not_offered(context: DecisionContext, rows: Rows, offer: Sequence[OfferedNode]) -> Rows:
    """Of pods on the nominated node, those that were not preempted, or are no victims there."""
    snapshot, node = context.snapshot, context.names[context.nominated]
    offered = {uid for one in offer if one.node == node for uid in one.victims}
    preempted = snapshot.column(PREEMPTED)[rows].tolist()
    pods = snapshot.pods.some(rows.tolist())
    stays = [
        not (marked and pod is not None and uid_of(pod) in offered)
        for marked, pod in zip(preempted, pods, strict=True)
    ]
    return np.asarray(rows[np.array(stays, dtype=np.bool_)])


def _waits_for(
    context: DecisionContext, rule: Rule, leaving: Mapping[str, Callable[[], Rows]]
) -> tuple[LeavingPod, ...]:
    """The terminating pods that the rule's condition counts, by name."""
    if rule.when is None:
        return ()
    snapshot = context.snapshot
    found: set[int] = set()
    for name in rule.when.variables:
        if name in leaving:
            found.update(leaving[name]().tolist())
    pods = []
    for row in sorted(found, key=lambda row: int(snapshot.rank[row])):
        pod = snapshot.pods[row]
        assert pod is not None  # it is on a node
        pods.append(
            LeavingPod(
                pod=snapshot.keys[row],
                node=pod.spec.node_name,
                priority=pod.spec.priority or 0,
                since_ms=leaving_since_ms(pod),
                until_ms=times.parse_optional(pod.metadata.deletion_timestamp),
            )
        )
    return tuple(pods)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Nominated:
    """What nominated.* and cluster.failedNodeCount are computed from."""

    context: DecisionContext
    filtered: Filtered
    leaving: Mapping[str, Callable[[], Rows]]

    def status(self) -> str:
        context, found = self.context, self.filtered.statuses
        name = context.incoming.pod.status.nominated_node_name
        node = context.nominated
        if node == NOWHERE:
            return ""
        if len(found) == len(context.names) and found.nodes[node] == name:
            return found.statuses[found.index[node]].code.label
        return found[name].code.label if name in found else ""


def _number_leaving(name: str, nominated: _Nominated) -> Scalar:
    return Scalar(int(nominated.leaving[name]().size))


_NOMINATED: Final[Mapping[str, Callable[[_Nominated], Scalar]]] = {
    "nominated.node": lambda n: Scalar(n.context.incoming.pod.status.nominated_node_name),
    "nominated.exists": lambda n: Scalar(n.context.nominated != NOWHERE),
    "nominated.status": lambda n: Scalar(n.status()),
    **{name: partial(_number_leaving, name) for name in _NONE_LEAVING},
    "cluster.failedNodeCount": lambda n: Scalar(n.filtered.failed_count),
}


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
