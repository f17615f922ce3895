"""Cycles whose result is known before they are made: the pod fails, and nothing else changes.

A pod that failed is tried again whenever something happened that may help any pod. On a full
cluster most of these tries fail as the one before did, and the first try of a pod as that of the
pods that ask for the same. Two kinds of them are certain beforehand:

1. *Hopeless*: the pod has no nomination, and on every node it either fails a filter that looks at
   nothing but the node itself, or asks for more than the node would have left if every pod of lower
   priority went and those nominated to it that are not less important had come. The rules let no
   other pod go, so neither a place nor a candidate can be found. That is known of a pod that failed
   before, and of another one with the same `spec`.
2. *Still waiting*: the rules did not let the pod preempt, as they mostly do not while its victims
   leave. It fits on no node as they are, and nothing that the rules looked at has changed. The
   first of these tries follows the cycle that evicted: for it the rules are evaluated, and no node.

Who only wants to know where a run leads need not make them.
`tests/property/test_simulation_laws.py` makes them all the same and compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.cluster.objects import Pod
from policy.cluster.requests import RequestRules, pod_requests
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import (
    ANTI_AFFINITY,
    NOWHERE,
    PRIORITY,
    Bools,
    Ints,
    same_requests,
    terminated,
    widen,
)
from policy.decision.model import Code, Decision, NodeStatuses, Outcome, Status
from policy.filters.base import UNSCHEDULABLE, Incoming
from policy.filters.resources import request_rules
from policy.preemption.context import DecisionContext
from policy.preemption.eligibility import eligibility
from policy.preemption.filtering import Filtered
from policy.preemption.importance import Importance
from policy.rules.expressions.implication import only_lower
from policy.rules.ruleset import Rule, RuleSet, Verdict
from policy.scheduling.state import Transition

_STATIC: Final = frozenset({"node-unschedulable", "node-name", "taints", "node-affinity"})
"""Filters that read the pod and the node, and no other pod."""

_PRIORITIES: Final = frozenset({"victim.priority", "preemptor.priority"})

_ANYTHING: Final = -(2**62)
"""What is required of a resource that the pod does not request."""

_EVERYONE: Final = -(2**63)
"""Lowest priority: pods of it and above stay, so nothing is evicted."""

_Level: TypeAlias = tuple[int, int]

_MOST_KINDS: Final = 4096
"""Kinds of pods that are kept; with more of them all are forgotten and met again."""


@dataclass(slots=True, kw_only=True)
class _Tried:
    """What is known of a pod since its last cycle."""

    outcome: Outcome
    evicting: int  #: its kind where pods of lower priority may go
    as_it_is: int  #: its kind where all pods stay
    nominated: str
    seen: int  #: changes that the cycle saw
    local: bool  #: what its filters say of a node depends on that node alone
    excluded: Bools  #: (nodes,) nodes that the pod fails on for what they are
    status: Status | None  #: of the node that it is nominated to, as the cycle found it


class Foregone:
    """Follows a cluster and tells which pods would fail once more. It decides nothing itself."""

    def __init__(self, rules: RuleSet, snapshot: Snapshot) -> None:
        self._rules = rules
        self._requests = _resource_rules(rules)
        self._waits = _eligibility_stays(rules)
        self._changes = 0
        self._begin(snapshot)

    def _begin(self, snapshot: Snapshot) -> None:
        """Forget everything, as nodes or resources are others now."""
        self._tried: dict[str, _Tried] = {}
        self._changed_at: dict[str, int] = {}  # node -> change that touched it last
        self._others_changed = self._changes
        self._anti_affinity = bool((snapshot.column(ANTI_AFFINITY) != NOWHERE).any())
        if self._requests is not None:
            self._kinds = _Kinds(snapshot, self._requests)

    def follow(self, step: Transition) -> None:
        """Take over a step of the cluster."""
        self._changes += 1
        if self._requests is None:
            return
        if not self._kinds.follows(step.after):
            self._begin(step.after)
            return
        for kind, key in {(kind, key): None for kind, key, _ in step.changes}:
            if kind != "Pod":
                self._others_changed = self._changes
                continue
            before, after = step.before.pod(key), step.after.pod(key)
            if not self._kinds.knows(before, after):
                self._begin(step.after)
                return
            self._kinds.moved(before, after)
            for pod in (before, after):
                if pod is not None:
                    self._touch(pod)
            tried = self._tried.get(key)
            if tried is not None and (after is None or _other_question(before, after)):
                del self._tried[key]
            if after is not None and _anti_affinity(after):
                self._anti_affinity = True

    def failed(self, decision: Decision, snapshot: Snapshot) -> None:
        """A cycle was made and failed; `snapshot` is what it led to."""
        self._tried.pop(decision.preemptor, None)
        if self._requests is None:
            return
        if decision.outcome not in {
            Outcome.NO_CANDIDATE,
            Outcome.NOT_ELIGIBLE,
            Outcome.PREEMPT,
        }:
            return
        pod = snapshot.pod(decision.preemptor)
        if pod is None:
            return
        if len(self._kinds) > _MOST_KINDS:
            self._begin(snapshot)
        nominated = pod.status.nominated_node_name
        evicted = decision.outcome is Outcome.PREEMPT
        if evicted and not nominated:
            return
        excluded = _excluded(decision, snapshot)
        statuses = decision.trace.filter_statuses
        as_it_is = self._kinds.kind_of(pod, excluded, evicts=False)
        self._tried[decision.preemptor] = _Tried(
            outcome=decision.outcome,
            # One that evicted says nothing of what others of its kind would find, yet.
            evicting=as_it_is if evicted else self._kinds.kind_of(pod, excluded, evicts=True),
            as_it_is=as_it_is,
            nominated=nominated,
            seen=self._changes,
            local=_local(pod) and not self._anti_affinity,
            excluded=excluded,
            status=statuses.get(nominated),
        )

    def fails_again(self, key: str) -> bool:
        """Would a cycle of the pod now fail, and change nothing?"""
        tried = self._tried.get(key)
        if tried is None:
            return False
        if not tried.nominated and not self._kinds.somewhere(tried.evicting):
            return True
        return tried.outcome is Outcome.NOT_ELIGIBLE and self._fits_nowhere(tried)

    def may_not_preempt(self, key: str, pod: Pod, snapshot: Snapshot) -> bool:
        """Would the first cycle after the one that evicted for the pod end as not eligible?"""
        tried = self._tried.get(key)
        if (
            tried is None
            or tried.outcome is not Outcome.PREEMPT
            or tried.status is None
            or not self._fits_nowhere(tried)
            or not _refused(key, pod, snapshot, self._rules, tried.status)
        ):
            return False
        tried.outcome = Outcome.NOT_ELIGIBLE
        tried.evicting = self._kinds.kind_of(pod, tried.excluded, evicts=True)
        return True

    def _fits_nowhere(self, tried: _Tried) -> bool:
        """Does the pod fit on no node, and is all as it was that the eligibility rules read?"""
        return (
            self._waits
            and tried.local
            and not self._anti_affinity
            and self._others_changed <= tried.seen
            and self._changed_at.get(tried.nominated, 0) <= tried.seen
            and not self._kinds.somewhere(tried.as_it_is)
        )

    def fails_like_others(self, key: str, pod: Pod) -> bool:
        """Would the first cycle of the pod fail, as those of pods that ask for the same did?

        All that it would change is the pod's own condition.
        """
        if self._requests is None or key in self._tried or pod.status.nominated_node_name:
            return False
        kind = self._kinds.known(pod)
        if kind is None or self._kinds.somewhere(kind):
            return False
        self._tried[key] = _Tried(
            outcome=Outcome.NO_CANDIDATE,
            evicting=kind,
            as_it_is=kind,
            nominated="",
            seen=self._changes,
            local=False,
            excluded=self._kinds.excluded(kind),
            status=None,
        )
        return True

    def _touch(self, pod: Pod) -> None:
        for node in (pod.spec.node_name, pod.status.nominated_node_name):
            if node:
                self._changed_at[node] = self._changes


class _Kinds:
    """Kinds of pods (what they ask for, and at which priority) and the nodes with room for each.

    A level is two priorities: pods on nodes count from the first one on, pods that are nominated
    to nodes from the second one on. INVARIANT: `_room_for[n, k]` says whether node n has room for
    kind k beside the pods that count at the kind's level; `_nodes[k]` counts these nodes.
    """

    def __init__(self, snapshot: Snapshot, rules: RequestRules) -> None:
        self._rules = rules
        self._table = snapshot.nodes
        self._width = len(snapshot.pools.resources)
        self._resources = dict(snapshot.pools.resources.ids)  # the pool grows
        nodes = len(snapshot.nodes)
        self._total = np.column_stack([snapshot.allocatable, snapshot.nodes.allowed_pods])
        self._snapshot = snapshot
        self._ids: dict[tuple[bytes, _Level], int] = {}
        self._level_of: dict[_Level, int] = {}
        self._lowest = np.zeros((2, 0), dtype=np.int64)  # by level: of pods there, and nominated
        self._taken = np.zeros((nodes, self._width + 1, 0), dtype=np.int64)  # by level
        self._level = np.zeros(0, dtype=np.int64)
        self._wanted: Ints = np.zeros((self._width + 1, 0), dtype=np.int64)
        self._excluded: Bools = np.zeros((nodes, 0), dtype=np.bool_)
        self._room_for: Bools = np.zeros((nodes, 0), dtype=np.bool_)
        self._nodes: Ints = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def follows(self, after: Snapshot) -> bool:
        """Are the nodes still those that were counted?"""
        self._snapshot = after
        return after.nodes is self._table

    def knows(self, before: Pod | None, after: Pod | None) -> bool:
        """Are the resources that the pod asks for among those that were counted?

        They are looked for in the pod, not in the snapshot's pools: no column is read here, so
        that columns follow several steps in one go.
        """
        if after is None or same_requests(before, after):
            return True
        return self._resources.keys() >= pod_requests(after, on_node=True, rules=self._rules).keys()

    def excluded(self, kind: int) -> Bools:
        """Nodes that pods of the kind fail on whatever leaves them; shape (nodes,)."""
        return self._excluded[:, kind]

    def somewhere(self, kind: int) -> bool:
        """Has any node room for the kind?"""
        return bool(self._nodes[kind])

    def kind_of(self, pod: Pod, excluded: Bools, *, evicts: bool) -> int:
        """The kind of the pod.

        excluded: (nodes,) nodes that the pod fails on whatever leaves them. evicts: pods of lower
        priority may go.
        """
        key = _kind(pod, evicts=evicts)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._ids)
            self._add(found, self._wants(pod), self._place_of(key[1]), excluded)
        return found

    def known(self, pod: Pod) -> int | None:
        """The kind of the pod where pods of lower priority may go, None where it was not met."""
        return self._ids.get(_kind(pod, evicts=True))

    def moved(self, before: Pod | None, after: Pod | None) -> None:
        """One pod came, went or changed: its node has more room now, or less."""
        old, new = self._place(before), self._place(after)
        if old is None and new is None:
            return
        if before is not None and after is not None and old == new and same_requests(before, after):
            return
        for sign, place, pod in ((-1, old, before), (1, new, after)):
            if place is None or pod is None:
                continue
            node, priority, placed = place
            counts = priority >= self._lowest[0 if placed else 1]
            self._taken[node] += (sign * self._load(pod))[:, None] * counts
        for node in {place[0] for place in (old, new) if place is not None}:
            self._count(node)

    def _place(self, pod: Pod | None) -> tuple[int, int, bool] | None:
        """Node and priority of a pod that takes up room, and whether it is there already."""
        if pod is None or terminated(pod):
            return None
        name = pod.spec.node_name
        node = self._table.index.get(name) if name else None
        placed = node is not None
        if not name:
            node = self._table.index.get(pod.status.nominated_node_name)
        return None if node is None else (node, pod.spec.priority or 0, placed)

    def _count(self, node: int) -> None:
        left = self._total[node][:, None] - self._taken[node]
        # Resource by resource, each for all kinds at once.
        enough = left.take(self._level, axis=1) >= self._wanted
        room = np.logical_and.reduce(enough, axis=0) & ~self._excluded[node]
        self._nodes += room.astype(np.int64) - self._room_for[node]
        self._room_for[node] = room

    def _add(self, kind: int, wanted: Ints, level: int, excluded: Bools) -> None:
        if kind == len(self._level):
            self._grow()
        left = self._total - self._taken[:, :, level]
        room = (left >= wanted).all(axis=1) & ~excluded
        self._level[kind] = level
        self._wanted[:, kind] = wanted
        self._excluded[:, kind] = excluded
        self._room_for[:, kind] = room
        self._nodes[kind] = room.sum()

    def _grow(self) -> None:
        """Places for as many kinds again; one that is not taken has room nowhere."""
        more = max(64, len(self._level))
        self._level = np.pad(self._level, (0, more))
        self._wanted = np.pad(self._wanted, ((0, 0), (0, more)))
        self._excluded = np.pad(self._excluded, ((0, 0), (0, more)), constant_values=True)
        self._room_for = np.pad(self._room_for, ((0, 0), (0, more)))
        self._nodes = np.pad(self._nodes, (0, more))

    def _place_of(self, level: _Level) -> int:
        found = self._level_of.get(level)
        if found is not None:
            return found
        snapshot = self._snapshot
        priority = snapshot.column(PRIORITY)
        taken = np.zeros((len(self._table), self._width + 1), dtype=np.int64)
        for nodes, lowest in zip((snapshot.node, snapshot.nominated), level, strict=True):
            rows = np.flatnonzero((nodes >= 0) & (priority >= lowest))
            loads = widen(snapshot.requests(self._rules)[rows], self._width)[:, : self._width]
            np.add.at(taken, nodes[rows], np.column_stack([loads, np.ones(rows.size, int)]))
        found = self._level_of[level] = len(self._level_of)
        self._taken = np.concatenate([self._taken, taken[:, :, None]], axis=2)
        self._lowest = np.column_stack([self._lowest, level])
        return found

    def _load(self, pod: Pod) -> Ints:
        """What a pod takes up; a resource that came after the nodes were counted is on none."""
        load = np.zeros(self._width + 1, dtype=np.int64)
        load[-1] = 1
        for name, amount in pod_requests(pod, on_node=True, rules=self._rules).items():
            column = self._resources.get(name, self._width)
            if column < self._width:
                load[column] = amount
        return load

    def _wants(self, pod: Pod) -> Ints:
        wanted = np.full(self._width + 1, _ANYTHING, dtype=np.int64)
        wanted[-1] = 1
        for name, amount in pod_requests(pod, on_node=False, rules=self._rules).items():
            column = self._resources.get(name, self._width)
            if column < self._width and amount > 0:
                wanted[column] = amount
        return wanted


def _kind(pod: Pod, *, evicts: bool) -> tuple[bytes, _Level]:
    priority = pod.spec.priority or 0
    return msgspec.json.encode(pod.spec), (priority if evicts else _EVERYONE, priority)


def _resource_rules(rules: RuleSet) -> RequestRules | None:
    """How the rules count requests; None where no cycle is certain beforehand."""
    allowing = [rule for rule in rules.victims.eligible if rule.verdict is Verdict.ALLOW]
    if rules.extenders or not all(_allows_lower_only(rule) for rule in allowing):
        return None
    used = [use for use in rules.filters if use.name == "resources"]
    return request_rules(used[0].parameters) if used else None


def _allows_lower_only(rule: Rule) -> bool:
    # A condition without a value may be taken as one that holds.
    return rule.when is not None and rule.when.total and only_lower(rule.when)


def _eligibility_stays(rules: RuleSet) -> bool:
    """Does eligibility depend on nothing but the pod and the node that it is nominated to?

    Nor may it depend on the instant, or have no value.
    """
    asked = [r.when for r in rules.eligibility if r.when is not None]
    allowed = [r.when for r in rules.victims.eligible if r.when is not None]
    return (
        all(e.total for e in asked)
        and all(v.startswith(("preemptor.", "nominated.")) for e in asked for v in e.variables)
        and not any("preemptor.waitingSeconds" in e.variables for e in asked)
        and all(
            v in {"victim.priority", "preemptor.priority"} for e in allowed for v in e.variables
        )
        and not any(e.history_needs for e in (*asked, *allowed))
    )


def _refused(key: str, pod: Pod, snapshot: Snapshot, rules: RuleSet, status: Status) -> bool:
    """Do the eligibility rules refuse the pod, which fits nowhere?

    status: that the filters give of the node that it is nominated to.
    """
    row = snapshot.row(key)
    assert row is not None
    context = DecisionContext(
        incoming=Incoming(snapshot=snapshot, pod=pod, key=key, row=row, messages=rules.messages),
        rules=rules,
        seed=0,  # no rule of eligibility reads it
        importance=Importance,
    )
    nominated = Filtered(
        codes=np.array([UNSCHEDULABLE], dtype=np.int8),
        statuses=NodeStatuses(
            nodes=(pod.status.nominated_node_name,), index=(0,), statuses=(status,)
        ),
        filtered=np.ones(1, dtype=np.bool_),
    )
    return not eligibility(context, nominated).eligible


def _excluded(decision: Decision, snapshot: Snapshot) -> Bools:
    """Nodes that the pod fails on for what they are; shape (nodes,)."""
    statuses = decision.trace.filter_statuses
    static = np.array(
        [s.code is Code.UNRESOLVABLE and s.filter in _STATIC for s in statuses.statuses], np.bool_
    )
    excluded = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    if static.any():
        index: NDArray[np.int64] = np.asarray(statuses.index, dtype=np.int64)
        for i in np.flatnonzero(static[index]).tolist():
            excluded[snapshot.nodes.index[statuses.nodes[i]]] = True
    return excluded


def _local(pod: Pod) -> bool:
    spec = pod.spec
    affinity = spec.affinity
    between = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return not (between or spec.topology_spread_constraints or spec.volumes)


def _anti_affinity(pod: Pod) -> bool:
    return pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None


def _other_question(before: Pod | None, after: Pod) -> bool:
    """Is a cycle of the pod a new question? Not for a condition that it got."""
    return before is None or (
        before.metadata != after.metadata
        or before.spec != after.spec
        or before.status.nominated_node_name != after.status.nominated_node_name
    )
