"""The dry run: on every potential node at once, who would have to leave?

On each node all potential victims are taken away; where the preemptor then fits, they are put
back one after the other in the order of the rule set, and who cannot come back is a victim. The
k-th potential victims of all nodes are put back in one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.cluster.budgets import violations
from policy.cluster.occupancy import NodeOrder
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Bools, Ints
from policy.filters.pipeline import Judged, Pipeline
from policy.preemption.columns import Lazy
from policy.preemption.importance import Importance
from policy.rules.expressions import BoolColumn, Columns, History
from policy.rules.ruleset import NoneEligible, ReprieveGroup, Rule, Verdict, VictimRules

_NO_RULE = -1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Allowed:
    """Which pods the rules allow as victims, and which rule said so."""

    pods: Bools  #: (pods,)
    rule: NDArray[np.int16]  #: (pods,) index of the rule that decided, -1 for the default


def allowed_victims(
    rules: tuple[Rule, ...], snapshot: Snapshot, variables: Lazy, history: History
) -> Allowed:
    """First matching rule decides; where none matches, a pod may not be a victim.

    A condition without a value (an error such as a missing label) does not hold.
    """
    size = len(snapshot.pods)
    columns = Columns(size, variables, history)
    decided = np.full(size, _NO_RULE, dtype=np.int16)
    verdicts = np.zeros(len(rules) + 1, dtype=np.bool_)
    for i, rule in enumerate(rules):
        verdicts[i] = rule.verdict is Verdict.ALLOW
        open_ = decided == _NO_RULE
        decided[open_ if rule.when is None else open_ & rule.when.evaluate(columns).holds(size)] = i
    # The last slot, which _NO_RULE (-1) reads, denies.
    return Allowed(pods=verdicts[decided] & (snapshot.node >= 0), rule=decided)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DryRun:
    """What the dry run found on the nodes it looked at.

    Victims of candidate i are `victims[offsets[i]:offsets[i + 1]]`, in the order ranking reads.
    """

    nodes: Rows  #: (candidates,) node indexes, ascending
    victims: Rows  #: rows of pods
    offsets: Rows  #: (candidates + 1,)
    violating: Bools  #: parallel to `victims`
    pdb_violations: Ints  #: (candidates,)
    failed: Rows  #: node indexes that are no candidate although pods may be evicted there
    failed_status: Judged  #: parallel to `failed`
    without_victims: Rows  #: node indexes on which no pod may be evicted
    over_limit: Rows  #: node indexes left out because of `maxVictims`
    needless: Rows  #: node indexes on which everybody could come back
    held: tuple[int, ...]  #: pods that each rule of `victims.forbid` held back


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Potential:
    """Potential victims of some nodes, in importance order within each node."""

    rows: Rows  #: pods
    group: Rows  #: (rows,) position in `nodes`
    nodes: Rows  #: node indexes
    counts: Rows  #: (nodes,) potential victims of each
    violating: Bools  #: (rows,)
    held: tuple[int, ...]  #: pods that each rule of `victims.forbid` held back, the first of them


def potential_victims(
    *,
    rules: VictimRules,
    snapshot: Snapshot,
    order: NodeOrder,
    allowed: Bools,
    nodes: Rows,
    variables: Lazy,
    history: History,
) -> Potential:
    """Allowed pods of the nodes with their budgets counted; forbidden ones are left out."""
    starts = order.offsets[nodes]
    lengths = order.offsets[nodes + 1] - starts
    group = np.repeat(np.arange(nodes.size), lengths)
    first = np.cumsum(lengths) - lengths
    rows = order.rows[np.arange(group.size) - np.repeat(first - starts, lengths)]
    may = allowed[rows]
    rows, group = rows[may], group[may]
    flags = violations(
        snapshot,
        order,
        allowed,
        decrement=rules.budgets.decrement,
        skip_disrupted=rules.budgets.skip_disrupted,
    )
    broken = flags[rows]
    forbidden = np.zeros(rows.size, dtype=np.bool_)
    held = [0] * len(rules.forbid)
    if rules.forbid and rows.size:
        also = variables.also({"victim.pdbViolating": lambda: BoolColumn(flags)})
        columns = Columns(len(snapshot.pods), also, history).take(rows.astype(np.intp))
        for i, rule in enumerate(rules.forbid):
            holds = ~forbidden
            if rule.when is not None:
                holds &= rule.when.evaluate(columns).holds(rows.size)
            held[i] = int(holds.sum())
            forbidden |= holds
    kept = ~forbidden
    return Potential(
        rows=rows[kept],
        group=group[kept],
        nodes=nodes,
        counts=np.bincount(group[kept], minlength=nodes.size),
        violating=broken[kept],
        held=tuple(held),
    )


def _reprieve_order(potential: Potential, groups: tuple[ReprieveGroup, ...]) -> Rows:
    """Positions in the order in which potential victims are put back, node by node."""
    if groups == (ReprieveGroup.ALL,) or not potential.violating.any():
        return np.arange(potential.rows.size)
    later = ~potential.violating
    if groups[0] is ReprieveGroup.OTHERS:
        later = ~later
    # Groups ascend already, so this is nearly sorted, which the stable sort is quick with.
    return np.argsort(potential.group * 2 + later, kind="stable")


def _segments(demand: Ints, counts: Rows) -> tuple[Ints, Rows]:
    """Running sums of demand, (rows + 1, width), and where each group starts."""
    starts = np.cumsum(counts) - counts
    sums = np.zeros((demand.shape[1], demand.shape[0] + 1), dtype=np.int64).T
    np.cumsum(demand, axis=0, out=sums[1:])
    return sums, starts


def dry_run(
    pipeline: Pipeline, potential: Potential, rules: VictimRules, importance: Importance
) -> DryRun:
    """Victims on each of `potential.nodes`."""
    nodes, counts = potential.nodes, potential.counts
    order = _reprieve_order(potential, rules.reprieve)
    demand = pipeline.demand(potential.rows[order], nodes[potential.group])
    sums, starts = _segments(demand, counts)
    load = pipeline.without(pipeline.base[nodes], sums[starts + counts] - sums[starts])
    tried = counts > 0
    if rules.none_eligible is NoneEligible.CANDIDATE:
        tried = np.ones(nodes.size, dtype=np.bool_)
    fits = tried & pipeline.passes(load, nodes)

    active = np.flatnonzero(fits)
    ceiling = pipeline.ceiling(nodes[active])
    if ceiling is None:
        evicted = _put_back(pipeline, load, demand, nodes, starts, counts, active)
    else:
        slack = ceiling - load[active]
        evicted = _put_back_below(slack, demand, sums, starts, counts, active)
    listed = order[evicted]
    if rules.relist:
        again = np.arange(listed.size) if importance.tied else _crossed(listed, potential.group)
        some = listed[again]
        listed[again] = some[importance.listed(potential.rows[some], potential.group[some])]
    return _listed(pipeline, potential, rules, load, tried=tried, fits=fits, listed=listed)


def _crossed(listed: Rows, group: Rows) -> Rows:
    """Positions of victims on nodes where they do not stand in importance order already."""
    node = group[listed]
    falls = np.flatnonzero((listed[1:] < listed[:-1]) & (node[1:] == node[:-1]))
    return np.flatnonzero(np.isin(node, node[falls]))


def _put_back(
    pipeline: Pipeline,
    load: Ints,
    demand: Ints,
    nodes: Rows,
    starts: Rows,
    counts: Rows,
    active: Rows,
) -> Bools:
    """Put potential victims back one by one, the k-th of every node in one step.

    Returns (rows,) bool: who cannot stay.
    """
    evicted = np.zeros(demand.shape[0], dtype=np.bool_)
    # Longest first: the nodes that still have a k-th potential victim are then a prefix.
    active = active[np.argsort(-counts[active], kind="stable")]
    held, remaining, first, where = load[active], counts[active], starts[active], nodes[active]
    longest = int(remaining[0]) if active.size else 0
    ends = np.searchsorted(-remaining, -np.arange(longest), side="left")
    for k in range(longest):
        n = int(ends[k])
        position = first[:n] + k
        trial = held[:n] + demand[position]
        stays = pipeline.passes(trial, where[:n])
        held[:n] = np.where(stays[:, None], trial, held[:n])
        evicted[position] = ~stays
    return evicted


def _put_back_below(
    slack: Ints, demand: Ints, sums: Ints, starts: Rows, counts: Rows, active: Rows
) -> Bools:
    """`_put_back` where staying means no more than keeping every load within `slack`.

    Loads only grow, so the pods up to the first that does not fit all stay: running sums tell who
    that is for all nodes at once, and only what comes after is tried one by one.
    """
    evicted = np.zeros(demand.shape[0], dtype=np.bool_)
    within = np.zeros(demand.shape[0], dtype=np.bool_)
    lengths = np.zeros(counts.size, dtype=np.int64)
    lengths[active] = counts[active]
    chosen = np.repeat(lengths > 0, counts)
    within[chosen] = True
    first = starts[active]
    for column in range(demand.shape[1]):
        limits = np.repeat(slack[:, column] + sums[first, column], lengths[active])
        within[chosen] &= sums[1:, column][chosen] <= limits
    stayed = np.zeros(within.size + 1, dtype=np.int64)
    np.cumsum(within, out=stayed[1:])
    stay = stayed[first + counts[active]] - stayed[first]
    rest = counts[active] - stay
    more = np.flatnonzero(rest)
    more = more[np.argsort(-rest[more], kind="stable")]
    rest, next_ = rest[more], first[more] + stay[more]
    left = [
        slack[more, column] - (sums[next_, column] - sums[first[more], column])
        for column in range(demand.shape[1])
    ]
    longest = int(rest[0]) if more.size else 0
    ends = np.searchsorted(-rest, -np.arange(longest), side="left")
    for k in range(longest):
        n = int(ends[k])
        position = next_[:n] + k
        wanted = [demand[:, column][position] for column in range(demand.shape[1])]
        stays = np.ones(n, dtype=np.bool_)
        for room, want in zip(left, wanted, strict=True):
            stays &= want <= room[:n]
        for room, want in zip(left, wanted, strict=True):
            room[:n] -= want * stays
        evicted[position] = ~stays
    return evicted


def _listed(
    pipeline: Pipeline,
    potential: Potential,
    rules: VictimRules,
    load: Ints,
    *,
    tried: Bools,
    fits: Bools,
    listed: Rows,
) -> DryRun:
    """The result for each node from the positions of all victims in the order of their listing."""
    nodes = potential.nodes
    group = potential.group[listed]
    victim_counts = np.bincount(group, minlength=nodes.size)
    broken = np.bincount(group[potential.violating[listed]], minlength=nodes.size)
    needless = np.zeros(nodes.size, dtype=np.bool_)
    if rules.none_eligible is NoneEligible.NO_CANDIDATE:
        needless = fits & (victim_counts == 0)
    over = np.zeros(nodes.size, dtype=np.bool_)
    if rules.max_victims is not None:
        over = fits & (victim_counts > rules.max_victims)
        listed = listed[~over[group]]
    chosen = np.flatnonzero(fits & ~needless & ~over)
    offsets = np.zeros(chosen.size + 1, dtype=np.int64)
    np.cumsum(victim_counts[chosen], out=offsets[1:])
    failing = np.flatnonzero(tried & ~fits)
    return DryRun(
        nodes=nodes[chosen],
        victims=potential.rows[listed],
        offsets=offsets,
        violating=potential.violating[listed],
        pdb_violations=broken[chosen].astype(np.int64),
        failed=nodes[failing],
        failed_status=pipeline.judge(load[failing], nodes[failing]),
        without_victims=nodes[~tried],
        over_limit=nodes[over],
        needless=nodes[needless],
        held=potential.held,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Attempt:
    """One potential victim of one node being put back."""

    row: int
    violating: bool
    reprieved: bool
    filter: str
    reasons: tuple[str, ...]


def attempts(
    pipeline: Pipeline, potential: Potential, rules: VictimRules, victims: Rows
) -> list[Attempt]:
    """The reprieve on one node told step by step.

    potential: of that node alone; victims: rows of the pods that the dry run evicts there. What
    each step met follows from who came back before, so all steps are judged in one go.
    """
    order = _reprieve_order(potential, rules.reprieve)
    node = np.repeat(potential.nodes, order.size)
    demand = pipeline.demand(potential.rows, node)[order]
    load = pipeline.without(pipeline.base[potential.nodes], demand.sum(axis=0)[None, :])
    left = np.isin(potential.rows[order], victims)
    kept = np.where(left[:, None], 0, demand)
    before = load + np.cumsum(kept, axis=0) - kept
    judged = pipeline.judge(before + demand, node)
    told = []
    for i, position in enumerate(order.tolist()):
        _, name, reasons = judged.statuses[int(judged.index[i])]
        told.append(
            Attempt(
                row=int(potential.rows[position]),
                violating=bool(potential.violating[position]),
                reprieved=not bool(left[i]),
                filter=name if left[i] else "",
                reasons=reasons if left[i] else (),
            )
        )
    return told
