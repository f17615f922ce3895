"""A pass: one attempt to place all members of a group, in order. The plain way.

Every member is placed by the ordinary filters and scorers, on a snapshot that holds those before
it on their nodes. `columns.py` does the same with running totals where that is possible.

Source: kube-scheduler 1.36, the group cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.marked import with_anti_affinity
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import NOWHERE, Bools
from policy.decision import messages
from policy.decision.model import Decision, NodeStatuses, Outcome, StatusCount
from policy.decision.record import counted
from policy.filters.base import Incoming, InFlight
from policy.filters.pipeline import narrowing
from policy.groups.members import Muster
from policy.preemption.context import DecisionContext
from policy.preemption.decide import decide_by
from policy.preemption.filtering import filter_nodes
from policy.preemption.importance import Importance
from policy.preemption.outcome import place_pod
from policy.rules.group_rules import AssumedTerms, GroupRules, Success
from policy.rules.ruleset import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why no node took a member."""

    statuses: tuple[StatusCount, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  #: nodes by reason
    rejected: tuple[str, ...] = ()  #: a filter rejected it for all nodes at once
    error: str = ""  #: it could not be tried; the pass ended with it

    @staticmethod
    def of(statuses: NodeStatuses, *, rejected: tuple[str, ...] = ()) -> Misfit:
        counts = messages.count_reasons([statuses])
        return Misfit(statuses=counted(statuses), counts=counts, rejected=rejected)

    def message(self, *, nodes: int, preemption: str, claims: bool) -> str:
        """kube-scheduler's sentence; `preemption` is what it says behind that."""
        if self.error:
            return self.error
        return messages.no_node(
            nodes=nodes,
            rejected=self.rejected,
            counts=self.counts,
            message=preemption,
            claims=claims,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """Where a pass put the members."""

    success: bool
    nodes: tuple[int, ...]  #: per member that was tried: index of its node, or NOWHERE
    quorum: int  #: position of the member with which the quorum was met, or NOWHERE
    misfits: Mapping[int, Misfit]  #: by position; of some passes only the first one
    decisions: Mapping[int, Decision] = field(default_factory=dict)  #: members' own preemptions

    @property
    def placed(self) -> int:
        return sum(node != NOWHERE for node in self.nodes)

    @property
    def decisions_preempt(self) -> bool:
        """Did a member find victims for itself?"""
        return any(d.outcome is Outcome.PREEMPT for d in self.decisions.values())

    @property
    def first_misfit(self) -> int:
        """Position of the first member that found no node, or NOWHERE."""
        return next((i for i, node in enumerate(self.nodes) if node == NOWHERE), NOWHERE)


class Passes(Protocol):
    """The passes of one group on one snapshot, with some of its pods removed."""

    def remove(self, rows: Rows) -> None:
        """Take pods away from their nodes."""

    def put_back(self, rows: Rows) -> None:
        """Put pods back that were taken away."""

    def run(self, *, whole: bool) -> PassResult:
        """One pass. `whole`: every member is tried; else until it is certain how it ends."""

    def fits(self, nodes: Sequence[int]) -> PassResult:
        """Does every member fit on the node that it was given, one after the other?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleInputs:
    """What all passes of a cycle have in common."""

    snapshot: Snapshot
    rules: RuleSet
    groups: GroupRules
    muster: Muster
    seed: int
    in_flight: InFlight

    @staticmethod
    def of(
        snapshot: Snapshot, rules: RuleSet, groups: GroupRules, found: Muster, *, seed: int
    ) -> CycleInputs:
        frozen = groups.assumed_terms is AssumedTerms.FROZEN
        flight = InFlight(
            pods=np.array(found.flying, dtype=np.int64),
            with_anti_affinity=_on(snapshot, with_anti_affinity(snapshot)) if frozen else None,
            with_affinity=_on(snapshot, _with_affinity(snapshot)) if frozen else None,
        )
        return CycleInputs(
            snapshot=snapshot,
            rules=rules,
            groups=groups,
            muster=found,
            seed=seed,
            in_flight=flight,
        )

    @property
    def size(self) -> int:
        return len(self.muster.members)

    def met(self, placed: int) -> bool:
        """Is the quorum met once so many members are placed?"""
        return len(self.muster.assigned) + placed >= self.muster.needed

    def decided(self, placed: int, *, tried: int) -> bool:
        """Is it certain how the pass ends, after so many members were tried?"""
        if self.groups.success is Success.ALL:
            return placed < tried
        left = self.size - tried
        return self.succeeds(placed) or not self.met(placed + left) or placed + left == 0

    def succeeds(self, placed: int) -> bool:
        """Does the pass place the group with so many members placed?"""
        if self.groups.success is Success.ALL:
            return placed == self.size and self.met(placed)
        return placed > 0 and self.met(placed)


def _on(snapshot: Snapshot, rows: Rows) -> Bools:
    nodes = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    nodes[snapshot.node[rows]] = True
    return nodes


def _with_affinity(snapshot: Snapshot) -> Rows:
    """Pods on nodes with affinity or anti-affinity between pods, required or preferred."""
    found = [
        row
        for row, _, pod in snapshot.in_order(snapshot.node >= 0)
        if pod.spec.affinity is not None
        and (pod.spec.affinity.pod_affinity or pod.spec.affinity.pod_anti_affinity)
    ]
    return np.array(found, dtype=np.int64)


class PlainPasses:
    """Passes on snapshots: a new one for every member that is placed."""

    def __init__(self, task: CycleInputs) -> None:
        self._task = task
        self._snapshot = task.snapshot

    def remove(self, rows: Rows) -> None:
        keys = self._task.snapshot.keys
        self._snapshot = self._snapshot.apply([("Pod", keys[r], None) for r in rows.tolist()])

    def put_back(self, rows: Rows) -> None:
        whole = self._task.snapshot
        changes: list[Change] = [("Pod", whole.keys[r], whole.pods[r]) for r in rows.tolist()]
        self._snapshot = self._snapshot.apply(changes)

    def run(self, *, whole: bool) -> PassResult:
        return self._pass([None] * self._task.size, whole=whole)

    def fits(self, nodes: Sequence[int]) -> PassResult:
        return self._pass(nodes)

    def preempting(self) -> PassResult:
        """A pass in which a member that finds no node preempts for itself."""
        return self._pass([None] * self._task.size, preempt=True)

    def _pass(
        self, given: Sequence[int | None], *, whole: bool = True, preempt: bool = False
    ) -> PassResult:
        """given: the node of each member, None where it is to be found, NOWHERE for none."""
        task = self._task
        snapshot = self._snapshot
        nodes: list[int] = []
        misfits: dict[int, Misfit] = {}
        decisions: dict[int, Decision] = {}
        quorum, count = NOWHERE, 0
        for position, member in enumerate(task.muster.members):
            if given[position] == NOWHERE:
                nodes.append(NOWHERE)
                continue
            if preempt:
                decision = self._decide(snapshot, member.key)
                node, misfit = _decided(snapshot, decision)
                if decision.outcome is not Outcome.BIND:
                    decisions[position] = decision
            else:
                node, misfit = self._place(snapshot, member.key, given[position])
            nodes.append(node)
            if misfit is not None:
                misfits[position] = misfit
                if misfit.error or given[position] is not None:
                    break
            if node == NOWHERE:
                if not whole and task.decided(count, tried=position + 1):
                    break
                continue
            count += 1
            pod = snapshot.pod(member.key)
            assert pod is not None
            placed = replace(pod, spec=replace(pod.spec, node_name=snapshot.nodes.names[node]))
            snapshot = snapshot.apply([("Pod", member.key, placed)])
            if quorum == NOWHERE and task.met(count):
                quorum = position
            if not whole and task.decided(count, tried=position + 1):
                break
        failed = any(misfit.error for misfit in misfits.values())
        fixed = all(place is not None for place in given)
        as_given = fixed and all(n == g for n, g in zip(nodes, given, strict=False))
        return PassResult(
            success=not failed and (as_given if fixed else task.succeeds(count)),
            nodes=tuple(nodes),
            quorum=quorum,
            misfits=misfits,
            decisions=decisions,
        )

    def _place(self, snapshot: Snapshot, key: str, given: int | None) -> tuple[int, Misfit | None]:
        """The member's node, NOWHERE without one, and then why."""
        context = self._context(snapshot, key)
        narrowed = narrowing(context.incoming, context.uses)
        if narrowed is not None and narrowed.error:
            return NOWHERE, Misfit(error=narrowed.error)
        filtered = filter_nodes(context, narrowed)
        passing = filtered.passing
        if given is not None:
            passing = passing[passing == given]
        if not passing.size:
            rejected = narrowed.rejected if narrowed is not None else ()
            return NOWHERE, Misfit.of(filtered.statuses, rejected=rejected)
        return place_pod(context, passing).node, None

    def _context(self, snapshot: Snapshot, key: str) -> DecisionContext:
        row, pod = snapshot.row(key), snapshot.pod(key)
        assert row is not None and pod is not None
        incoming = Incoming(
            snapshot=snapshot,
            pod=pod,
            key=key,
            row=row,
            messages=self._task.rules.messages,
            in_flight=self._task.in_flight,
        )
        return DecisionContext(
            incoming=incoming,
            rules=self._task.rules,
            seed=self._task.seed,
            importance=Importance,
        )

    def _decide(self, snapshot: Snapshot, key: str) -> Decision:
        task = self._task
        return decide_by(
            Importance,
            snapshot,
            task.rules,
            key,
            seed=task.seed,
            in_flight=task.in_flight,
        )


def _decided(snapshot: Snapshot, decision: Decision) -> tuple[int, Misfit | None]:
    node = NOWHERE if decision.node is None else snapshot.nodes.index[decision.node]
    if decision.outcome is Outcome.BIND:
        return node, None
    if decision.outcome is Outcome.ERROR:
        return NOWHERE, Misfit(error=decision.trace.message)
    trace = decision.trace
    return node, Misfit.of(trace.filter_statuses, rejected=trace.rejected)
