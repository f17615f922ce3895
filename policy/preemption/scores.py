"""What every scorer gives every node on which a pod fits: the table behind a placement."""

from __future__ import annotations

from policy.cluster.snapshot import Snapshot
from policy.filters.base import Incoming
from policy.filters.pipeline import narrowing
from policy.preemption.context import DecisionContext
from policy.preemption.filtering import filter_nodes
from policy.preemption.importance import Importance
from policy.preemption.placing import values
from policy.rules.ruleset import RuleSet


def score_table(snapshot: Snapshot, rules: RuleSet, pod: str) -> dict[str, dict[str, int]]:
    """Node on which the pod fits -> scorer -> its value times its weight.

    A scorer that has nothing to go by is left out; extenders do not take part. Raises KeyError for
    an unknown pod.
    """
    row, incoming_pod = snapshot.row(pod), snapshot.pod(pod)
    if row is None or incoming_pod is None:
        raise KeyError(pod)
    incoming = Incoming(snapshot=snapshot, pod=incoming_pod, key=pod, row=row)
    context = DecisionContext(incoming=incoming, rules=rules, seed=0, importance=Importance)
    passing = filter_nodes(context, narrowing(incoming, context.uses)).passing
    table: dict[str, dict[str, int]] = {context.names[i]: {} for i in passing.tolist()}
    for use, found in zip(rules.scoring, values(incoming, rules.scoring, passing), strict=True):
        if found is not None:
            for node, value in zip(table, found.tolist(), strict=True):
                table[node][use.name] = value * use.weight
    return table
