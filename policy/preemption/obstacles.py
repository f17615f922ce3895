"""What stands in the way of a pod on one node, by name: for decisions without a candidate.

With all potential victims of a node gone the pod still does not fit. Either the pods that stay are
in the way, each kept by a rule or by the absence of one, or a filter looks at other pods of the
node's topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import PRIORITY, Bools
from policy.decision.model import (
    MAX_EXAMPLES,
    MAX_NAMED,
    Code,
    NodeStatuses,
    Obstacle,
    ObstacleKind,
    Status,
)
from policy.extenders.evaluate import left_to_extenders
from policy.filters.base import Incoming
from policy.preemption.context import DecisionContext
from policy.preemption.importance import Importance
from policy.rules.expressions import BoolColumn, Columns
from policy.rules.ruleset import Rule, RuleSet, Verdict

_OF_PRIORITY = frozenset({"victim.priority", "preemptor.priority"})


def obstacles_of(
    context: DecisionContext, filtered: NodeStatuses, dry_run: NodeStatuses
) -> tuple[Obstacle, ...]:
    """On one node for each status, the first by name; most frequent statuses first.

    filtered: of all nodes, of which those that eviction cannot help were not dry-run.
    """
    examples: list[tuple[int, Status, str, bool]] = []
    for statuses, dry in ((dry_run, True), (filtered, False)):
        for status, count in statuses.counts():
            if status.code and (dry or status.code is Code.UNRESOLVABLE):
                first = list(statuses.index).index(statuses.statuses.index(status))
                examples.append((count, status, statuses.nodes[first], dry))
    examples.sort(key=lambda example: -example[0])
    return tuple(
        obstacle
        for _, status, node, dry in examples[:MAX_EXAMPLES]
        for obstacle in _on_node(context, node, failing(status, filtered, node), dry_run=dry)
    )


def failing(status: Status, filtered: NodeStatuses, node: str) -> str:
    """The filter that the pod fails on a node; where no pod may leave it, that of the beginning.

    "" for a node that no filter had looked at (1.28 and earlier dry-run such nodes).
    """
    before = filtered.get(node)
    return status.filter or ("" if before is None else before.filter)


def obstacles_on(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    node: str,
    filter_name: str,
    *,
    dry_run: bool,
    offered: bool,
) -> list[Obstacle]:
    """What stands in the way of a pod (namespace/name) on a node that fails by that filter.

    dry_run: with its potential victims gone. offered: by a scheduler, so that nominated pods of all
    count. Raises KeyError for a pod or node that is unknown.
    """
    context = _asked(snapshot, rules, preemptor)
    return list(_on_node(context, node, filter_name, dry_run=dry_run, offered=offered))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPods:
    """Pods of one node that may not be victims, all for the same reason."""

    kind: ObstacleKind
    rule: str  #: id of the rule that keeps them; "" where none does
    pods: tuple[str, ...]  #: namespace/name, by name


def kept_on(snapshot: Snapshot, rules: RuleSet, preemptor: str, node: str) -> tuple[KeptPods, ...]:
    """The pods of a node that may not leave for a pod (namespace/name), by what keeps them.

    Raises KeyError for a pod or node that is unknown.
    """
    context = _asked(snapshot, rules, preemptor)
    here = np.flatnonzero(snapshot.node == snapshot.nodes.index[node])
    return tuple(
        KeptPods(kind=kind, rule=rule, pods=_by_name(context, rows))
        for kind, rule, rows in _kept(context, here)
        if rows.size
    )


def _asked(snapshot: Snapshot, rules: RuleSet, preemptor: str) -> DecisionContext:
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise KeyError(preemptor)
    incoming = Incoming(
        snapshot=snapshot,
        pod=pod,
        key=preemptor,
        row=row,
        ignored=left_to_extenders(rules.extenders),
    )
    return DecisionContext(incoming=incoming, rules=rules, seed=0, importance=Importance)


def _on_node(
    context: DecisionContext, name: str, filter_name: str, *, dry_run: bool, offered: bool = False
) -> Iterator[Obstacle]:
    snapshot = context.snapshot
    node = snapshot.nodes.index[name]
    here = np.flatnonzero(snapshot.node == node)
    staying = np.ones(len(snapshot.pods), dtype=np.bool_)
    kept: list[tuple[ObstacleKind, str, Rows]] = []
    if dry_run:
        kept = list(_kept(context, here))
        staying[here] = False
        for _, _, rows in kept:
            staying[rows] = True
        leaving = here[~staying[here]]
        waiting = context.pipeline.room_kept_for(node, leaving, by_all=offered)
        if waiting.size:
            yield Obstacle(
                node=name,
                kind=ObstacleKind.NOMINATED,
                pods=_named(context, waiting),
                pod_count=int(waiting.size),
            )
            return
    found = context.pipeline.obstacles(filter_name, node, staying)
    for one in found:
        yield Obstacle(
            node=name,
            kind=ObstacleKind(one.kind),
            pods=_named(context, one.pods),
            pod_count=int(one.pods.size),
            topology_key=one.topology_key,
            domain=_domain(context, node, one.topology_key),
            others_min=one.others_min,
            max_skew=one.max_skew,
        )
    blocking = {row for one in found for row in one.pods.tolist()}
    for kind, rule, rows in kept:
        # Where a filter names the pods, those that stay on the node beside them are not why.
        rows = rows if not found else rows[[row in blocking for row in rows.tolist()]]
        if rows.size:
            yield Obstacle(
                node=name,
                kind=kind,
                pods=_named(context, rows),
                pod_count=int(rows.size),
                rule=rule,
            )


def _domain(context: DecisionContext, node: int, keys: str) -> str:
    labels = context.snapshot.nodes.nodes[node].metadata.labels or {}
    return ",".join(labels.get(key, "") for key in keys.split(","))


def _named(context: DecisionContext, rows: Rows) -> tuple[str, ...]:
    return _by_name(context, rows, most=MAX_NAMED)


def _by_name(context: DecisionContext, rows: Rows, *, most: int | None = None) -> tuple[str, ...]:
    snapshot = context.snapshot
    ordered = rows[np.argsort(snapshot.rank[rows], kind="stable")][:most]
    return tuple(snapshot.keys[row] for row in ordered.tolist())


def _kept(context: DecisionContext, here: Rows) -> Iterator[tuple[ObstacleKind, str, Rows]]:
    """The pods of one node that may not be victims, by what keeps them: kind, rule, rows."""
    rules = context.rules.victims
    decided = context.allowed.rule[here]
    for i, rule in enumerate(rules.eligible):
        if rule.verdict is not Verdict.ALLOW:
            yield ObstacleKind.RULE, rule.id, here[decided == i]
    yield from _not_allowed(context, here[decided < 0])
    yield ObstacleKind.POD_GROUP, "", here[context.kept_together[here]]
    rows = here[context.allowed.pods[here]]
    for rule, held in zip(rules.forbid, _forbidden(context, rules.forbid, rows), strict=True):
        yield ObstacleKind.RULE, rule.id, rows[held]


def _not_allowed(context: DecisionContext, rows: Rows) -> Iterator[tuple[ObstacleKind, str, Rows]]:
    allowing = [r for r in context.rules.victims.eligible if r.verdict is Verdict.ALLOW]
    if not by_priority(allowing):
        yield ObstacleKind.NOT_ALLOWED, "", rows
        return
    priorities, own = context.snapshot.column(PRIORITY)[rows], context.incoming.priority
    yield ObstacleKind.HIGHER_PRIORITY, "", rows[priorities > own]
    yield ObstacleKind.SAME_PRIORITY, "", rows[priorities == own]
    yield ObstacleKind.NOT_ALLOWED, "", rows[priorities < own]


def by_priority(allowing: Iterable[Rule]) -> bool:
    """Whether these rules look at priorities and at nothing else."""
    return all(r.when is not None and set(r.when.variables) <= _OF_PRIORITY for r in allowing)


def _forbidden(context: DecisionContext, rules: Sequence[Rule], rows: Rows) -> Iterator[Bools]:
    """For each rule of `forbid`, which of the allowed pods it is the first to hold back."""
    if not rules:
        return
    violating = context.violating
    also = context.variables.also({"victim.pdbViolating": lambda: BoolColumn(violating)})
    columns = Columns(len(context.snapshot.pods), also, context.history).take(rows.astype(np.intp))
    free = np.ones(rows.size, dtype=np.bool_)
    for rule in rules:
        held = free.copy()
        if rule.when is not None:
            held &= rule.when.evaluate(columns).holds(rows.size, rule.on_error)
        free &= ~held
        yield held
