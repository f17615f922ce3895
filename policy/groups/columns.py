"""Passes with running totals: where nothing but a node's own pods matters to a member there.

The load of every node, what is used of its cpu and memory, and what a member scores there are
arrays. Placing a member changes them on one node, putting a unit back on the nodes of its pods.
Members with equal specs share them; the best node is then one maximum over an array. What was found
for a node under a load is remembered: passes that follow one another put the same members on the
same nodes.

Why it is right. A filter that is `local` and a scorer of scope `node` read the pod, the node and
sums over its pods, and these sums are exact integers. Where anything else could matter the plain
passes are made: terms between pods, spread, volumes, filters that narrow the nodes, nominated
members where one of priority 0 or below is tried. `tests/differential/test_group_passes.py`
compares both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from policy.cluster.objects import Volume
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, Ints
from policy.filters.base import Incoming, LinearFilter, Nodes, NodeUse
from policy.filters.pipeline import narrowing
from policy.groups.members import Member
from policy.groups.passes import CycleInputs, Misfit, Passes, PassResult, PlainPasses
from policy.preemption import placing
from policy.preemption.context import DecisionContext
from policy.preemption.importance import Importance
from policy.rules.ruleset import ScorerUse
from policy.scoring.base import Scope
from policy.scoring.registry import SCORERS
from policy.scoring.resource_use import node_use, pod_use

_RESOURCES: Final = (CPU, MEMORY)
_NONE: Final = -1
"""Instead of a score: the node does not take the pod."""


def fast_passes(task: CycleInputs) -> Passes:
    """The fastest passes that give the same results as the plain ones."""
    return column_passes(task) or PlainPasses(task)


def column_passes(task: CycleInputs) -> ColumnPasses | None:
    """None where something but a node's own pods may matter to a member."""
    members, snapshot = task.muster.members, task.snapshot
    if any(_looks_around(member) for member in members):
        return None
    nominated = snapshot.nominated[np.array(task.muster.flying, dtype=np.int64)] != NOWHERE
    if nominated.any() and any(member.priority <= 0 for member in members):
        return None
    used = _Used(task)
    kinds: dict[bytes, _Kind] = {}
    known: set[tuple[bytes, bytes]] = set()
    of_member = []
    for member in members:
        spec, labels = _spec_key(member), _label_key(member)
        if (spec, labels) not in known:
            # Terms of pods that are there may select one of two members with equal specs.
            kind = _Kind.of(task, member, used)
            if kind is None:
                return None
            known.add((spec, labels))
            kinds.setdefault(spec, kind)
        of_member.append(kinds[spec])
    return ColumnPasses(task, tuple(kinds.values()), of_member, used)


def _looks_around(member: Member) -> bool:
    """May pods of other nodes, or volumes, matter to the member?"""
    spec = member.pod.spec
    affinity = spec.affinity
    between = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    volumes = any(volume != Volume(name=volume.name) for volume in spec.volumes or ())
    return bool(between or spec.topology_spread_constraints or volumes)


def _spec_key(member: Member) -> bytes:
    meta = member.pod.metadata
    return msgspec.json.encode((meta.namespace, replace(member.pod.spec, node_name="")))


def _label_key(member: Member) -> bytes:
    meta = member.pod.metadata
    return msgspec.json.encode((meta.labels, meta.owner_references))


class _Used:
    """What the pods of each node use: one row per node, two columns for each of cpu and memory."""

    def __init__(self, task: CycleInputs) -> None:
        snapshot = self._snapshot = task.snapshot
        found = [node_use(snapshot, name) for name in _RESOURCES]
        columns = [part for use in found for part in (use.requested, use.assumed)]
        self.sums = np.stack(columns, axis=1).astype(np.int64)

    def of_pods(self, rows: Rows) -> Ints:
        """(rows, columns) what each pod adds."""
        parts = [part for name in _RESOURCES for part in pod_use(self._snapshot, name, rows)]
        return np.stack(parts, axis=1).astype(np.int64)

    def by_name(self) -> Mapping[str, NodeUse]:
        """The columns as scorers read them; they change with `sums`."""
        return {
            name: NodeUse(requested=self.sums[:, 2 * i], assumed=self.sums[:, 2 * i + 1])
            for i, name in enumerate(_RESOURCES)
        }


class _Kind:
    """Members with equal specs: the nodes on which they fit now, and what they score there."""

    def __init__(
        self,
        context: DecisionContext,
        used: _Used,
        scorers: Sequence[ScorerUse],
        fitting: Sequence[ScorerUse],
    ) -> None:
        """scorers: of scope `node`; fitting: those of scope `fitting` that tell nodes apart."""
        self._context = context
        self._pipeline = context.pipeline
        self._used = used
        self._scorers = scorers
        self._fitting = fitting
        self._every = np.arange(len(context.names))
        self.load = np.ascontiguousarray(self._counted())
        self._found: dict[tuple[int, bytes, bytes], int] = {}
        self.value = self._evaluated(self._every)  #: (nodes,) score, or _NONE

    @staticmethod
    def of(task: CycleInputs, member: Member, used: _Used) -> _Kind | None:
        """None where something but a node's own pods may matter."""
        incoming = Incoming(
            snapshot=task.snapshot,
            pod=member.pod,
            key=member.key,
            row=member.row,
            messages=task.rules.messages,
            in_flight=task.in_flight,
            node_use=used.by_name(),
        )
        context = DecisionContext(
            incoming=incoming, rules=task.rules, seed=task.seed, importance=Importance
        )
        if narrowing(incoming, context.uses) is not None or not context.pipeline.local:
            return None
        scorers: list[ScorerUse] = []
        fitting: list[ScorerUse] = []
        every = np.arange(len(context.names))
        for use in task.rules.scoring:
            info = SCORERS[use.name]
            if info.scope is Scope.NODE:
                scorers.append(use)
                continue
            found = placing.value(incoming, use, every)
            if found is None:
                continue
            if info.scope is Scope.PODS:
                return None
            # What is equal on all nodes is equal on those that fit.
            if found.size and (found != found[0]).any():
                fitting.append(use)
        return _Kind(context, used, scorers, fitting)

    def _counted(self) -> Ints:
        """The load of every node as a sum of what its pods demand."""
        load = self._pipeline.base.copy()
        snapshot = self._context.snapshot
        for _, built, columns in self._pipeline.parts:
            if built.width and not isinstance(built, LinearFilter):
                # Its base tells whether something is held, not how often.
                rows = np.flatnonzero(snapshot.node >= 0)
                nodes = snapshot.node[rows].astype(np.int64)
                load[:, columns] = 0
                demand = built.demand(rows, nodes)
                for i, column in enumerate(range(columns.start, columns.stop)):
                    np.add.at(load[:, column], nodes, demand[:, i])
        return load

    def demand(self, rows: Rows, nodes: Nodes) -> Ints:
        return self._pipeline.demand(rows, nodes)

    def _evaluated(self, nodes: Nodes) -> Ints:
        passes = self._pipeline.passes(self.load[nodes], nodes)
        total = np.zeros(nodes.size, dtype=np.int64)
        for use in self._scorers:
            found = placing.value(self._context.incoming, use, nodes)
            if found is not None:
                total += use.weight * found
        return np.where(passes, total, _NONE)

    def refresh(self, nodes: Nodes) -> None:
        """The load of the nodes has changed."""
        if nodes.size > 8:
            self.value[nodes] = self._evaluated(nodes)
            return
        for node in nodes.tolist():
            self.refresh_one(node)

    def refresh_one(self, node: int) -> None:
        key = (node, self.load[node].tobytes(), self._used.sums[node].tobytes())
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = int(self._evaluated(np.array([node]))[0])
        self.value[node] = known

    def choose(self, nominated: int) -> int:
        """The node for a member: the one it is nominated to, else the best; NOWHERE for none."""
        if nominated != NOWHERE and self.value[nominated] != _NONE:
            return nominated
        if self._fitting:
            return self._best_of_fitting()
        # Nodes stand in name order, and the first of equal ones is taken.
        best = int(self.value.argmax()) if self.value.size else NOWHERE
        return best if best != NOWHERE and self.value[best] != _NONE else NOWHERE

    def _best_of_fitting(self) -> int:
        nodes = np.flatnonzero(self.value != _NONE)
        if not nodes.size:
            return NOWHERE
        total = self.value[nodes]
        for use in self._fitting:
            found = placing.value(self._context.incoming, use, nodes)
            if found is not None:
                total = total + use.weight * found
        return int(nodes[total.argmax()])

    def misfit(self) -> Misfit:
        """Why no node takes a member now."""
        judged = self._pipeline.judge(self.load, self._every)
        return Misfit.of(self._context.statuses(self._every, judged))


class ColumnPasses:
    """Passes over arrays; see the module."""

    def __init__(
        self, task: CycleInputs, kinds: tuple[_Kind, ...], of_member: Sequence[_Kind], used: _Used
    ) -> None:
        self._task = task
        self._kinds = kinds
        self._of_member = of_member
        self._used = used
        rows = np.array([m.row for m in task.muster.members], dtype=np.int64)
        anywhere = np.zeros(rows.size, dtype=np.int64)
        self._nominated = task.snapshot.nominated[rows].tolist()
        self._use = used.of_pods(rows)
        self._demand = {id(kind): kind.demand(rows, anywhere) for kind in kinds}
        last = {id(kind): i for i, kind in enumerate(of_member)}
        #: per member, the kinds of which one comes after it
        self._later = [
            tuple(kind for kind in kinds if last[id(kind)] > i) for i in range(rows.size)
        ]

    def remove(self, rows: Rows) -> None:
        self._move(rows, -1)

    def put_back(self, rows: Rows) -> None:
        self._move(rows, 1)

    def _move(self, rows: Rows, sign: int) -> None:
        nodes = self._task.snapshot.node[rows].astype(np.int64)
        np.add.at(self._used.sums, nodes, sign * self._used.of_pods(rows))
        touched = np.unique(nodes)
        for kind in self._kinds:
            np.add.at(kind.load, nodes, sign * kind.demand(rows, nodes))
            kind.refresh(touched)

    def run(self, *, whole: bool) -> PassResult:
        return self._pass(None, whole=whole)

    def fits(self, nodes: Sequence[int]) -> PassResult:
        return self._pass(nodes, whole=False)

    def _pass(self, given: Sequence[int] | None, *, whole: bool) -> PassResult:
        task = self._task
        nodes: list[int] = []
        misfits: dict[int, Misfit] = {}
        placed: list[_Placed] = []
        quorum, first = NOWHERE, NOWHERE
        for position, kind in enumerate(self._of_member):
            if given is None:
                node = kind.choose(self._nominated[position])
            elif given[position] == NOWHERE:
                nodes.append(NOWHERE)
                continue
            else:
                node = given[position] if kind.value[given[position]] != _NONE else NOWHERE
            nodes.append(node)
            if node != NOWHERE:
                placed.append(self._assume(position, node))
                if quorum == NOWHERE and task.met(len(placed)):
                    quorum = position
            elif whole:
                misfits[position] = kind.misfit()
            elif first == NOWHERE:
                first = position
            if given is not None and node == NOWHERE:
                break
            if given is None and not whole and task.decided(len(placed), tried=position + 1):
                break
        success = task.succeeds(len(placed)) if given is None else first == NOWHERE
        misfits.update(self._taken_back(placed, first if not success else NOWHERE))
        return PassResult(success=success, nodes=tuple(nodes), quorum=quorum, misfits=misfits)

    def _assume(self, position: int, node: int) -> _Placed:
        self._used.sums[node] += self._use[position]
        later = self._later[position]
        before = []
        for kind in later:
            kind.load[node] += self._demand[id(kind)][position]
            before.append(int(kind.value[node]))
            kind.refresh_one(node)
        return _Placed(position, node, before)

    def _taken_back(self, placed: Sequence[_Placed], first: int) -> Iterator[tuple[int, Misfit]]:
        """Take the members back, the last one first; on the way, why the first misfit is one."""
        listed = first == NOWHERE
        for one in reversed(placed):
            if not listed and one.position < first:
                listed = True
                yield first, self._of_member[first].misfit()
            self._used.sums[one.node] -= self._use[one.position]
            for kind, value in zip(self._later[one.position], one.before, strict=True):
                kind.load[one.node] -= self._demand[id(kind)][one.position]
                kind.value[one.node] = value
        if not listed:
            yield first, self._of_member[first].misfit()


class _Placed:
    """A member that was placed, and what its node was worth before to those after it."""

    __slots__ = ("before", "node", "position")

    def __init__(self, position: int, node: int, before: list[int]) -> None:
        self.position = position
        self.node = node
        self.before = before
