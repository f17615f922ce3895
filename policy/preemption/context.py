"""What the steps of one cycle share: the pod, the rules, and everything computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from policy.cluster import canonical
from policy.cluster.budgets import BudgetCounts, BudgetIndex, BudgetUse, counted
from policy.cluster.occupancy import PodsByNode
from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, Bools, Ints
from policy.decision.columns import Deferred, Texts
from policy.decision.model import BudgetCount, Code, NodeStatuses, Status
from policy.extenders.evaluate import Consultation
from policy.filters.base import Incoming
from policy.filters.pipeline import Judged, Pipeline
from policy.lazy import once
from policy.preemption.columns import FrozenHistory, pod_variables, uses_of
from policy.preemption.importance import Importance
from policy.preemption.segments import segment_sums
from policy.preemption.victims import (
    Allowed,
    AllowedOnNodes,
    DryRun,
    PotentialVictims,
    allowed_victims,
    budget_violations,
    dry_run,
    held_back,
    potential_victims,
)
from policy.preemption.whole_groups import WholeGroups, keeps_together, kept_together
from policy.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from policy.preemption.classes import PodClass


_DIGITS: Final = 10
"""Numbers below are one character each."""


def _digits(numbers: Ints) -> canonical.Fragment:
    """Canonical text of a list of numbers from 0 to 9; (n,), at least one."""
    # Each with the comma behind it, as one number of two bytes.
    text = (numbers + (ord("0") + (ord(",") << 8))).astype("<u2").tobytes()
    return canonical.Fragment(b"[" + text[:-1] + b"]")


class DecisionContext:
    """One question to the rule set: this pod, on this snapshot, with this seed."""

    def __init__(
        self,
        *,
        incoming: Incoming,
        rules: RuleSet,
        seed: int,
        importance: Callable[..., Importance],
        consultation: Consultation | None = None,
        class_of: Callable[[DecisionContext], PodClass | None] = lambda context: None,
    ) -> None:
        """class_of: what is known of nodes for equal pods (`classes`); by default nothing.

        consultation: with the rule set's extenders, None where it names none.

        importance: makes the order of snapshot, keys, variables and history figures.
        """
        self.incoming = incoming
        self.snapshot = incoming.snapshot
        self.names = incoming.snapshot.nodes.names
        self.rules = rules
        self.seed = seed
        self.consultation = consultation
        self._class_of = class_of
        self.uses = uses_of(rules)
        self.history = FrozenHistory(self.snapshot.history or {})
        self.variables = pod_variables(incoming, self.uses)
        self.importance = importance(
            self.snapshot, rules.victims.importance, self.variables, self.history
        )

    @property
    def nominated(self) -> int:
        """Index of the node that the pod is nominated to, NOWHERE without one."""
        name = self.incoming.pod.status.nominated_node_name
        return self.snapshot.nodes.index.get(name, NOWHERE) if name else NOWHERE

    @once
    def pipeline(self) -> Pipeline:
        """The rule set's filters, built for the pod."""
        return Pipeline(self.incoming, self.uses)

    @once
    def shared(self) -> PodClass | None:
        """What the filters found for equal pods; None on the full path."""
        return self._class_of(self)

    @once
    def shared_victims(self) -> PodClass | None:
        """What the dry run found for equal pods; None on the full path."""
        return None if self.shared is None else self.shared.with_victims(self)

    @once
    def allowed(self) -> Allowed:
        """Which pods of the cluster the rules allow as victims."""
        found = self._allowed_by_rules
        if not keeps_together(self.snapshot, self.rules):
            return found
        return replace(found, pods=found.pods & ~self.kept_together)

    @once
    def _allowed_by_rules(self) -> Allowed:
        return allowed_victims(
            self.rules.victims.eligible, self.snapshot, self.variables, self.history
        )

    @once
    def kept_together(self) -> Bools:
        """Pods that the rules allow and that stay because of their group; shape (pods,)."""
        return kept_together(self.incoming, self.rules, self._allowed_by_rules)

    @once
    def whole_groups(self) -> WholeGroups | None:
        """The groups that leave as one; None where every pod leaves alone."""
        return WholeGroups.of(self)

    @once
    def order(self) -> PodsByNode:
        """Pods of each node from the most important down."""
        return self.importance.order()

    @once
    def violating(self) -> Bools:
        """Allowed victims that would break a budget; shape (pods,)."""
        budgets = self.rules.victims.budgets
        return budget_violations(budgets, self.snapshot, self.order, self.allowed.pods)

    def counted(self, rows: Rows) -> BudgetCounts:
        """What pods that leave each by itself use of the budgets that select them.

        rows: allowed victims.
        """
        rules, snapshot = self.rules.victims.budgets, self.snapshot
        use = BudgetUse.of(snapshot, self.order, skip_disrupted=rules.skip_disrupted)
        return counted(snapshot, use, self.allowed.pods, rows, decrement=rules.decrement)

    def budget_counts(self, node: int, rows: Rows) -> Iterator[tuple[int, BudgetCount]]:
        """What the pods use of the budgets that select them, pod by pod.

        rows: allowed victims on the node, and those that leave with them.
        """
        if self.whole_groups is not None:
            found = self.whole_groups.budget_counts(node)
            yield from ((row, count) for row in rows.tolist() for count in found.get(row, ()))
            return
        counts, budgets = self.counted(rows), BudgetIndex.of(self.snapshot).budgets
        for row, budget, before, after in zip(
            counts.rows.tolist(),
            counts.budgets.tolist(),
            counts.before.tolist(),
            counts.after.tolist(),
            strict=True,
        ):
            yield (
                row,
                BudgetCount(
                    budget=budgets[budget].key,
                    disruptions_allowed=budgets[budget].allowed,
                    allowed_before=before,
                    allowed_after=after,
                ),
            )

    def potential_victims(self, nodes: Rows) -> PotentialVictims:
        """What may be evicted from the nodes (ascending): pods, or whole groups."""
        found = self.potential_pods(nodes)
        return found if self.whole_groups is None else self.whole_groups.potential(found)

    def potential_pods(self, nodes: Rows) -> PotentialVictims:
        """Pods that may be evicted from the nodes (ascending), each by itself."""
        rules, allowed, violating = self.rules.victims, self.allowed.pods, self.violating
        asked = (nodes, self.order, allowed)
        # Some nodes are not soon asked for again.
        every = nodes.size == len(self.names)

        def here() -> AllowedOnNodes:
            return AllowedOnNodes.of(self.order, allowed, nodes)

        if not rules.forbid:

            def build() -> PotentialVictims:
                return potential_victims(here(), None, violating, rules.reprieve)

            if not every:
                return build()
            return self.snapshot.remembered(
                "potential-victims", (*asked, violating, rules.reprieve), build
            )
        # Rules of `forbid` may read anything. They are asked every time, but mostly they hold back
        # the same pods as before.
        among = self.snapshot.remembered("allowed-on-nodes", asked, here) if every else here()
        held = held_back(
            rules.forbid, self.snapshot, among.rows, violating, self.variables, self.history
        )

        def without_held() -> PotentialVictims:
            return potential_victims(among, held, violating, rules.reprieve)

        if not every:
            return without_held()
        return self.snapshot.remembered(
            "not-forbidden", (among, violating, rules.reprieve, *held.parts), without_held
        )

    def staying_violations(self, nodes: Rows, victims: Rows, counts: Rows) -> Ints:
        """Pods of each node that may be evicted, would break a budget, and stay; (nodes,).

        victims: rows of the pods that leave, node by node; counts: (nodes,) how many of each.
        """
        ascending, place = np.unique(nodes, return_inverse=True)
        potential = self.potential_victims(ascending)
        breaking = np.bincount(potential.group[potential.violating], minlength=ascending.size)
        violating = np.zeros(len(self.snapshot.pods), dtype=np.bool_)
        violating[potential.rows[potential.violating]] = True
        leaving = segment_sums(violating[victims], counts)
        return np.asarray(breaking[place].astype(np.int64) - leaving)

    def judge_every_node(self) -> Judged:
        """Status of every node with all its pods in place."""
        if self.shared is not None:
            return self.shared.judge(self)
        return self.pipeline.judge(self.pipeline.base, self.snapshot.nodes.every)

    def dry_run(self, nodes: Rows) -> DryRun:
        """Victims on each of the nodes (ascending)."""
        if self.shared_victims is not None:
            return self.shared_victims.dry_run(self, nodes)
        potential = self.potential_victims(nodes)
        found = dry_run(self.pipeline, potential, self.rules.victims, self.importance)
        return found if self.whole_groups is None else self.whole_groups.checked(found)

    def why_failed(self, found: DryRun) -> Judged:
        """Status of each of the nodes that the dry run made no candidates."""
        if self.shared_victims is not None:
            return self.shared_victims.why_failed(self, found.failed)
        return self.pipeline.judge(found.failed_load, found.failed)

    def statuses(
        self, nodes: Rows, judged: Judged, *, positions: Rows | None = None
    ) -> NodeStatuses:
        """What was judged, or some `positions` of it, as statuses of `nodes`."""
        index = judged.index if positions is None else judged.index[positions]
        totals = np.bincount(index, minlength=len(judged.statuses))
        used = totals.nonzero()[0]
        if used.size < totals.size:
            totals, index = totals[used], ((totals > 0).cumsum() - 1).take(index)
        return NodeStatuses(
            nodes=self.names_of(nodes),
            index=Deferred(
                index.size,
                index.tolist,
                encoded=partial(_digits, index) if index.size and used.size <= _DIGITS else None,
            ),
            _totals=totals.tolist(),
            _positions=self.snapshot.nodes.index if nodes.size == len(self.names) else {},
            statuses=tuple(
                Status(code=Code(code), filter=name, reasons=reasons)
                for code, name, reasons in (judged.statuses[i] for i in used.tolist())
            ),
        )

    def names_of(self, nodes: Rows) -> Texts:
        """The names of some nodes (distinct and ascending)."""
        table = self.snapshot.nodes
        every = nodes.size == len(table)
        encoded = table.encoded_names if every else None
        return Texts(table=table.name_array, index=nodes, encoded=encoded)
