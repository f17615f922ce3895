"""What a scheduler offers to choose from, judged by a rule set.

The scheduler made the dry run: it says which nodes would take the pod, and which pods would leave
each. Here nothing is searched for. A node whose victims the rules do not allow is left out, the
others are ranked; victims are neither added nor taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster.occupancy import PodsByNode, snapshot_order
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Bools, PodColumn
from policy.decision.model import Code, NodeStatuses, OfferedNode, Status
from policy.extenders.protocol import uid_of
from policy.preemption import messages
from policy.preemption.candidates import (
    SearchResult,
    best_of,
    forbidding_rules,
    victim_rules,
)
from policy.preemption.context import DecisionContext
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import conditions_without_value
from policy.preemption.segments import segment_sums
from policy.preemption.victims import DryRun, PotentialVictims
from policy.preemption.whole_groups import kept_because
from policy.rules.ruleset import Verdict

Offer = Sequence[OfferedNode]

_UID: Final = PodColumn("uid", np.object_, lambda pod, _: uid_of(pod))
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def judge(context: DecisionContext, filtered: Filtered, offer: Offer) -> SearchResult:
    """The best of the offered candidates that the rules allow."""
    snapshot = context.snapshot
    order, uids = snapshot_order(snapshot), snapshot.column(_UID)
    left_out: dict[str, str] = {}
    located: list[_Offered] = []
    for one in sorted(offer, key=lambda one: one.node):
        found = _located(snapshot, order, uids, one)
        if isinstance(found, str):
            left_out[one.node] = found
        else:
            located.append(found)
    # Offered nodes are reported in name order, as the snapshot has them.
    located.sort(key=lambda one: one.node)
    nodes = np.array([one.node for one in located], dtype=np.int64)
    if not nodes.size:
        return SearchResult(potential=nodes, statuses=_statuses(left_out))
    potential = context.potential_victims(nodes)
    refusals = _refusals(context, potential, located)
    left_out |= {context.names[node]: why for node, why in refusals.items()}
    allowed = [one for one in located if one.node not in refusals]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """An offered candidate whose node and pods are in the snapshot."""

    node: int
    victims: list[int]  #: rows
    pdb_violations: int


def _located(
    snapshot: Snapshot, order: PodsByNode, uids: NDArray[np.object_], one: OfferedNode
) -> _Offered | str:
    """Index of the node and rows of the victims, or why they cannot be judged."""
    node = snapshot.nodes.index.get(one.node)
    if node is None:
        return messages.UNKNOWN_NODE
    if not one.victims:
        return messages.NOTHING_OFFERED
    rows = order.rows[order.offsets[node] : order.offsets[node + 1]]
    here = dict(zip(uids[rows].tolist(), rows.tolist(), strict=True))
    victims = [here.get(uid) for uid in dict.fromkeys(one.victims)]
    if None in victims:
        return messages.UNKNOWN_VICTIM
    return _Offered(
        node=node,
        victims=[row for row in victims if row is not None],
        pdb_violations=one.pdb_violations,
    )


def _refusals(
    context: DecisionContext, potential: PotentialVictims, offered: Sequence[_Offered]
) -> dict[int, str]:
    """Why the rules refuse some of the candidates, by node."""
    # INVARIANT: every victim is looked at before a candidate counts; a rule without a value has
    # protected its pod in `allowed` already.
    rows, counts = _flat(offered)
    held = np.ones(len(context.snapshot.pods), dtype=np.bool_)
    held[potential.pods] = False
    limit = context.rules.victims.max_victims
    promised = _promised(context, [one.node for one in offered], rows, counts)
    found: dict[int, str] = {}
    denied = np.split(~context.allowed.pods[rows], np.cumsum(counts)[:-1])
    forbidden = segment_sums(held[rows], counts)
    for i, one in enumerate(offered):
        split = _split(context, one.victims)
        if denied[i].any():
            found[one.node] = _denial(context, one.victims[int(denied[i].argmax())])
        elif split:
            found[one.node] = messages.SPLIT.format(group=split)
        elif forbidden[i]:
            found[one.node] = messages.FORBIDDEN
        elif limit is not None and counts[i] > limit:
            found[one.node] = messages.TOO_MANY_VICTIMS.format(needed=counts[i], limit=limit)
        elif promised[i]:
            found[one.node] = messages.PROMISED
    return found


def _flat(offered: Sequence[_Offered]) -> tuple[Rows, Rows]:
    """Rows of all victims, candidate by candidate, and how many each candidate has."""
    rows = np.array([row for one in offered for row in one.victims], dtype=np.int64)
    return rows, np.array([len(one.victims) for one in offered], dtype=np.int64)


def _denial(context: DecisionContext, row: int) -> str:
    """Why the rules deny that the pod is evicted."""
    rules = context.rules.victims.eligible
    if context.kept_together[row]:
        return messages.KEPT.format(reason=kept_because(context.rules))
    decided = int(context.allowed.rule[row])
    if decided < 0 or rules[decided].verdict is Verdict.ALLOW:
        return messages.UNMENTIONED
    return messages.DENIED.format(rule=rules[decided].id)


def _split(context: DecisionContext, victims: Sequence[int]) -> str:
    """The group of which only some of the pods that leave together are offered, "" for none."""
    if context.whole_groups is None:
        return ""
    return next(context.whole_groups.split(np.array(victims, dtype=np.int64)), "")


def _promised(context: DecisionContext, nodes: Sequence[int], rows: Rows, counts: Rows) -> Bools:
    """Would the room that the victims leave be needed for pods that are nominated there?

    rows: victims, candidate by candidate; counts: (nodes,) of each. Shape (nodes,).

    That the pod fits otherwise is for the scheduler to say, which knows more of the node.
    """
    pipeline = context.pipeline
    every = np.array(nodes, dtype=np.int64)
    promised = np.zeros(every.size, dtype=np.bool_)
    nominated = pipeline.has_nominated[every]
    if not nominated.any():
        return promised
    where = every[nominated]
    leaving = pipeline.demand(rows, np.repeat(every, counts))
    sums = np.add.reduceat(leaving, np.cumsum(counts) - counts, axis=0)[nominated]
    left = pipeline.without(pipeline.base[where], sums)
    promised[nominated] = ~pipeline.passes(left, where)
    return promised


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
    context: DecisionContext, potential: PotentialVictims, allowed: Sequence[_Offered]
) -> DryRun:
    """The candidates as a dry run of our own would have left them."""
    victims, counts = _flat(allowed)
    violating = context.violating[victims]
    ours = segment_sums(violating, counts)
    # The scheduler may know of budgets that the state does not have, and the other way round.
    theirs = np.array([one.pdb_violations for one in allowed], dtype=np.int64)
    return DryRun(
        potentials=(potential,),
        nodes=np.array([one.node for one in allowed], dtype=np.int64),
        victims=victims,
        offsets=np.cumsum([0, *counts], dtype=np.int64),
        violating=violating,
        pdb_violations=np.maximum(ours, theirs),
        failed=_NO_ROWS,
        failed_load=np.zeros((0, context.pipeline.width), dtype=np.int64),
        without_victims=_NO_ROWS,
        over_limit=_NO_ROWS,
        needed=_NO_ROWS,
        needless=_NO_ROWS,
    )
