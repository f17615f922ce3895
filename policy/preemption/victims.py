"""The dry run: on every potential node at once, who would have to leave?

On each node all potential victims are taken away; where the preemptor then fits, they are put
back one after the other in the order of the rule set, and who cannot come back is a victim. The
k-th potential victims of all nodes are put back in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.cluster.budgets import BudgetUse, violations
from policy.cluster.occupancy import PodsByNode
from policy.cluster.snapshot import OnNodes, Rows, Snapshot
from policy.cluster.tables import NOWHERE, Bools, Ints, taken
from policy.filters.pipeline import Pipeline, StatusOfNode
from policy.preemption.columns import Lazy, lasting_inputs
from policy.preemption.importance import Importance
from policy.preemption.running_totals import RunningTotals
from policy.preemption.segments import gathered, segment_sums, starts_of
from policy.rules.expressions import BoolColumn, Columns, Evaluated, Expression, History
from policy.rules.ruleset import (
    BudgetRules,
    NodesWithoutVictims,
    ReprieveGroup,
    Rule,
    Verdict,
    VictimRules,
)

_NO_RULE = -1


@dataclass(frozen=True, eq=False, kw_only=True)
class Allowed:
    """Which pods the rules allow as victims, and which rule said so.

    Only pods on nodes are looked at: what is said of others may be what was true of them before.
    """

    pods: Bools  #: (pods,) none that is on no node
    rule: NDArray[np.int16]  #: (pods,) index of the rule that decided, -1 for the default
    rules: int  #: how many there are
    #: rules whose condition had no value for pods that no rule before decided, with those pods
    without_value: tuple[tuple[int, Bools], ...]
    node: NDArray[np.int32]  #: (pods,) index of the node that each is on, NOWHERE without one

    @cached_property
    def decided(self) -> list[int]:
        """`decided_among` the pods on all nodes."""
        pods = self.node >= 0
        # By comparison, rule by rule: there are few, and each is a fraction of a bincount.
        return [int(np.count_nonzero((self.rule == i) & pods)) for i in range(-1, self.rules)]

    def decided_among(self, pods: Rows) -> list[int]:
        """How many of some pods (rows) no rule decided, then how many each one did."""
        found = np.bincount(self.rule.take(pods) + np.int16(1), minlength=self.rules + 1)
        return cast("list[int]", found.tolist())


def allowed_victims(
    rules: tuple[Rule, ...], snapshot: Snapshot, variables: Lazy, history: History
) -> Allowed:
    """First matching rule decides; where none matches, a pod may not be a victim.

    A condition without a value counts as the rule's `on_error` says.
    """
    names = sorted({name for rule in rules if rule.when for name in rule.when.variables})
    inputs = lasting_inputs(snapshot, variables, names)
    if inputs is None or any(rule.when and rule.when.history_needs for rule in rules):
        return _allowed_victims(rules, snapshot, variables, history)
    node = snapshot.node
    counting = (OnNodes(i, node) if isinstance(i, np.ndarray) else i for i in inputs)
    # Pods that wait together mostly have one of a few priorities.
    return snapshot.remembered(
        "allowed",
        (rules, node, *counting),
        lambda: _allowed_victims(rules, snapshot, variables, history),
    )


def _holding(when: Expression, snapshot: Snapshot, variables: Lazy, columns: Columns) -> Evaluated:
    """The condition of every pod, kept where it does not depend on the instant."""
    inputs = lasting_inputs(snapshot, variables, when.variables)
    if inputs is None or when.history_needs:
        return when.evaluate(columns)
    name = f"{when.context.value} {when.source}"
    return snapshot.remembered(name, inputs, lambda: when.evaluate(columns))


def _allowed_victims(
    rules: tuple[Rule, ...], snapshot: Snapshot, variables: Lazy, history: History
) -> Allowed:
    size = len(snapshot.pods)
    columns = Columns(size, variables, history)
    decided = np.full(size, _NO_RULE, dtype=np.int16)
    pods = np.zeros(size, dtype=np.bool_)
    without_value = []
    for i, rule in enumerate(rules):
        matched = decided == _NO_RULE
        if rule.when is not None:
            found = _holding(rule.when, snapshot, variables, columns)
            if found.errors is not None:
                without_value.append((i, matched & found.errors))
            matched &= found.holds(size, rule.on_error)
        np.copyto(decided, i, where=matched)
        if rule.verdict is Verdict.ALLOW:
            pods |= matched
    pods &= snapshot.node >= 0
    # Of most priorities it is the same pods: what is computed of them is found sooner so.
    pods = snapshot.remembered("allowed-pods", (pods,), lambda: pods)
    return Allowed(
        pods=pods,
        rule=decided,
        rules=len(rules),
        without_value=tuple(without_value),
        node=snapshot.node,
    )


def budget_violations(
    rules: BudgetRules, snapshot: Snapshot, order: PodsByNode, allowed: Bools
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
class Companions:
    """The pods behind each potential victim: it alone, or the whole group that leaves with it.

    Potential victim i stands for `rows[offsets[i]:offsets[i + 1]]`, the most important pod first.
    """

    rows: Rows  #: pods, also those on other nodes
    offsets: Rows  #: (potential victims + 1,)
    here: Bools  #: parallel to `rows`: the pod is on the node from which the victim is to leave

    def at(self, some: slice) -> Companions:
        """Those of some potential victims that follow each other."""
        first, last = int(self.offsets[some.start]), int(self.offsets[some.stop])
        return Companions(
            rows=self.rows[first:last],
            offsets=self.offsets[some.start : some.stop + 1] - first,
            here=self.here[first:last],
        )

    def demand(self, pipeline: Pipeline, nodes: Rows, order: Rows) -> Ints:
        """What the pods on the node take up together; shape (order, width).

        nodes: (potential victims,) node indexes; order: potential victims.
        """
        owner = np.arange(nodes.size).repeat(np.diff(self.offsets))[self.here]
        single = pipeline.demand(self.rows[self.here], nodes[owner])
        counts = np.bincount(owner, minlength=nodes.size)
        # Column by column in memory, as every demand.
        summed = np.zeros((single.shape[1], order.size), dtype=np.int64)
        for column in range(single.shape[1]):
            summed[column] = segment_sums(single[:, column], counts)[order]
        return summed.T


@dataclass(frozen=True, eq=False, kw_only=True)
class PotentialVictims:
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
    #: the pods that leave with each of `rows`; None where every pod leaves alone
    companions: Companions | None = None

    @cached_property
    def on(self) -> Rows:
        """(rows,) the node of each."""
        return self.nodes.take(self.group)

    def has(self, node: int) -> bool:
        place = int(np.searchsorted(self.nodes, node))
        return place < self.nodes.size and int(self.nodes[place]) == node

    def none_on(self, node: int) -> PotentialVictims:
        """No potential victims, on another node."""
        nothing = np.zeros(0, dtype=np.int64)
        return replace(
            self,
            rows=nothing,
            group=nothing,
            nodes=np.array([node], dtype=np.int64),
            counts=np.zeros(1, dtype=np.int64),
            violating=np.zeros(0, dtype=np.bool_),
            reprieve_order=nothing,
            reprieved=nothing,
            companions=None,
        )

    @property
    def pods(self) -> Rows:
        """All pods that may leave, those that leave with others included."""
        return self.rows if self.companions is None else self.companions.rows

    def demand(self, pipeline: Pipeline) -> Ints:
        """What each takes up of its node, in the order of the reprieve; shape (rows, width)."""
        if self.companions is None:
            return pipeline.demand(self.reprieved, self.on)
        return self.companions.demand(pipeline, self.on, self.reprieve_order)

    def at(self, node: int) -> PotentialVictims:
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
            companions=None if self.companions is None else self.companions.at(here),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DryRun:
    """What the dry run found on the nodes it looked at.

    Victims of candidate i are `victims[offsets[i]:offsets[i + 1]]`, in the order ranking reads.
    """

    #: on all nodes that were looked at, each on one of them; empty where equal pods share findings
    potentials: tuple[PotentialVictims, ...]
    nodes: Rows  #: (candidates,) node indexes, ascending
    victims: Rows  #: rows of pods
    offsets: Rows  #: (candidates + 1,)
    violating: Bools  #: parallel to `victims`
    pdb_violations: Ints  #: (candidates,)
    failed: Rows  #: node indexes that are no candidate although pods may be evicted there
    #: parallel to `failed`: without their potential victims; empty like `potentials`
    failed_load: Ints
    without_victims: Rows  #: node indexes on which no pod may be evicted
    over_limit: Rows  #: node indexes left out because of `maxVictims`
    needed: Rows  #: parallel to `over_limit`: victims that it would take
    needless: Rows  #: node indexes on which everybody could come back
    #: sort keys of the candidates by ranking criterion, of those that equal pods share
    values: Mapping[str, Ints] = field(default_factory=dict)
    #: node indexes that are no candidate because the pod would not fit once the pods that leave
    #: with the victims are gone from other nodes
    unfit: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def held(self) -> tuple[int, ...]:
        """Pods that each rule of `victims.forbid` held back, the first of them."""
        return tuple(map(sum, zip(*(p.held for p in self.potentials), strict=True)))

    def looked_at(self, node: int) -> bool:
        """Was there a dry run of the candidate? An extender may name another node."""
        return not self.potentials or any(p.has(node) for p in self.potentials)

    def potential_on(self, node: int) -> PotentialVictims:
        """Potential victims of a node; none where an extender named one that was not looked at."""
        for potential in self.potentials:
            if potential.has(node):
                return potential.at(node)
        return self.potentials[0].none_on(node)

    def only(self, nodes: Bools) -> DryRun:
        """What was found on some of the nodes; nodes: (all nodes,) bool."""
        candidates = nodes.take(self.nodes).nonzero()[0]
        flat, offsets = gathered(self.offsets, candidates)
        failed = nodes.take(self.failed).nonzero()[0]
        return DryRun(
            potentials=self.potentials,
            nodes=self.nodes[candidates],
            victims=self.victims[flat],
            offsets=offsets,
            violating=self.violating[flat],
            pdb_violations=self.pdb_violations[candidates],
            failed=self.failed[failed],
            failed_load=taken(self.failed_load, failed),
            without_victims=self.without_victims[nodes.take(self.without_victims)],
            over_limit=self.over_limit[nodes.take(self.over_limit)],
            needed=self.needed[nodes.take(self.over_limit)],
            needless=self.needless[nodes.take(self.needless)],
            unfit=self.unfit[nodes.take(self.unfit)],
        )

    def without(self, candidates: Bools) -> DryRun:
        """Some candidates are none: the pod would not fit. candidates: (candidates,) bool."""
        flat, offsets = gathered(self.offsets, (~candidates).nonzero()[0])
        return replace(
            self,
            nodes=self.nodes[~candidates],
            victims=self.victims[flat],
            offsets=offsets,
            violating=self.violating[flat],
            pdb_violations=self.pdb_violations[~candidates],
            unfit=self.nodes[candidates],
        )


def joined(parts: Sequence[DryRun]) -> DryRun:
    """What several dry runs of different nodes found; what is on a node depends on no other."""
    nodes = np.concatenate([part.nodes for part in parts])
    by_name = np.argsort(nodes)
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    flat, offsets = gathered(np.concatenate([[0], counts.cumsum()]), by_name)
    failed = np.concatenate([part.failed for part in parts])
    failed_by_name = np.argsort(failed)
    over_limit = np.concatenate([part.over_limit for part in parts])
    over_by_name = np.argsort(over_limit)
    return DryRun(
        potentials=tuple(potential for part in parts for potential in part.potentials),
        nodes=nodes[by_name],
        victims=np.concatenate([part.victims for part in parts])[flat],
        offsets=offsets,
        violating=np.concatenate([part.violating for part in parts])[flat],
        pdb_violations=np.concatenate([part.pdb_violations for part in parts])[by_name],
        failed=failed[failed_by_name],
        failed_load=taken(np.concatenate([p.failed_load for p in parts]), failed_by_name),
        without_victims=np.sort(np.concatenate([part.without_victims for part in parts])),
        over_limit=over_limit[over_by_name],
        needed=np.concatenate([part.needed for part in parts])[over_by_name],
        needless=np.sort(np.concatenate([part.needless for part in parts])),
        unfit=np.sort(np.concatenate([part.unfit for part in parts])),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AllowedOnNodes:
    """Allowed pods of some nodes, the most important of each node first."""

    nodes: Rows  #: node indexes, ascending
    rows: Rows  #: pods, node by node
    group: Rows  #: (rows,) position in `nodes`

    @staticmethod
    def of(order: PodsByNode, allowed: Bools, nodes: Rows) -> AllowedOnNodes:
        """allowed: (pods,), of `allowed_victims`."""
        rows, group = order.on(nodes)
        may = allowed.take(rows).nonzero()[0]
        if may.size < rows.size:
            rows, group = rows.take(may), group.take(may)
        return AllowedOnNodes(nodes=nodes, rows=rows, group=group)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeldBack:
    """What rules of `victims.forbid` leave of some allowed pods."""

    left: Bools  #: parallel to the pods
    numbers: tuple[int, ...]  #: of pods that each rule held back, the first of them
    #: rules whose condition had no value, with the pods (rows, in no order)
    without_value: tuple[tuple[int, Rows], ...]

    @property
    def parts(self) -> tuple[object, ...]:
        """All that it says, to be compared."""
        rows = (part for without in self.without_value for part in without)
        return (self.left, self.numbers, *rows)


def held_back(
    rules: tuple[Rule, ...],
    snapshot: Snapshot,
    rows: Rows,
    violating: Bools,
    variables: Lazy,
    history: History,
) -> HeldBack:
    """What rules of `victims.forbid` say of allowed pods.

    rows: pods; violating: (pods,), of `budget_violations`.
    """
    also = variables.also({"victim.pdbViolating": lambda: BoolColumn(violating)})
    columns = Columns(len(snapshot.pods), also, history)
    # Of most pods, columns as they lie are gone through sooner than values are taken from them.
    whole = 2 * rows.size > columns.size and all(
        rule.when is None or rule.when.vectorised for rule in rules
    )
    if whole:
        left = np.zeros(columns.size, dtype=np.bool_)
        left[rows] = True
    else:
        columns = columns.take(rows)
        left = np.ones(rows.size, dtype=np.bool_)
    numbers, without_value = [], []
    for i, rule in enumerate(rules):
        holds = left
        if rule.when is not None and rows.size:
            found = rule.when.evaluate(columns)
            if found.errors is not None:
                at = (left & found.errors).nonzero()[0]
                without_value.append((i, at if whole else rows.take(at)))
            holds = left & found.holds(left.size, rule.on_error)
        numbers.append(int(np.count_nonzero(holds)))
        left = left & ~holds
    return HeldBack(
        left=left.take(rows) if whole else left,
        numbers=tuple(numbers),
        without_value=tuple(without_value),
    )


def potential_victims(
    here: AllowedOnNodes,
    held: HeldBack | None,
    violating: Bools,
    reprieve: tuple[ReprieveGroup, ...],
) -> PotentialVictims:
    """Allowed pods of some nodes without those that are held back.

    held: of `here.rows`, None without rules of `victims.forbid`; violating: (pods,), of
    `budget_violations`.
    """
    nodes, rows, group = here.nodes, here.rows, here.group
    if held is not None and any(held.numbers):
        kept = held.left.nonzero()[0]
        rows, group = rows.take(kept), group.take(kept)
    counts = np.bincount(group, minlength=nodes.size)
    broken = violating.take(rows)
    reprieve_order = in_reprieve_order(group, counts, broken, reprieve)
    return PotentialVictims(
        rows=rows,
        group=group,
        nodes=nodes,
        counts=counts,
        violating=broken,
        reprieve_order=reprieve_order,
        reprieved=rows.take(reprieve_order),
        held=() if held is None else held.numbers,
        without_value=() if held is None else held.without_value,
    )


def in_reprieve_order(
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
    ahead, behind = earlier.nonzero()[0], (~earlier).nonzero()[0]
    of_ahead, of_behind = group[ahead], group[behind]
    numbers = np.bincount(of_ahead, minlength=counts.size)
    before = numbers.cumsum()
    order = np.empty(group.size, dtype=np.int64)
    order[np.arange(ahead.size) + (starts_of(counts) - before + numbers)[of_ahead]] = ahead
    order[np.arange(behind.size) + before[of_behind]] = behind
    return order


def dry_run(
    pipeline: Pipeline, potential: PotentialVictims, rules: VictimRules, importance: Importance
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
    #    the budgets that they violate, and the nodes that failed with what is still on them.
    nodes, counts = potential.nodes, potential.counts
    demand = potential.demand(pipeline)
    if nodes.size < len(pipeline.incoming.snapshot.nodes):  # not soon asked for again
        totals = RunningTotals.of(demand, counts)
    else:
        totals = pipeline.incoming.snapshot.remembered(
            "running-totals",
            (demand, counts),
            lambda: RunningTotals.of(demand, counts, kept=True),
        )
    every = pipeline.incoming.snapshot.nodes.every
    base = pipeline.base if nodes is every else taken(pipeline.base, nodes)
    load = pipeline.without(base, totals.leaving)
    tried = counts > 0
    if rules.nodes_without_victims is NodesWithoutVictims.TRIED:
        tried = np.ones(nodes.size, dtype=np.bool_)
    fits = tried & pipeline.passes(load, nodes)

    active, held = fits.nonzero()[0], load
    if active.size == every.size:
        active = every
    else:
        held = taken(load, active)
    ceiling = pipeline.ceiling(nodes if active is every else nodes[active])
    if ceiling is not None and totals.limited:
        evicted, group = totals.evicted(ceiling - held, active)
    else:
        evicted = _reprieve(pipeline, load, demand, nodes, counts, active).nonzero()[0]
        # The reprieve goes node by node: whoever is listed in its order is on the same node.
        group = potential.group.take(evicted)
    listed = potential.reprieve_order.take(evicted)
    if rules.sorted_again:
        again = np.arange(listed.size) if importance.sorts_all_again else _crossed(listed, group)
        if again.size:
            some = listed[again]
            listed[again] = some[importance.listed(potential.rows[some], group[again])]
    return _listed(potential, rules, load, tried=tried, fits=fits, listed=listed, group=group)


def _crossed(listed: Rows, group: Rows) -> Rows:
    """Positions of victims on nodes where they do not stand in importance order already.

    group: (listed,) ascending, the node of each.
    """
    falls: Rows = ((listed[1:] < listed[:-1]) & (group[1:] == group[:-1])).nonzero()[0]
    if not falls.size:
        return falls
    crossed = np.zeros(int(group[-1]) + 1, dtype=np.bool_)
    crossed[group[falls]] = True
    places: Rows = crossed.take(group).nonzero()[0]
    return places


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
        back = taken(demand, position)
        # Nearly all stay: they are put back at once, and who cannot stay is taken off again.
        held = held[:n] + back
        leaves = (~pipeline.passes(held, where[:n])).nonzero()[0]
        held[leaves] -= back[leaves]
        evicted[position[leaves]] = True
    return evicted


def _listed(
    potential: PotentialVictims,
    rules: VictimRules,
    load: Ints,
    *,
    tried: Bools,
    fits: Bools,
    listed: Rows,
    group: Rows,
) -> DryRun:
    """The result for each node from the positions of all victims in the order of their listing.

    group: (listed,) ascending, the node of each.
    """
    nodes = potential.nodes
    violating = potential.violating.take(listed)
    victims = potential.rows.take(listed)
    if potential.companions is not None:
        flat, offsets = gathered(potential.companions.offsets, listed)
        victims, sizes = potential.companions.rows[flat], np.diff(offsets)
        group, violating = group.repeat(sizes), violating.repeat(sizes)
    victim_counts = np.bincount(group, minlength=nodes.size)
    broken = np.bincount(group.take(violating.nonzero()[0]), minlength=nodes.size)
    needless = np.zeros(nodes.size, dtype=np.bool_)
    if rules.nodes_without_victims is NodesWithoutVictims.SKIPPED:
        needless = fits & (victim_counts == 0)
    over = np.zeros(nodes.size, dtype=np.bool_)
    if rules.max_victims is not None:
        over = fits & (victim_counts > rules.max_victims)
        within = (~over.take(group)).nonzero()[0]
        victims, violating = victims.take(within), violating.take(within)
    chosen = (fits & ~needless & ~over).nonzero()[0]
    offsets = np.zeros(chosen.size + 1, dtype=np.int64)
    victim_counts[chosen].cumsum(out=offsets[1:])
    failing = (tried & ~fits).nonzero()[0]
    return DryRun(
        potentials=(potential,),
        nodes=nodes[chosen],
        victims=victims,
        offsets=offsets,
        violating=violating,
        pdb_violations=broken[chosen].astype(np.int64),
        failed=nodes[failing],
        failed_load=taken(load, failing),
        without_victims=nodes[~tried],
        over_limit=nodes[over],
        needed=victim_counts[over],
        needless=nodes[needless],
    )


class Attempt(msgspec.Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """One potential victim of one node being put back."""

    row: int
    lead: int  #: row of the pod by whose importance it is tried; its own, but of whole groups
    violating: bool
    reprieved: bool
    ahead_of: int  #: row of the next pod behind a reprieved one that had to leave, or NOWHERE
    filter: str
    reasons: tuple[str, ...]


def attempts(pipeline: Pipeline, potential: PotentialVictims, victims: Rows) -> list[Attempt]:
    """The reprieve on one node told step by step.

    potential: of that node alone; victims: rows of the pods that the dry run evicts there. What
    each step met follows from who came back before, so all steps are judged in one go.
    """
    node = potential.nodes.repeat(potential.rows.size)
    demand = potential.demand(pipeline)
    load = pipeline.without(pipeline.base[potential.nodes], demand.sum(axis=0)[None, :])
    gone = set(victims.tolist())
    left = np.array([row in gone for row in potential.reprieved.tolist()], dtype=np.bool_)
    kept = np.where(left[:, None], 0, demand)
    before = load + kept.cumsum(axis=0) - kept
    failing = left.nonzero()[0]
    judged = pipeline.judge((before + demand)[failing], node[failing])
    why = dict(zip(failing.tolist(), judged.index.tolist(), strict=True))
    rows = potential.reprieved.tolist()
    violating = potential.violating[potential.reprieve_order].tolist()
    met = [judged.statuses[why[i]] if i in why else None for i in range(len(rows))]
    return _of_every_pod(potential, steps(rows, violating, met))


def steps(
    rows: Sequence[int], violating: Sequence[bool], met: Sequence[StatusOfNode | None]
) -> list[Attempt]:
    """The steps of a reprieve on one node, in its order.

    met: what each pod would have failed by; None for who came back.
    """
    told: list[Attempt] = []
    behind = NOWHERE
    for row, violates, status in zip(
        reversed(rows), reversed(violating), reversed(met), strict=True
    ):
        _, name, reasons = status or (0, "", ())
        told.append(
            Attempt(
                row=row,
                lead=row,
                violating=violates,
                reprieved=status is None,
                ahead_of=behind if status is None else NOWHERE,
                filter=name,
                reasons=reasons,
            )
        )
        if status is not None:
            behind = row
    return told[::-1]


def _of_every_pod(potential: PotentialVictims, told: list[Attempt]) -> list[Attempt]:
    """The steps for each pod, where some leave together. told: in the order of the reprieve."""
    companions = potential.companions
    if companions is None:
        return told
    bounds = companions.offsets
    return [
        msgspec.structs.replace(step, row=row)
        for step, entry in zip(told, potential.reprieve_order.tolist(), strict=True)
        for row in companions.rows[bounds[entry] : bounds[entry + 1]].tolist()
    ]
