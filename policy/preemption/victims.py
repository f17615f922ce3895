"""The dry run: on every potential node at once, who would have to leave?

On each node all potential victims are taken away; where the preemptor then fits, they are put
back one after the other in the order of the rule set, and who cannot come back is a victim. The
k-th potential victims of all nodes are put back in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.cluster.budgets import BudgetUse, violations
from policy.cluster.occupancy import NodeOrder
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Bools, Ints
from policy.filters.pipeline import Judged, Pipeline
from policy.preemption.columns import Lazy
from policy.preemption.importance import Importance
from policy.preemption.segments import SAFE, segment_sums, starts_of, sums_safely
from policy.rules.expressions import BoolColumn, Columns, History
from policy.rules.ruleset import (
    BudgetRules,
    NoneEligible,
    ReprieveGroup,
    Rule,
    Verdict,
    VictimRules,
)

_NO_RULE = -1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Allowed:
    """Which pods the rules allow as victims, and which rule said so."""

    pods: Bools  #: (pods,)
    rule: NDArray[np.int16]  #: (pods,) index of the rule that decided, -1 for the default
    #: rules whose condition had no value for pods that no rule before decided, with those pods
    without_value: tuple[tuple[int, Bools], ...]


def allowed_victims(
    rules: tuple[Rule, ...], snapshot: Snapshot, variables: Lazy, history: History
) -> Allowed:
    """First matching rule decides; where none matches, a pod may not be a victim.

    A condition without a value counts as the rule's `on_error` says.
    """
    size = len(snapshot.pods)
    columns = Columns(size, variables, history)
    decided = np.full(size, _NO_RULE, dtype=np.int16)
    pods = np.zeros(size, dtype=np.bool_)
    without_value = []
    for i, rule in enumerate(rules):
        matched = decided == _NO_RULE
        if rule.when is not None:
            found = rule.when.evaluate(columns)
            if found.errors is not None:
                without_value.append((i, matched & found.errors))
            matched &= found.holds(size, rule.on_error)
        np.copyto(decided, i, where=matched)
        if rule.verdict is Verdict.ALLOW:
            pods |= matched
    return Allowed(
        pods=pods & (snapshot.node >= 0), rule=decided, without_value=tuple(without_value)
    )


def budget_violations(
    rules: BudgetRules, snapshot: Snapshot, order: NodeOrder, allowed: Bools
) -> Bools:
    """Which of the allowed pods would break a budget if all of a node left; shape (pods,)."""
    use = BudgetUse.of(snapshot, order, skip_disrupted=rules.skip_disrupted)
    # Pods that wait together mostly have one priority: they may evict the same pods.
    return snapshot.remembered(
        "budget-violations",
        (use, allowed, rules.decrement),
        lambda: violations(snapshot, use, allowed, decrement=rules.decrement),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Potential:
    """Potential victims of some nodes, in importance order within each node."""

    rows: Rows  #: pods
    group: Rows  #: (rows,) position in `nodes`
    nodes: Rows  #: node indexes, ascending
    counts: Rows  #: (nodes,) potential victims of each
    violating: Bools  #: (rows,)
    reprieve_order: Rows  #: (rows,) positions in the order of the reprieve, node by node
    reprieved: Rows  #: (rows,) pods in that order
    held: tuple[int, ...]  #: pods that each rule of `victims.forbid` held back, the first of them
    #: rules of `victims.forbid` whose condition had no value, with the pods (rows)
    without_value: tuple[tuple[int, Rows], ...]

    def at(self, node: int) -> Potential:
        """Those of one of the nodes."""
        place = int(np.searchsorted(self.nodes, node))
        start = int(self.counts[:place].sum())
        here = slice(start, start + int(self.counts[place]))
        return replace(
            self,
            rows=self.rows[here],
            group=np.zeros(here.stop - start, dtype=np.int64),
            nodes=self.nodes[place : place + 1],
            counts=self.counts[place : place + 1],
            violating=self.violating[here],
            reprieve_order=self.reprieve_order[here] - start,
            reprieved=self.reprieved[here],
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DryRun:
    """What the dry run found on the nodes it looked at.

    Victims of candidate i are `victims[offsets[i]:offsets[i + 1]]`, in the order ranking reads.
    """

    potential: Potential  #: on all nodes that were looked at
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


def potential_victims(
    *,
    rules: VictimRules,
    snapshot: Snapshot,
    order: NodeOrder,
    allowed: Bools,
    violating: Bools,
    nodes: Rows,
    variables: Lazy,
    history: History,
) -> Potential:
    """Allowed pods of the nodes; forbidden ones are left out.

    allowed, violating: (pods,), of `allowed_victims` and `budget_violations`; nodes: ascending.
    """
    rows, group = order.on(nodes)
    may = allowed[rows]
    if not may.all():
        rows, group = rows[may], group[may]
    held = [0] * len(rules.forbid)
    without_value = []
    if rules.forbid and rows.size:
        also = variables.also({"victim.pdbViolating": lambda: BoolColumn(violating)})
        columns = Columns(len(snapshot.pods), also, history).take(rows.astype(np.intp))
        forbidden = np.zeros(rows.size, dtype=np.bool_)
        for i, rule in enumerate(rules.forbid):
            holds = ~forbidden
            if rule.when is not None:
                found = rule.when.evaluate(columns)
                if found.errors is not None:
                    without_value.append((i, rows[holds & found.errors]))
                holds &= found.holds(rows.size, rule.on_error)
            held[i] = int(holds.sum())
            forbidden |= holds
        rows, group = rows[~forbidden], group[~forbidden]
    counts = np.bincount(group, minlength=nodes.size)
    broken = violating[rows]
    reprieve_order = _reprieve_order(group, counts, broken, rules.reprieve)
    return Potential(
        rows=rows,
        group=group,
        nodes=nodes,
        counts=counts,
        violating=broken,
        reprieve_order=reprieve_order,
        reprieved=rows[reprieve_order],
        held=tuple(held),
        without_value=tuple(without_value),
    )


def _reprieve_order(
    group: Rows, counts: Rows, violating: Bools, parts: tuple[ReprieveGroup, ...]
) -> Rows:
    """Positions in the order in which potential victims are put back, node by node."""
    if parts == (ReprieveGroup.ALL,) or not violating.any():
        return np.arange(group.size)
    earlier = violating
    if parts[0] is ReprieveGroup.OTHERS:
        earlier = ~earlier
    # A stable partition of every group: both parts keep their order, so where a pod goes is its
    # number within its part, moved by what the group's other part and other groups take up.
    ahead, behind = np.flatnonzero(earlier), np.flatnonzero(~earlier)
    of_ahead, of_behind = group[ahead], group[behind]
    numbers = np.bincount(of_ahead, minlength=counts.size)
    before = np.cumsum(numbers)
    order = np.empty(group.size, dtype=np.int64)
    order[np.arange(ahead.size) + (starts_of(counts) - before + numbers)[of_ahead]] = ahead
    order[np.arange(behind.size) + before[of_behind]] = behind
    return order


def dry_run(
    pipeline: Pipeline, potential: Potential, rules: VictimRules, importance: Importance
) -> DryRun:
    """Victims on each of `potential.nodes`."""
    # In five phases, each on all nodes at once:
    # 1. Clear: all potential victims of a node leave; their demand is taken off its load.
    # 2. Fit: where the preemptor does not pass the filters then, the node is no candidate.
    # 3. Reprieve: on the other nodes pods come back one after the other in reprieve order, as
    #    long as the preemptor still passes. Where filters only set limits to loads, running sums
    #    find the first pod of each node that cannot come back.
    # 4. List: who could not come back is a victim, in reprieve order or by importance again.
    # 5. Judge: a node without victims or with too many is no candidate; the others are told with
    #    the budgets that they violate, and the nodes that failed with the reason.
    nodes, counts = potential.nodes, potential.counts
    demand = pipeline.demand(potential.reprieved, nodes[potential.group])
    leaving = np.zeros((demand.shape[1], counts.size), dtype=np.int64).T
    for column in range(demand.shape[1]):
        leaving[:, column] = segment_sums(demand[:, column], counts)
    load = pipeline.without(pipeline.base[nodes], leaving)
    tried = counts > 0
    if rules.none_eligible is NoneEligible.CANDIDATE:
        tried = np.ones(nodes.size, dtype=np.bool_)
    fits = tried & pipeline.passes(load, nodes)

    active = np.flatnonzero(fits)
    ceiling = pipeline.ceiling(nodes[active])
    adds_up = all(sums_safely(demand[:, column]) for column in range(demand.shape[1]))
    if ceiling is not None and adds_up:
        evicted = _reprieve_within(ceiling - load[active], demand, leaving, counts, active)
    else:
        evicted = _reprieve(pipeline, load, demand, nodes, counts, active)
    listed = potential.reprieve_order[np.flatnonzero(evicted)]
    if rules.relist:
        again = (
            np.arange(listed.size) if importance.relists_all else _crossed(listed, potential.group)
        )
        some = listed[again]
        listed[again] = some[importance.listed(potential.rows[some], potential.group[some])]
    return _listed(pipeline, potential, rules, load, tried=tried, fits=fits, listed=listed)


def _crossed(listed: Rows, group: Rows) -> Rows:
    """Positions of victims on nodes where they do not stand in importance order already."""
    node = group[listed]
    falls = np.flatnonzero((listed[1:] < listed[:-1]) & (node[1:] == node[:-1]))
    crossed = np.zeros(int(node[-1]) + 1 if node.size else 0, dtype=np.bool_)
    crossed[node[falls]] = True
    return np.flatnonzero(crossed[node])


def _reprieve(
    pipeline: Pipeline,
    load: Ints,
    demand: Ints,
    nodes: Rows,
    counts: Rows,
    active: Rows,
) -> Bools:
    """Put potential victims back one by one, the k-th of every node in one step.

    Returns (rows,) bool: who cannot stay.
    """
    evicted = np.zeros(demand.shape[0], dtype=np.bool_)
    # Longest first: the nodes that still have a k-th potential victim are then a prefix.
    active = active[np.argsort(-counts[active], kind="stable")]
    first = starts_of(counts)[active]
    held, remaining, where = load[active], counts[active], nodes[active]
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


def _reprieve_within(slack: Ints, demand: Ints, leaving: Ints, counts: Rows, active: Rows) -> Bools:
    """`_reprieve` where staying means no more than keeping every load within `slack`.

    slack: (active, width); leaving: (nodes, width), the demand of all pods of a node. Loads only
    grow, so the pods up to the first that does not fit all stay: running sums tell who that is
    for all nodes at once, and only what comes after is tried one by one. The sums run on over all
    nodes: they must add up safely (`sums_safely`).
    """
    evicted = np.zeros(demand.shape[0], dtype=np.bool_)
    some = counts[active] > 0
    active, slack = active[some], slack[some]
    # A load that stays within its limits with every pod back in place stands in no way.
    binding = np.flatnonzero((leaving[active] > slack).any(axis=0)).tolist()
    first = starts_of(counts)[active]
    within = np.ones(demand.shape[0], dtype=np.bool_)
    limits = np.zeros(counts.size, dtype=np.int64)
    rooms = []
    for column in binding:
        wanted = demand[:, column]
        running = np.cumsum(wanted)
        # More room than all pods want together is as good as that.
        room = np.minimum(slack[:, column], SAFE)
        limits[active] = room + running[first] - wanted[first]
        within &= running <= np.repeat(limits, counts)
        rooms.append((wanted, running, limits[active]))
    stay = segment_sums(within, counts)[active]
    rest = counts[active] - stay
    more = np.flatnonzero(rest)
    more = more[np.argsort(-rest[more], kind="stable")]
    rest, next_ = rest[more], first[more] + stay[more]
    left = [limit[more] - running[next_] + wanted[next_] for wanted, running, limit in rooms]
    longest = int(rest[0]) if more.size else 0
    ends = np.searchsorted(-rest, -np.arange(longest), side="left")
    for k in range(longest):
        n = int(ends[k])
        position = next_[:n] + k
        asked = [wanted[position] for wanted, _, _ in rooms]
        stays = np.ones(n, dtype=np.bool_)
        for free, want in zip(left, asked, strict=True):
            stays &= want <= free[:n]
        for free, want in zip(left, asked, strict=True):
            free[:n] -= want * stays
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
        potential=potential,
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
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Attempt:
    """One potential victim of one node being put back."""

    row: int
    violating: bool
    reprieved: bool
    filter: str
    reasons: tuple[str, ...]


def attempts(pipeline: Pipeline, potential: Potential, victims: Rows) -> list[Attempt]:
    """The reprieve on one node told step by step.

    potential: of that node alone; victims: rows of the pods that the dry run evicts there. What
    each step met follows from who came back before, so all steps are judged in one go.
    """
    node = np.repeat(potential.nodes, potential.rows.size)
    demand = pipeline.demand(potential.reprieved, node)
    load = pipeline.without(pipeline.base[potential.nodes], demand.sum(axis=0)[None, :])
    left = np.isin(potential.reprieved, victims)
    kept = np.where(left[:, None], 0, demand)
    before = load + np.cumsum(kept, axis=0) - kept
    judged = pipeline.judge(before + demand, node)
    told = []
    for i, position in enumerate(potential.reprieve_order.tolist()):
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
