"""Passes with running totals: what each node holds, and what each topology value does.

The load of every node, what is used of its cpu and memory, and what a member scores there are
arrays. Placing a member changes them on one node, putting a unit back on the nodes of its pods.
Members with equal specs share them; the best node is then one maximum over an array. What was found
for a node under a load is remembered: passes that follow one another put the same members on the
same nodes. Affinity between pods and topology spread are counts per topology value
(`topology.py`), which follow the same moves.

Why it is right. A filter of a node's own and a scorer of scope `node` read the pod, the node and
sums over its pods, and these sums are exact integers; so are the counts of topology values. Where
anything else could matter the plain passes are made: filters that narrow the nodes or reject the
pod at once, claims that one pod alone may use, scorers of the rule file's own, pods that wait for a
node and matter to a member's affinity or spread there, nominated members where one of priority 0 or
below is tried. `test_group_passes.py` and `test_group_topologies.py` in `tests/differential`
compare both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from policy.cluster.requests import CPU, MEMORY
from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, Ints
from policy.filters import pod_affinity
from policy.filters.base import Filter, Incoming, LinearFilter, Nodes, NodeUse
from policy.filters.pipeline import ConfiguredFilter, Pipeline, narrowing
from policy.filters.pod_affinity import PodAffinityFilter
from policy.filters.topology_spread import TopologySpread
from policy.filters.volume_limits import VolumeLimits
from policy.filters.volume_restrictions import VolumeRestrictions, one_pod_claims
from policy.groups.members import Member
from policy.groups.passes import CycleInputs, Misfit, Passes, PassResult, PlainPasses
from policy.groups.topology import Surroundings
from policy.preemption import placing
from policy.preemption.context import DecisionContext
from policy.preemption.importance import Importance
from policy.rules.ruleset import ScorerUse
from policy.scoring import pod_affinity as pod_affinity_scorer
from policy.scoring import topology_spread as topology_spread_scorer
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
    """None where something may matter to a member that is not followed; see the module."""
    members, snapshot = task.muster.members, task.snapshot
    nominated = snapshot.nominated[np.array(task.muster.flying, dtype=np.int64)] != NOWHERE
    if nominated.any() and any(member.priority <= 0 for member in members):
        return None
    used = _Used(task)
    kinds: dict[bytes, list[_Kind]] = {}
    known: dict[tuple[bytes, bytes], _Kind] = {}
    views: list[Surroundings] = []
    of_member = []
    for member in members:
        key = _spec_key(member), _label_key(member)
        if key not in known:
            # Terms of pods that are there may select one of two members with equal specs.
            seen = _Seen.of(task, member, used)
            if seen is None:
                return None
            around = seen.around
            if around is not None:
                around = next((view for view in views if view.equals(around)), around)
                if around is seen.around:
                    views.append(around)
            alike = kinds.setdefault(key[0], [])
            kind = next((k for k in alike if k.around is around), None)
            if kind is None:
                kind = _Kind(seen, around, used)
                alike.append(kind)
            known[key] = kind
        of_member.append(known[key])
    every = tuple(kind for alike in kinds.values() for kind in alike)
    return ColumnPasses(task, every, views, of_member, used)


def _spec_key(member: Member) -> bytes:
    meta, spec = member.pod.metadata, member.pod.spec
    # Claims that are made for the pod carry its name.
    named = bool(spec.resource_claims) or any(v.ephemeral is not None for v in spec.volumes or ())
    parts = (meta.namespace, replace(spec, node_name=""), meta.name if named else "")
    return msgspec.json.encode(parts)


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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Seen:
    """What matters to a member, by what it depends on."""

    context: DecisionContext
    filters: tuple[tuple[str, Filter], ...]  #: all of them, in order
    pipeline: Pipeline  #: those that read the node and its pods alone
    scorers: Sequence[ScorerUse]  #: of scope `node`
    fitting: Sequence[ScorerUse]  #: those of scope `fitting` that tell nodes apart
    around: Surroundings | None  #: pods of other nodes

    @staticmethod
    def of(task: CycleInputs, member: Member, used: _Used) -> _Seen | None:
        """None where it depends on something else."""
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
        if narrowing(incoming, context.uses) is not None or one_pod_claims(incoming):
            return None
        filters = tuple(_filters(incoming, context.uses))
        topologies = [one for _, one in filters if isinstance(one, _TOPOLOGIES)]
        own = [(name, one) for name, one in filters if not isinstance(one, _TOPOLOGIES)]
        if not all(one.local or isinstance(one, _OF_NODES) for _, one in own):
            return None
        every = np.arange(len(context.names))
        named = [(name, one) for name, one in filters if isinstance(one, _TOPOLOGIES)]
        if Pipeline(incoming, (), built=named).has_nominated(every).any():
            return None
        scorers: list[ScorerUse] = []
        fitting: list[ScorerUse] = []
        looking: list[ScorerUse] = []
        for use in task.rules.scoring:
            info = SCORERS[use.name]
            if info.scope is Scope.NODE:
                scorers.append(use)
                continue
            if info in _LOOKING:
                looking.append(use)
                continue
            found = placing.value(incoming, use, every)
            if found is None:
                continue
            if info.scope is Scope.PODS:
                return None
            # What is equal on all nodes is equal on those that fit.
            if found.size and (found != found[0]).any():
                fitting.append(use)
        rows = np.array([m.row for m in task.muster.members], dtype=np.int64)
        around = Surroundings(incoming, topologies, looking, rows)
        return _Seen(
            context=context,
            filters=filters,
            pipeline=Pipeline(incoming, (), built=own),
            scorers=scorers,
            fitting=fitting,
            around=around if topologies or around.scores else None,
        )


_TOPOLOGIES: Final = (PodAffinityFilter, TopologySpread)
_OF_NODES: Final = (VolumeLimits, VolumeRestrictions)
"""They read a node's own pods, although more of them may help."""
_LOOKING: Final = (pod_affinity_scorer.INFO, topology_spread_scorer.INFO)


def _filters(incoming: Incoming, uses: Sequence[ConfiguredFilter]) -> Iterator[tuple[str, Filter]]:
    """The filters that have something to say about the pod, or will have once others are placed."""
    for use in uses:
        built: Filter | None
        if use.info is pod_affinity.INFO:
            built = pod_affinity.build(incoming, use.parameters, later=True)
        else:
            built = use.info.build(incoming, use.parameters)
        if built is not None:
            yield use.info.name, built


class _Kind:
    """Members with equal specs: the nodes on which they fit now, and what they score there."""

    def __init__(self, seen: _Seen, around: Surroundings | None, used: _Used) -> None:
        """around: `seen.around`, or one that equals it."""
        self._seen = seen
        self._context = seen.context
        self._pipeline = seen.pipeline
        self._used = used
        self._scorers = seen.scorers
        self._fitting = seen.fitting
        self.around = around
        self._every = np.arange(len(self._context.names))
        self.load = np.ascontiguousarray(self._counted())
        self._found: dict[tuple[int, bytes, bytes], int] = {}
        #: (nodes,) score, or _NONE, but for what is seen around them
        self.value = self._evaluated(self._every)

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

    def takes(self, node: int) -> bool:
        """Does the node take a member now?"""
        around = self.around is None or not self.around.failing[node]
        return bool(around and self.value[node] != _NONE)

    def choose(self, nominated: int) -> int:
        """The node for a member: the one it is nominated to, else the best; NOWHERE for none."""
        if nominated != NOWHERE and self.takes(nominated):
            return nominated
        value = self.value
        if self.around is not None:
            value = np.where(self.around.failing == 0, value, _NONE)
            if self.around.scores:
                return self._best_of_fitting(value)
        if self._fitting:
            return self._best_of_fitting(value)
        # Nodes stand in name order, and the first of equal ones is taken.
        best = int(value.argmax()) if value.size else NOWHERE
        return best if best != NOWHERE and value[best] != _NONE else NOWHERE

    def _best_of_fitting(self, value: Ints) -> int:
        nodes = np.flatnonzero(value != _NONE)
        if not nodes.size:
            return NOWHERE
        total = value[nodes]
        for use in self._fitting:
            found = placing.value(self._context.incoming, use, nodes)
            if found is not None:
                total = total + use.weight * found
        for score in self.around.scores if self.around is not None else ():
            total = total + score.weight * score.value(nodes)
        return int(nodes[total.argmax()])

    def misfit(self) -> Misfit:
        """Why no node takes a member now."""
        if self.around is None:
            judged = self._pipeline.judge(self.load, self._every)
            return Misfit.of(self._context.statuses(self._every, judged))
        now = iter(self.around.filters())
        built: list[tuple[str, Filter]] = []
        loads = []
        columns = {id(one): where for _, one, where in self._pipeline.parts}
        for name, one in self._seen.filters:
            if isinstance(one, _TOPOLOGIES):
                counted, load = next(now)
                built.append((name, counted))
            else:
                load = self.load[:, columns[id(one)]]
                built.append((name, one))
            loads.append(load)
        pipeline = Pipeline(self._context.incoming, (), built=built)
        judged = pipeline.judge(np.concatenate(loads, axis=1), self._every)
        return Misfit.of(self._context.statuses(self._every, judged))


class ColumnPasses:
    """Passes over arrays; see the module."""

    def __init__(
        self,
        task: CycleInputs,
        kinds: Sequence[_Kind],
        views: Sequence[Surroundings],
        of_member: Sequence[_Kind],
        used: _Used,
    ) -> None:
        """views: what members of the kinds see around nodes."""
        self._task = task
        self._kinds = kinds
        self._views = views
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
        self._later_views = [
            [view for view in views if any(kind.around is view for kind in later)]
            for later in self._later
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
        for view in self._views:
            view.move(rows, nodes, sign)

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
                node = given[position] if kind.takes(given[position]) else NOWHERE
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
        for view in self._later_views[position]:
            view.step(position, node, 1)
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
            for view in self._later_views[one.position]:
                view.step(one.position, one.node, -1)
        if not listed:
            yield first, self._of_member[first].misfit()


class _Placed:
    """A member that was placed, and what its node was worth before to those after it."""

    __slots__ = ("before", "node", "position")

    def __init__(self, position: int, node: int, before: list[int]) -> None:
        self.position = position
        self.node = node
        self.before = before
