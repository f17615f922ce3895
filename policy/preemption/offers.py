"""What a scheduler offers to choose from, judged by a rule set.

The scheduler made the dry run: it says which nodes would take the pod, and which pods would leave
each. Here nothing is searched for. A node whose victims the rules do not allow is left out, the
others are ranked; victims are neither added nor taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

import numpy as np

from policy.cluster.budgets import BudgetIndex
from policy.cluster.objects import Pod
from policy.cluster.occupancy import snapshot_order
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import LABELS, NOWHERE, PREEMPTED, TERMINATING, Bools, Ints
from policy.decision import messages
from policy.decision.model import Code, NodeStatuses, OfferedNode, Status
from policy.extenders.protocol import uid_of
from policy.preemption.candidates import (
    SearchResult,
    best_of,
    decided_on,
    forbidding_rules,
    victim_rules,
)
from policy.preemption.context import DecisionContext
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import conditions_without_value
from policy.preemption.segments import segment_sums
from policy.preemption.victims import DryRun, PotentialVictims, held_back
from policy.preemption.whole_groups import kept_because
from policy.rules.ruleset import Verdict

Offer = Sequence[OfferedNode]

_NO_LIMIT: Final = np.iinfo(np.int64).max
_MOST_VIOLATIONS: Final = np.iinfo(np.int32).max
"""Of budgets, by the count of the scheduler or of another extender, in which every int64 may stand:
as many as cannot be, and so few that totals of all decisions can add them up."""
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


def judge(context: DecisionContext, filtered: Filtered, offer: Offer) -> SearchResult:
    """The best of the offered candidates that the rules allow."""
    found, left_out = _located(context.snapshot, offer)
    nodes = found.nodes
    if not nodes.size:
        return SearchResult(potential=nodes, statuses=_statuses(left_out), refused=True)
    # Who else might leave these nodes matters only where that holds victims back, or has no value.
    potential = context.potential_victims(nodes) if _looks_at_others(context) else None
    refusals = _refusals(context, potential, found)
    left_out |= {context.names[int(nodes[place])]: why for place, why in refusals.items()}
    allowed = np.ones(nodes.size, dtype=np.bool_)
    allowed[list(refusals)] = False
    fired = victim_rules(context, nodes, decided_on(context, nodes))
    if potential is not None:
        fired = (
            *fired,
            *forbidding_rules(context, potential.held),
            *conditions_without_value(context, nodes, potential),
        )
    statuses = _statuses(left_out)
    if not allowed.any():
        return SearchResult(potential=nodes, statuses=statuses, fired=fired, refused=True)
    return best_of(
        context,
        filtered,
        _as_dry_run(context, potential, found.only(allowed)),
        potential=nodes,
        sampling=None,
        statuses=statuses,
        fired=fired,
    )


def _looks_at_others(context: DecisionContext) -> bool:
    """May more become of the pods on a node than that the rules allow or deny each of them?"""
    rules = context.rules.victims
    return bool(
        rules.forbid
        or context.whole_groups is not None
        or context.allowed.without_value
        or not all(key.expression.total for key in rules.importance)
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Offered:
    """Offered candidates whose nodes and pods are in the snapshot."""

    nodes: Rows  #: (candidates,) node indexes, ascending
    victims: Rows  #: rows of pods, candidate by candidate
    counts: Rows  #: (candidates,) victims of each, at least one
    pdb_violations: Ints  #: (candidates,)

    def only(self, candidates: Bools) -> _Offered:
        """Some of them; candidates: (candidates,) bool."""
        if candidates.all():
            return self
        return _Offered(
            nodes=self.nodes[candidates],
            victims=self.victims[np.repeat(candidates, self.counts)],
            counts=self.counts[candidates],
            pdb_violations=self.pdb_violations[candidates],
        )

    def once(self) -> _Offered:
        """Each victim once, however often it is offered."""
        if len(set(self.victims.tolist())) == self.victims.size:
            return self
        candidate = np.repeat(np.arange(self.counts.size), self.counts)
        each = candidate * (self.victims.max() + 1) + self.victims
        firsts = np.unique(each, return_index=True)[1]
        first = np.zeros(self.victims.size, dtype=np.bool_)
        first[firsts] = True
        return _Offered(
            nodes=self.nodes,
            victims=self.victims[first],
            counts=segment_sums(first, self.counts),
            pdb_violations=self.pdb_violations,
        )


def _located(snapshot: Snapshot, offer: Offer) -> tuple[_Offered, dict[str, str]]:
    """The candidates that can be judged, and by node why the others cannot be."""
    left_out: dict[str, str] = {}
    places: list[int | None] = list(map(snapshot.nodes.index.get, [one.node for one in offer]))
    if None in places or not all(one.victims and not one.refused for one in offer):
        known = []
        for one, place in zip(offer, places, strict=True):
            if place is None:
                left_out[one.node] = messages.UNKNOWN_NODE
            elif not one.victims:
                left_out[one.node] = messages.NOTHING_OFFERED
            elif one.refused:
                left_out[one.node] = messages.AS_SENT.format(why=one.refused)
            else:
                known.append(one)
        offer, places = known, [snapshot.nodes.index[one.node] for one in known]
    nodes = np.array(places, dtype=np.int64)
    if (nodes[1:] < nodes[:-1]).any():
        # Offered nodes are reported in name order, as the snapshot has them.
        by_name = np.argsort(nodes, kind="stable")
        offer, nodes = [offer[i] for i in by_name.tolist()], nodes[by_name]
    victims = [one.victims for one in offer]
    counts = np.array(list(map(len, victims)), dtype=np.int64)
    rows = rows_of(snapshot, np.repeat(nodes, counts), list(chain.from_iterable(victims)))
    unknown = segment_sums(rows == NOWHERE, counts) > 0
    for place in np.flatnonzero(unknown).tolist():
        left_out[offer[place].node] = messages.UNKNOWN_VICTIM
    every = _Offered(
        nodes=nodes,
        victims=rows,
        counts=counts,
        pdb_violations=np.array(
            [min(one.pdb_violations, _MOST_VIOLATIONS) for one in offer], dtype=np.int64
        ),
    )
    return every.only(~unknown).once(), left_out


@dataclass(frozen=True, slots=True, eq=False)
class _RowsByUid:
    """Where each uid was last seen, which may be another place than a snapshot has it.

    The snapshots of one descent share it, and it only grows. It has seen all rows of each of them:
    where it saw one uid alone in a row, every snapshot has the pod with that uid there, or none.
    """

    rows: dict[str, int]
    uids: dict[int, str]  #: the last one of each row
    several: set[int]  #: rows of which several uids were seen: one pod after the other

    @staticmethod
    def of(snapshot: Snapshot) -> _RowsByUid:
        found = _RowsByUid({}, {}, set())
        found._see(range(len(snapshot.pods)), snapshot.pods)
        return found

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _RowsByUid:
        rows = delta.rows.tolist()
        self._see(rows, after.pods.some(rows))
        return self

    def _see(self, rows: Iterable[int], pods: Iterable[Pod | None]) -> None:
        for row, pod in zip(rows, pods, strict=True):
            if pod is None:
                continue
            uid = uid_of(pod)
            self.rows[uid] = row
            if self.uids.setdefault(row, uid) != uid:
                self.several.add(row)
                self.uids[row] = uid


def rows_of(snapshot: Snapshot, nodes: Rows, uids: Sequence[str]) -> Rows:
    """The rows of the pods with these uids on the nodes; NOWHERE where there is none.

    nodes: (uids,) node indexes, or NOWHERE, where no pod is looked for.
    """
    seen = snapshot.derived("rows-by-uid", _RowsByUid.of)
    found = map(seen.rows.get, uids, repeat(NOWHERE))
    rows = np.fromiter(found, dtype=np.int64, count=len(uids))
    # No column holds uids: to copy one for each snapshot takes longer than to look at a few pods.
    rows[rows >= len(snapshot.pods)] = NOWHERE  # a row of a later snapshot
    known = rows != NOWHERE
    sure = known & (nodes != NOWHERE)
    sure[sure] = snapshot.node[rows[sure]] == nodes[sure]
    if seen.several:
        for place in np.flatnonzero(sure).tolist():
            row = int(rows[place])
            if row in seen.several:
                pod = snapshot.pods[row]
                sure[place] = pod is not None and uid_of(pod) == uids[place]
    for place in np.flatnonzero(~sure).tolist():
        rows[place] = _row_on(snapshot, int(nodes[place]), uids[place])
    return rows


def not_bound_yet(snapshot: Snapshot, uids: Iterable[str]) -> list[str]:
    """Of the pods with these uids, which the state may have on a node later.

    Those that it does not have on any, and those that it has never had, as far as is known here.
    """
    seen = snapshot.derived("rows-by-uid", _RowsByUid.of)
    found = []
    for uid in uids:
        row = seen.rows.get(uid, NOWHERE)
        pod = snapshot.pods[row] if NOWHERE < row < len(snapshot.pods) else None
        if row == NOWHERE or (pod and uid_of(pod) == uid and not pod.spec.node_name):
            found.append(uid)
    return found


def _row_on(snapshot: Snapshot, node: int, uid: str) -> int:
    """The row of the pod with this uid on the node, one after the other; NOWHERE for none."""
    if node == NOWHERE:
        return NOWHERE
    order = snapshot_order(snapshot)
    here = order.rows[order.offsets[node] : order.offsets[node + 1]].tolist()
    pods = snapshot.pods.some(here)
    found = (row for row, pod in zip(here, pods, strict=True) if pod and uid_of(pod) == uid)
    return next(found, NOWHERE)


def _refusals(
    context: DecisionContext, potential: PotentialVictims | None, offered: _Offered
) -> dict[int, str]:
    """Why the rules refuse some of the candidates, by their place.

    potential: None where whoever is allowed is a potential victim.
    """
    # INVARIANT: every victim is looked at before a candidate counts; a rule without a value has
    # protected its pod in `allowed` already.
    rows, counts = offered.victims, offered.counts
    limit = context.rules.victims.max_victims
    denied = ~context.allowed.pods[rows]
    some_denied = segment_sums(denied, counts) > 0
    forbidden = np.zeros(counts.size, dtype=np.bool_)
    if potential is not None:
        held = np.ones(len(context.snapshot.pods), dtype=np.bool_)
        held[potential.pods] = False
        forbidden = segment_sums(held[rows], counts) > 0
        forbidden |= _forbidden_by_budgets(context, offered)
    too_many = counts > (_NO_LIMIT if limit is None else limit)
    promised = _promised(context, offered)
    splits = _splits(context, offered)
    strange = _of_unknown_namespaces(context, offered)
    refused = some_denied | forbidden | too_many | promised | strange
    refused[list(splits)] = True
    found: dict[int, str] = {}
    for i in np.flatnonzero(refused).tolist():
        if some_denied[i]:
            start = int(counts[:i].sum())
            first = start + int(denied[start : start + counts[i]].argmax())
            found[i] = _denial(context, int(rows[first]))
        elif strange[i]:
            found[i] = messages.UNKNOWN_NAMESPACE
        elif i in splits:
            found[i] = messages.SPLIT.format(group=splits[i])
        elif forbidden[i]:
            found[i] = messages.FORBIDDEN
        elif too_many[i]:
            found[i] = messages.TOO_MANY_VICTIMS.format(needed=int(counts[i]), limit=limit)
        else:
            found[i] = messages.PROMISED
    return found


def _forbidden_by_budgets(context: DecisionContext, offered: _Offered) -> Bools:
    """Would a rule of `victims.forbid` hold a victim back, was the most said of its budgets true?

    Shape (candidates,). A scheduler that counts more violations knows of budgets that the state has
    not, or not as they are, and does not say whose they are: each victim of that node may be one.
    And pods that leave for others may not be counted in the status of their budgets yet.
    """
    rows, counts = offered.victims, offered.counts
    more = offered.pdb_violations > segment_sums(context.violating[rows], counts)
    doubtful = np.repeat(more, counts) | _beyond_budgets(context, offered)
    doubtful &= ~context.violating[rows]
    if not doubtful.any():
        return np.zeros(counts.size, dtype=np.bool_)
    some = rows[doubtful]
    violating = context.violating.copy()
    violating[some] = True
    rules, snapshot = context.rules.victims.forbid, context.snapshot
    held = held_back(rules, snapshot, some, violating, context.variables, context.history)
    doubtful[doubtful] = ~held.left
    return segment_sums(doubtful, counts) > 0


def _beyond_budgets(context: DecisionContext, offered: _Offered) -> Bools:
    """Do the victims of a candidate, and pods that are leaving for others, exceed a budget?

    Shape (victims,), of the victims that the budget selects.
    """
    snapshot, index = context.snapshot, BudgetIndex.of(context.snapshot)
    labels, rows = snapshot.column(LABELS), offered.victims
    leaving = np.flatnonzero(snapshot.column(TERMINATING) & snapshot.column(PREEMPTED))
    _, budgets = index.pairs(labels[leaving])
    taken = np.bincount(budgets, minlength=len(index.budgets))
    beyond = np.zeros(rows.size, dtype=np.bool_)
    if not taken.any():
        return beyond
    at, budget = index.pairs(labels[rows])
    stays: Bools = ~snapshot.column(TERMINATING)[rows]
    candidate = np.repeat(np.arange(offered.counts.size), offered.counts)[at]
    each = candidate * len(index.budgets) + budget
    needed = np.bincount(each, weights=stays[at], minlength=each.max(initial=-1) + 1)
    too_many = taken[budget] + needed[each] > index.allowed[budget]
    beyond[at[too_many & (taken[budget] > 0)]] = True
    beyond &= stays
    return beyond


def _of_unknown_namespaces(context: DecisionContext, offered: _Offered) -> Bools:
    """Is the namespace of a victim none of the state, where rules read its labels?

    Shape (candidates,). Which ones they may be is not known, and with some no victim is allowed.
    """
    victims, known = context.rules.victims, context.snapshot.namespace_labels
    rules = (*victims.eligible, *victims.forbid)
    if not any(rule.when and "victim.namespaceLabels" in rule.when.variables for rule in rules):
        return np.zeros(offered.counts.size, dtype=np.bool_)
    keys = context.snapshot.keys[offered.victims].tolist()
    strange = np.array([key.partition("/")[0] not in known for key in keys], dtype=np.bool_)
    return segment_sums(strange, offered.counts) > 0


def _denial(context: DecisionContext, row: int) -> str:
    """Why the rules deny that the pod is evicted."""
    rules = context.rules.victims.eligible
    if context.kept_together[row]:
        return messages.KEPT.format(reason=kept_because(context.rules))
    decided = int(context.allowed.rule[row])
    if decided < 0 or rules[decided].verdict is Verdict.ALLOW:
        return messages.UNMENTIONED
    return messages.DENIED.format(rule=rules[decided].id)


def _splits(context: DecisionContext, offered: _Offered) -> dict[int, str]:
    """By candidate, the group of which only some of the pods that leave together are offered."""
    if context.whole_groups is None:
        return {}
    ends = np.cumsum(offered.counts)[:-1]
    found = (
        next(context.whole_groups.split(victims), "") for victims in np.split(offered.victims, ends)
    )
    return {i: group for i, group in enumerate(found) if group}


def _promised(context: DecisionContext, offered: _Offered) -> Bools:
    """Would the room that the victims leave be needed for pods that are nominated there?

    Shape (candidates,). Pods of every scheduler count, of which each knows its own alone: no room
    is promised twice. That the pod fits otherwise is for the scheduler to say, which knows more of
    the node. So it does of pods that are leaving: the victims that made room for a nominated pod
    may be gone, and the pod in their place, a moment before the state says so.
    """
    pipeline = context.pipeline
    every, counts = offered.nodes, offered.counts
    promised = np.zeros(every.size, dtype=np.bool_)
    added = pipeline.promised(every)
    nominated = promised if added is None else added.any(axis=1)
    if added is None or not nominated.any():
        return promised
    where, added = every[nominated], added[nominated]
    leaving = pipeline.demand(offered.victims, np.repeat(every, counts))
    sums = np.add.reduceat(leaving, np.cumsum(counts) - counts, axis=0)[nominated]
    left = pipeline.without(pipeline.base[where], sums)
    fails = ~pipeline.passes_beside(added, left, where)
    if fails.any():
        short = np.flatnonzero(nominated)[fails]
        left = pipeline.without(left[fails], _leaving_too(context, offered, short))
        fails[fails] = ~pipeline.passes_beside(added[fails], left, every[short])
    promised[nominated] = fails
    return promised


def _leaving_too(context: DecisionContext, offered: _Offered, candidates: Rows) -> Ints:
    """What the pods that are leaving already, and are not offered, take up on these candidates.

    Shape (candidates, width).
    """
    pipeline, snapshot = context.pipeline, context.snapshot
    nodes = offered.nodes[candidates]
    others = snapshot.column(TERMINATING).copy()
    others[offered.victims] = False
    rows, place = context.order.on(nodes)
    leaving = others[rows]
    rows, place = rows[leaving], place[leaving]
    sums = np.zeros((candidates.size, pipeline.width), dtype=np.int64)
    np.add.at(sums, place, pipeline.demand(rows, nodes[place]))
    return sums


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
    context: DecisionContext, potential: PotentialVictims | None, allowed: _Offered
) -> DryRun:
    """The candidates as a dry run of our own would have left them."""
    victims, counts = allowed.victims, allowed.counts
    violating = context.violating[victims]
    ours = segment_sums(violating, counts)
    # The scheduler may know of budgets that the state does not have, and the other way round.
    theirs = allowed.pdb_violations
    return DryRun(
        potentials=() if potential is None else (potential,),
        nodes=allowed.nodes,
        victims=victims,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        violating=violating,
        pdb_violations=np.maximum(ours, theirs),
        failed=_NO_ROWS,
        failed_load=np.zeros((0, context.pipeline.width), dtype=np.int64),
        without_victims=_NO_ROWS,
        over_limit=_NO_ROWS,
        needed=_NO_ROWS,
        needless=_NO_ROWS,
    )
