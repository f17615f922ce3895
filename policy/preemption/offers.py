"""What a scheduler offers to choose from, judged by a rule set.

The scheduler made the dry run: it says which nodes would take the pod, and which pods would leave
each. Here nothing is searched for. A node whose victims the rules do not allow is left out, the
others are ranked; victims are neither added nor taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from policy.cluster.occupancy import snapshot_order
from policy.cluster.snapshot import Rows, Snapshot
from policy.decision.model import Code, NodeStatuses, OfferedNode, Status
from policy.extenders.protocol import uid_of
from policy.preemption import messages
from policy.preemption.candidates import (
    SearchResult,
    best_of,
    forbidding_rules,
    victim_rules,
)
from policy.preemption.context import Context
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import conditions_without_value
from policy.preemption.victims import DryRun, Potential
from policy.rules.ruleset import Verdict

Offer = Sequence[OfferedNode]

_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def judge(context: Context, filtered: Filtered, offer: Offer) -> SearchResult:
    """The best of the offered candidates that the rules allow."""
    offered = sorted(offer, key=lambda one: one.node)
    left_out: dict[str, str] = {}
    known: list[tuple[int, Rows, int]] = []
    for one in offered:
        found = _located(context.snapshot, one)
        if isinstance(found, str):
            left_out[one.node] = found
        else:
            known.append((*found, one.pdb_violations))
    # Offered nodes are told in name order, as the snapshot has them.
    known.sort(key=lambda one: one[0])
    nodes = np.array([node for node, _, _ in known], dtype=np.int64)
    if not nodes.size:
        return SearchResult(potential=nodes, statuses=_statuses(left_out))
    potential = context.potential_victims(nodes)
    allowed = [
        (node, rows, violations)
        for node, rows, violations in known
        if not _refused(context, potential, node, rows, left_out)
    ]
    fired = (
        *victim_rules(context, nodes),
        *forbidding_rules(context, potential.held),
        *conditions_without_value(context, nodes, potential),
    )
    statuses = _statuses(left_out)
    if not allowed:
        return SearchResult(potential=nodes, statuses=statuses, fired=fired)
    return best_of(
        context,
        filtered,
        _as_dry_run(context, potential, allowed),
        potential=nodes,
        sampling=None,
        statuses=statuses,
        fired=fired,
    )


def _located(snapshot: Snapshot, one: OfferedNode) -> tuple[int, Rows] | str:
    """Index of the node and rows of the victims, or why they cannot be judged."""
    node = snapshot.nodes.index.get(one.node)
    if node is None:
        return messages.UNKNOWN_NODE
    if not one.victims:
        return messages.NOTHING_OFFERED
    here = _rows_by_uid(snapshot, node)
    rows = [here.get(uid) for uid in dict.fromkeys(one.victims)]
    if None in rows:
        return messages.UNKNOWN_VICTIM
    return node, np.array(rows, dtype=np.int64)


def _rows_by_uid(snapshot: Snapshot, node: int) -> Mapping[str, int]:
    order = snapshot_order(snapshot)
    here = order.rows[order.offsets[node] : order.offsets[node + 1]].tolist()
    return {uid_of(pod): row for row in here if (pod := snapshot.pods[row]) is not None}


def _refused(
    context: Context, potential: Potential, node: int, rows: Rows, left_out: dict[str, str]
) -> bool:
    """Do the rules refuse the victims? Then why is added to `left_out`."""
    why = _refusal(context, potential.at(node), node, rows)
    if why:
        left_out[context.names[node]] = why
    return bool(why)


def _refusal(context: Context, here: Potential, node: int, rows: Rows) -> str:
    # INVARIANT: every victim is looked at before a candidate counts; a rule without a value has
    # protected its pod in `allowed` already.
    rules = context.rules.victims
    denied = rows[~context.allowed.pods[rows]]
    if denied.size:
        decided = int(context.allowed.rule[denied[0]])
        if decided < 0 or rules.eligible[decided].verdict is Verdict.ALLOW:
            return messages.UNMENTIONED
        return messages.DENIED.format(rule=rules.eligible[decided].id)
    if not np.isin(rows, here.rows).all():
        return messages.FORBIDDEN
    if rules.max_victims is not None and rows.size > rules.max_victims:
        return messages.TOO_MANY_VICTIMS.format(needed=rows.size, limit=rules.max_victims)
    return messages.PROMISED if _promised(context, node, rows) else ""


def _promised(context: Context, node: int, rows: Rows) -> bool:
    """Would the room that the victims leave be needed for pods that are nominated there?

    That the pod fits otherwise is for the scheduler to say, which knows more of the node.
    """
    pipeline = context.pipeline
    if not pipeline.has_nominated[node]:
        return False
    where = np.array([node], dtype=np.int64)
    leaving = pipeline.demand(rows, np.repeat(where, rows.size)).sum(axis=0)[None, :]
    left = pipeline.without(pipeline.base[where], leaving)
    return not bool(pipeline.passes(left, where)[0])


def _statuses(left_out: Mapping[str, str]) -> NodeStatuses:
    texts = tuple(sorted(set(left_out.values())))
    nodes = sorted(left_out)
    return NodeStatuses(
        nodes=nodes,
        index=[texts.index(left_out[name]) for name in nodes],
        statuses=tuple(
            Status(code=Code.UNRESOLVABLE, filter="", reasons=(text,)) for text in texts
        ),
    )


def _as_dry_run(
    context: Context, potential: Potential, allowed: Sequence[tuple[int, Rows, int]]
) -> DryRun:
    """The candidates as a dry run of our own would have left them."""
    victims = np.concatenate([rows for _, rows, _ in allowed])
    violating = context.violating[victims]
    counts = [rows.size for _, rows, _ in allowed]
    offsets = np.cumsum([0, *counts], dtype=np.int64)
    ours = np.add.reduceat(violating.astype(np.int64), offsets[:-1])
    # The scheduler may know of budgets that the state does not have, and the other way round.
    theirs = np.array([violations for _, _, violations in allowed], dtype=np.int64)
    return DryRun(
        potentials=(potential,),
        nodes=np.array([node for node, _, _ in allowed], dtype=np.int64),
        victims=victims,
        offsets=offsets,
        violating=violating,
        pdb_violations=np.maximum(ours, theirs),
        failed=_NO_ROWS,
        failed_load=np.zeros((0, context.pipeline.width), dtype=np.int64),
        without_victims=_NO_ROWS,
        over_limit=_NO_ROWS,
        needed=_NO_ROWS,
        needless=_NO_ROWS,
    )
