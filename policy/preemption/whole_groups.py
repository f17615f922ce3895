"""Whole groups as victims of an ordinary pod (`groups.units.ordinary: whole`).

The running pods of a group in disruption mode `PodGroup` leave together, on whichever nodes they
are, or not at all. On each node where some of them run they count as one potential victim:

- It may leave where every one of its pods may by the rules, and the group's own priority is lower
  than the preemptor's. A pod never takes its own group.
- It stands where its most important pod does, and is put back as one.
- Removing it counts for the budgets of all its pods. One that breaks a budget makes all violate.

Room is looked for on one node; what its pods take up elsewhere matters only to filters that look
beyond the node (spread, affinity). Those see them in place during the dry run; a candidate on
which the pod would not fit without them is none.

No generation of kube-scheduler up to 1.36 does this; 1.37 will do something alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from policy.cluster.budgets import BudgetIndex
from policy.cluster.members import GROUP, Together
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import LABELS, NOWHERE, Bools, Ints
from policy.decision.model import BudgetCount
from policy.filters.base import Incoming
from policy.filters.pipeline import Pipeline
from policy.preemption.segments import gathered
from policy.preemption.victims import (
    Allowed,
    Companions,
    DryRun,
    PotentialVictims,
    in_reprieve_order,
)
from policy.rules.group_rules import OrdinaryVictims
from policy.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from policy.preemption.context import DecisionContext


UNITS: Final = "groups.units"
"""The section of a rule file that keeps pods in place because of their group."""


def kept_because(rules: RuleSet) -> str:
    """Why a pod that the rules of `victims` allow stays where its group does."""
    whole = rules.groups is not None and rules.groups.units.ordinary is OrdinaryVictims.WHOLE
    if whole:
        return "its pod group leaves as a whole or not at all, and may not leave"
    return "its pod group leaves as a whole, and not for a single pod"


def keeps_together(snapshot: Snapshot, rules: RuleSet) -> bool:
    """May pods that the rules of `victims` allow have to stay because of their group?"""
    return (
        rules.groups is not None
        and rules.groups.units.whole_groups
        and rules.groups.units.ordinary is not OrdinaryVictims.PODS
        and bool(Together.on(snapshot).groups)
    )


def kept_together(incoming: Incoming, rules: RuleSet, allowed: Allowed) -> Bools:
    """Pods that may leave by the rules and stay because of their group; shape (pods,)."""
    snapshot = incoming.snapshot
    kept = np.zeros(len(snapshot.pods), dtype=np.bool_)
    if rules.groups is None or not keeps_together(snapshot, rules):
        return kept
    ordinary = rules.groups.units.ordinary
    together = Together.on(snapshot)
    sizes = np.diff(together.offsets)
    if ordinary is OrdinaryVictims.NONE:
        stays = sizes > 1
    else:
        group = np.repeat(np.arange(sizes.size), sizes)
        denied = np.bincount(group, weights=~allowed.pods[together.rows], minlength=sizes.size) > 0
        priorities = np.array([g.spec.priority or 0 for g in together.groups], dtype=np.int64)
        own = snapshot.column(GROUP)[together.rows[together.offsets[:-1]]]
        is_own = (own == snapshot.column(GROUP)[incoming.row]) & (own != NOWHERE)
        stays = denied | (priorities >= incoming.priority) | is_own
    kept[together.rows] = np.repeat(stays, sizes)
    return kept & allowed.pods


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Entries:
    """Allowed pods of some nodes, those of one group on one node as one potential victim."""

    leads: Rows  #: (entries,) the pod by whose importance each is tried
    group: Rows  #: (entries,) position of the node, ascending
    companions: Companions


class WholeGroups:
    """The groups of a snapshot that leave as one, for one preemptor."""

    def __init__(self, context: DecisionContext, together: Together) -> None:
        self._context = context
        self._snapshot: Snapshot = context.snapshot
        self._of = together.of
        sizes = np.diff(together.offsets)
        group = np.repeat(np.arange(sizes.size), sizes)
        keys = context.importance.keys(together.rows)
        #: parallel to `together.rows`, each group's most important pod first
        self._rows = together.rows[np.lexsort((*reversed(keys), group))]
        self._offsets = together.offsets

    @staticmethod
    def of(context: DecisionContext) -> WholeGroups | None:
        """None where every pod leaves alone."""
        groups = context.rules.groups
        if (
            groups is None
            or not groups.units.whole_groups
            or groups.units.ordinary is not OrdinaryVictims.WHOLE
        ):
            return None
        together = Together.on(context.snapshot)
        return WholeGroups(context, together) if together.groups else None

    # --- potential victims -------------------------------------------------------------------

    def potential(self, found: PotentialVictims) -> PotentialVictims:
        """Potential victims of the same nodes, with groups as one.

        found: pod by pod, without those that `victims.forbid` holds back.
        """
        entries = self._entries(found.nodes)
        pods = entries.companions
        free = self._free.copy()
        free[found.rows] = True
        bound = np.add.reduceat(~free[pods.rows], pods.offsets[:-1]) if pods.rows.size else None
        broken = self._violating(entries)
        if bound is not None and bound.any():
            kept = np.flatnonzero(bound == 0)
            flat, offsets = gathered(pods.offsets, kept)
            pods = Companions(rows=pods.rows[flat], offsets=offsets, here=pods.here[flat])
            entries = _Entries(
                leads=entries.leads[kept], group=entries.group[kept], companions=pods
            )
            broken = broken[kept]
        counts = np.bincount(entries.group, minlength=found.nodes.size)
        order = in_reprieve_order(
            entries.group, counts, broken, self._context.rules.victims.reprieve
        )
        return replace(
            found,
            rows=entries.leads,
            group=entries.group,
            counts=counts,
            violating=broken,
            reprieve_order=order,
            reprieved=entries.leads[order],
            companions=pods,
        )

    @cached_property
    def _free(self) -> Bools:
        """Pods of groups that `victims.forbid` does not hold back; shape (pods,)."""
        free = np.zeros(len(self._snapshot.pods), dtype=np.bool_)
        nodes = np.unique(self._snapshot.node[self._rows]).astype(np.int64)
        rows = self._context.potential_pods(nodes).rows
        free[rows[self._of[rows] != NOWHERE]] = True
        return free

    def _entries(self, nodes: Rows) -> _Entries:
        """Potential victims before `victims.forbid`, the most important of each node first."""
        context = self._context
        rows, group = context.order.on(nodes)
        may = np.flatnonzero(context.allowed.pods.take(rows))
        rows, group = rows.take(may), group.take(may)
        of = self._of[rows]
        firsts = self._rows[self._offsets[:-1]]
        leads = np.where(of == NOWHERE, rows, firsts[of])
        pairs = np.unique(np.stack([group, leads]), axis=1)
        group, leads = pairs[0], pairs[1]
        order = np.lexsort((*reversed(context.importance.keys(leads)), group))
        group, leads = group[order], leads[order]
        of = self._of[leads]
        alone = of == NOWHERE
        sizes = np.where(alone, 1, np.diff(self._offsets)[of])
        offsets = np.zeros(leads.size + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        pods = np.repeat(leads, sizes)
        within = np.arange(pods.size) - np.repeat(offsets[:-1], sizes)
        whole = np.repeat(~alone, sizes)
        pods[whole] = self._rows[(self._offsets[np.repeat(of, sizes)] + within)[whole]]
        here = self._snapshot.node[pods] == np.repeat(nodes[group], sizes)
        return _Entries(
            leads=leads,
            group=group,
            companions=Companions(rows=pods, offsets=offsets, here=here),
        )

    # --- budgets -------------------------------------------------------------------------------

    def _violating(self, entries: _Entries) -> Bools:
        """Which of them would break a budget; shape (entries,)."""
        positions, _, _, after = self._counted(entries)
        pods = entries.companions
        owner = np.repeat(np.arange(entries.leads.size), np.diff(pods.offsets))
        broken = np.zeros(entries.leads.size, dtype=np.bool_)
        broken[owner[positions[after < 0]]] = True
        return broken

    def budget_counts(self, node: int) -> dict[int, list[BudgetCount]]:
        """What potential victims of a node use of the budgets, by the row of each pod."""
        entries = self._entries(np.array([node], dtype=np.int64))
        budgets = BudgetIndex.of(self._snapshot).budgets
        found: dict[int, list[BudgetCount]] = {}
        for position, budget, before, after in zip(
            *(column.tolist() for column in self._counted(entries)), strict=True
        ):
            count = BudgetCount(
                budget=budgets[budget].key,
                disruptions_allowed=budgets[budget].allowed,
                allowed_before=before,
                allowed_after=after,
            )
            found.setdefault(int(entries.companions.rows[position]), []).append(count)
        return found

    def _counted(self, entries: _Entries) -> tuple[Rows, Rows, Ints, Ints]:
        """One row per pod and budget that selects it, each node by itself.

        Positions in `companions.rows`, budgets, disruptions that are left before and after.
        """
        rules, snapshot = self._context.rules.victims.budgets, self._snapshot
        index = BudgetIndex.of(snapshot)
        pods = entries.companions
        positions, budgets = index.pairs(snapshot.column(LABELS)[pods.rows].astype(np.int64))
        if rules.skip_disrupted and index.disrupted and positions.size:
            names = [snapshot.keys[row].split("/", 1)[1] for row in pods.rows[positions].tolist()]
            counted = [
                name not in index.budgets[budget].disrupted
                for name, budget in zip(names, budgets.tolist(), strict=True)
            ]
            positions, budgets = positions[counted], budgets[counted]
        allowed = index.allowed[budgets] if budgets.size else np.zeros(0, dtype=np.int64)
        used = np.ones(positions.size, dtype=np.int64)
        if rules.decrement and positions.size:
            owner = np.repeat(np.arange(entries.leads.size), np.diff(pods.offsets))
            same = entries.group[owner[positions]] * len(index.budgets) + budgets
            order = np.argsort(same, kind="stable")
            starts = np.flatnonzero(np.diff(same[order], prepend=-1))
            lengths = np.diff(np.append(starts, order.size))
            used[order] = np.arange(order.size) - np.repeat(starts, lengths) + 1
        return positions, budgets, allowed - used + 1, allowed - used

    # --- candidates ----------------------------------------------------------------------------

    def checked(self, found: DryRun) -> DryRun:
        """Without candidates on which the pod would not fit once all victims are gone."""
        context = self._context
        if context.pipeline.local or not found.nodes.size:
            return found
        unfit = np.zeros(found.nodes.size, dtype=np.bool_)
        for i, node in enumerate(found.nodes.tolist()):
            victims = found.victims[found.offsets[i] : found.offsets[i + 1]]
            if (self._snapshot.node[victims] != node).any():
                unfit[i] = not self._fits(node, victims)
        return found.without(unfit) if unfit.any() else found

    def _fits(self, node: int, victims: Rows) -> bool:
        """Does the pod pass the filters on the node with the victims gone from all nodes?"""
        incoming = self._context.incoming
        after = self._snapshot.apply(
            [("Pod", self._snapshot.keys[row], None) for row in victims.tolist()]
        )
        row = after.row(incoming.key)
        assert row is not None  # the preemptor is on no node, so no victim
        pipeline = Pipeline(replace(incoming, snapshot=after, row=row), self._context.uses)
        here = np.array([node], dtype=np.int64)
        return bool(pipeline.passes(pipeline.base[here], here)[0])

    def split(self, rows: Rows) -> Iterator[str]:
        """Groups of which only a part is among the pods, by namespace and name."""
        of = self._of[rows]
        names = self._snapshot.pools.named("pod groups").values
        for group in np.unique(of[of != NOWHERE]).tolist():
            whole = self._rows[self._offsets[group] : self._offsets[group + 1]]
            if not np.isin(whole, rows).all():
                yield str(names[int(self._snapshot.column(GROUP)[whole[0]])])
