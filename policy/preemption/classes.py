"""Classes of equal pods: what was found about each node for one of them serves the others.

Pods of one workload differ in name, and the cluster differs by a few nodes from one decision to the
next. So what the filters and the dry run found about a node is kept for the whole class and found
again only where something happened on the node: `decide` asks for nodes, and those whose findings
are missing are judged and dry-run by the ordinary functions, on these nodes alone: all of them in
one go, because a few nodes take as long as one. The walk over a sample, why nodes failed, and what
ranking compares are read off the findings; the ranking itself, eligibility, effects and all texts
are made for every pod anew.

When it is used. Only who follows a cluster decision by decision asks for it (`by_class`); replay
and `--paranoid` never do. A pod goes the full path where findings would depend on more than the
node and the class (`_shared`, `_shared_victims`): a filter that looks beyond the node (topology
spread, pod affinity, volumes), extenders; and the dry run does where there are rules of
`victims.forbid`, conditions or keys without a value, an order of importance that depends on the
instant, groups that leave as one from several nodes. Scores are kept of the scorers that look at
the node and the class alone (`Scope.NODE`).

A pod that is nominated itself reads the findings of its class for all nodes but its own, on which
the others of the class count it and it does not (`PodClass.beside`).

Why it is right. A finding is computed from: the node, its pods, the pods nominated to it, the
pod's spec, the rule set, and which pods are allowed and would violate a budget. Spec and rule set
are what makes the class. Every delta notes the nodes of the pods that it touches, before and after,
and a class that is asked for again forgets those that were noted since it was asked for last;
a delta that touches nodes, or other kinds than pods and budgets, drops all classes. Who is allowed
and who violates is compared pod by pod with what the findings were made from, whatever rule or
budget it came from. Of the ranking's criteria those are kept whose variables follow from all that
(`lasting_criteria`); where a victim has not started, its start is the instant of the decision, and
all criteria are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from policy.cluster.objects import Volume
from policy.cluster.snapshot import Delta, Rows, Snapshot
from policy.cluster.tables import NOWHERE, Bools, Ints, taken
from policy.filters.pipeline import Judged
from policy.preemption import one_node
from policy.preemption.context import DecisionContext
from policy.preemption.filtering import Filtered
from policy.preemption.importance import Importance
from policy.preemption.known_statuses import KnownStatuses
from policy.preemption.placing import NodeScores, value
from policy.preemption.ranking import Field, lasting_criteria, lasting_values
from policy.preemption.victims import Allowed, DryRun, dry_run
from policy.scoring.base import Scope
from policy.scoring.registry import SCORERS

_KEPT: Final = 32
"""Classes that are remembered: as many kinds of pods may take turns."""

_FOLLOWED_DELTAS: Final = 1024
"""Deltas after which a class that no pod asked for is given up."""

_FOLLOWED: Final = frozenset({"PodDisruptionBudget"})
"""Kinds beside Pod whose changes show in what the findings are compared with."""


# --- the classes of a snapshot -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Classes:
    """The classes that were asked for on a snapshot or before it, the last one at the end.

    Those from before are brought up to date when they are asked for again.
    """

    by_key: dict[bytes, PodClass] = field(default_factory=dict)
    deltas: int = 0  #: since the first snapshot
    touched: tuple[Rows, ...] = ()  #: nodes on which something happened, by the last of them

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Classes | None:
        if delta.nodes_changed or delta.other_kinds - _FOLLOWED:
            return None
        touched = (*self.touched[1 - _FOLLOWED_DELTAS :], _touched(before, after, delta))
        return _Classes(dict(self.by_key), self.deltas + 1, touched)

    def taken(self, key: bytes) -> PodClass | None:
        """The class as it is on this snapshot, no longer kept; None where it is not known."""
        found = self.by_key.pop(key, None)
        if found is None:
            return None
        behind = self.deltas - found.deltas
        if behind > len(self.touched):
            return None
        return found.after(self.touched[len(self.touched) - behind :])


def _touched(before: Snapshot, after: Snapshot, delta: Delta) -> Rows:
    """Nodes on which something happened: pods that are or were there, or nominated to them."""
    known = delta.rows[: delta.rows.size - delta.added]
    places = (delta.old_node, delta.new_node, before.nominated[known], after.nominated[delta.rows])
    nodes = {node for some in places for node in some.tolist()}
    return np.array(sorted(node for node in nodes if node >= 0), dtype=np.int64)


def class_of(context: DecisionContext) -> PodClass | None:
    """The class of the pod, None where it takes the full path."""
    if not _shared(context):
        return None
    classes = context.snapshot.derived("classes", lambda _: _Classes())
    key = _key(context)
    found = classes.taken(key)
    if found is None or not found.serves(context):
        found = PodClass.empty(context, deltas=classes.deltas)
    classes.by_key[key] = found
    while len(classes.by_key) > _KEPT:
        del classes.by_key[next(iter(classes.by_key))]
    return found if context.nominated == NOWHERE else found.beside(context)


def _shared(context: DecisionContext) -> bool:
    """Does what the filters find about a node depend on the node and the class alone?"""
    pod = context.incoming.pod
    return (
        not context.rules.extenders
        and all(volume == Volume(name=volume.name) for volume in pod.spec.volumes or ())
        and context.pipeline.local
    )


def _shared_victims(context: DecisionContext) -> bool:
    """And what the dry run finds?"""
    victims = context.rules.victims
    return (
        not victims.forbid
        and context.whole_groups is None
        and all(key.expression.total for key in victims.importance)
        and type(context.importance) is Importance
        and context.importance.lasting
        and not context.allowed.without_value
    )


def _key(context: DecisionContext) -> bytes:
    """Everything of the pod and the rules that a finding is computed from."""
    incoming = context.incoming
    status = incoming.pod.status
    # Volumes of which the scheduler reads nothing have names that are made up.
    spec = replace(incoming.pod.spec, volumes=None)
    sizes = (status.resources, status.container_statuses, status.init_container_statuses)
    return msgspec.json.encode([context.rules.digest, incoming.namespace, spec, *sizes])


# --- one class ---------------------------------------------------------------------------------

_Small: TypeAlias = NDArray[np.int32]
"""Numbers of pods, and of places in lists: half the memory that every decision copies."""

_NO_CANDIDATE, _CANDIDATE, _WITHOUT_VICTIMS, _OVER_LIMIT, _NEEDLESS = range(5)


@dataclass(slots=True, eq=False)
class _Findings:
    """What is known of each node; row i of every array is node i."""

    judged: Bools
    status: _Small  #: number in `_statuses`
    scored: Bools
    scores: Ints  #: (scorers, nodes) values by the scorers whose place is in `_scorers`
    score: Ints  #: their sum by weight
    ran: Bools
    once: Bools  #: it ran on this state or one before
    kind: NDArray[np.int8]
    pdb_violations: _Small
    first: _Small  #: where its victims begin
    count: _Small  #: of its victims, also where these are too many
    failure: _Small  #: number in `_failures`, of `_NO_CANDIDATE`
    values: Ints  #: (criteria, nodes) sort keys of `_CANDIDATE` by `lasting_criteria`
    lasting: Bools  #: `values` hold at every instant
    decided: _Small  #: (rules + 1, nodes) pods for which no rule decided, then each of them
    victims: Rows  #: rows of pods
    violating: Bools  #: parallel to `victims`
    #: fields that findings of before or after may hold too, as they are
    shared: set[str] = field(default_factory=set)
    #: the answer for all nodes, the same from the second time on; None until then
    of_every: DryRun | None = None
    #: what the filters say of all nodes, without and with nominated pods on some of them, until
    #: the status of a node changes
    filtered: dict[bool, Filtered] = field(default_factory=dict)

    def own(self, *names: str) -> None:
        """Make some fields safe to be written: those who share them keep what they have."""
        for name in self.shared.intersection(names):
            setattr(self, name, getattr(self, name).copy())
        self.shared.difference_update(names)

    def copy(self) -> _Findings:
        # What is known before the values: in between another thread may add nodes.
        judged, scored, ran = self.judged.copy(), self.scored.copy(), self.ran.copy()
        # Many a decision finds nothing that goes there.
        self.shared.update(_SELDOM_WRITTEN)
        return replace_fields(
            self,
            judged=judged,
            scored=scored,
            ran=ran,
            shared=set(_SELDOM_WRITTEN),
            of_every=None,
            filtered=self.filtered.copy(),
        )


_BY_DRY_RUN: Final = ("once", "kind", "pdb_violations", "first", "count", "failure", "decided")
_SELDOM_WRITTEN: Final = ("status", "scores", "score", *_BY_DRY_RUN, "values", "lasting")


@dataclass(slots=True, eq=False)
class PodClass:
    """The findings for one class on one snapshot."""

    _filters: tuple[tuple[str, ...], int]  #: their names, and the width of their loads
    _findings: _Findings
    _made_from: tuple[Allowed, Bools] | None  #: allowed pods, and those that violate a budget
    deltas: int  #: up to which the findings follow the cluster
    _statuses: KnownStatuses
    _failures: KnownStatuses
    _criteria: tuple[str, ...]
    _scorers: tuple[int, ...]  #: places in the rule file

    @staticmethod
    def empty(context: DecisionContext, *, deltas: int) -> PodClass:
        nodes = len(context.names)

        def small(*shape: int) -> _Small:
            return np.zeros(shape, dtype=np.int32)

        criteria = lasting_criteria(context.rules.ranking)
        scoring = context.rules.scoring
        scorers = [i for i, use in enumerate(scoring) if SCORERS[use.name].scope is Scope.NODE]
        findings = _Findings(
            judged=np.zeros(nodes, dtype=np.bool_),
            status=small(nodes),
            scored=np.zeros(nodes, dtype=np.bool_),
            # Where the sum of requests on a node wraps, a scorer says more than 32 bits hold.
            scores=np.zeros((len(scorers), nodes), dtype=np.int64),
            score=np.zeros(nodes, dtype=np.int64),
            ran=np.zeros(nodes, dtype=np.bool_),
            once=np.zeros(nodes, dtype=np.bool_),
            kind=np.zeros(nodes, dtype=np.int8),
            pdb_violations=small(nodes),
            first=small(nodes),
            count=small(nodes),
            failure=small(nodes),
            values=np.zeros((len(criteria), nodes), dtype=np.int64),
            lasting=np.zeros(nodes, dtype=np.bool_),
            decided=small(len(context.rules.victims.eligible) + 1, nodes),
            victims=np.zeros(0, dtype=np.int64),
            violating=np.zeros(0, dtype=np.bool_),
        )
        return PodClass(
            _filters=(context.pipeline.names, context.pipeline.width),
            _findings=findings,
            _made_from=None,
            deltas=deltas,
            _statuses=KnownStatuses(),
            _failures=KnownStatuses(),
            _criteria=criteria,
            _scorers=tuple(scorers),
        )

    def serves(self, context: DecisionContext) -> bool:
        """Are the filters those that the findings are of?"""
        return self._filters == (context.pipeline.names, context.pipeline.width)

    def after(self, touched: Sequence[Rows]) -> PodClass:
        """The class so many deltas later, each of which touched some nodes: these are forgotten."""
        if not touched:
            return self
        findings = self._findings.copy()
        nodes = np.concatenate(touched)
        findings.judged[nodes] = findings.scored[nodes] = findings.ran[nodes] = False
        return PodClass(
            _filters=self._filters,
            _findings=findings,
            _made_from=self._made_from,
            deltas=self.deltas + len(touched),
            _statuses=self._statuses,
            _failures=self._failures,
            _criteria=self._criteria,
            _scorers=self._scorers,
        )

    def with_victims(self, context: DecisionContext) -> PodClass | None:
        """The class ready for dry runs; None where these take the full path."""
        if not _shared_victims(context):
            return None
        if self._made_from is not None:
            allowed, violating = self._made_from
            self._compare(context, allowed.rule, context.allowed.rule)
            self._compare(context, allowed.pods, context.allowed.pods)
            self._compare(context, violating, context.violating)
        self._made_from = (context.allowed, context.violating)
        return self

    def _compare(self, context: DecisionContext, before: NDArray[Any], now: NDArray[Any]) -> None:
        """Forget nodes of pods of which something else is true. Both: (pods,)."""
        if before is now:
            return
        # Pods that one of them does not have were touched by a delta.
        size = min(before.size, now.size)
        nodes = context.snapshot.node[(before[:size] != now[:size]).nonzero()[0]]
        self._findings.ran[nodes[nodes >= 0]] = False

    def beside(self, context: DecisionContext) -> PodClass:
        """The class for a pod that is nominated to a node itself: there it is not in its own way.

        What is found of the other nodes is the same for every pod of the class, and kept for it.
        """
        own = context.nominated
        unknown = (~self._findings.judged).nonzero()[0]
        self._judge(context, unknown[unknown != own])
        findings = self._findings.copy()
        findings.judged[own] = findings.ran[own] = False
        return replace_fields(self, _findings=findings)

    # --- the filters -----------------------------------------------------------------------------

    def filtered(
        self, context: DecisionContext, of_judged: Callable[[Judged], Filtered]
    ) -> Filtered:
        """What the filters say of every node: the same value while no node's status changes.

        of_judged: makes it of what `judge` gives.
        """
        found = self._findings
        self._judge(context, (~found.judged).nonzero()[0])
        nominated = context.pipeline.with_nominated()
        known = found.filtered.get(nominated.size > 0)
        if known is None:
            of_every = self._judged(context, nominated)
            known = found.filtered[nominated.size > 0] = of_judged(of_every)
        return known

    def judge(self, context: DecisionContext) -> Judged:
        """`Pipeline.judge` of every node as it is."""
        self._judge(context, (~self._findings.judged).nonzero()[0])
        return self._judged(context, context.pipeline.with_nominated())

    def _judged(self, context: DecisionContext, nominated: Rows) -> Judged:
        pipeline = context.pipeline

        def judge(nodes: Rows) -> Judged:
            return pipeline.judge(taken(pipeline.base, nodes), nodes)

        every = context.snapshot.nodes.every
        return self._statuses.ordered(self._findings.status, every, judge, nominated=nominated)

    def _judge(self, context: DecisionContext, nodes: Rows) -> None:
        if nodes.size:
            found, pipeline = self._findings, context.pipeline
            few = one_node.judge(pipeline, nodes)
            if few is None:
                judged = pipeline.judge(taken(pipeline.base, nodes), nodes)
                status = self._statuses.ids_of(judged)
            else:
                status = self._statuses.ids(few)
            if not np.array_equal(found.status[nodes], status):
                found.filtered.clear()
                found.own("status")
                found.status[nodes] = status
            found.judged[nodes] = True

    # --- the scorers -----------------------------------------------------------------------------

    def scores(self, context: DecisionContext) -> NodeScores:
        """What those scorers say of every node that look at nothing but the node and the class."""
        found, scoring = self._findings, context.rules.scoring
        unknown = (~found.scored).nonzero()[0]
        if unknown.size:
            found.own("scores", "score")
        nothing = set()  # what a scorer has nothing to go by depends on the class alone
        for row, i in zip(found.scores, self._scorers, strict=True):
            # Of a few nodes where all are known: whether there is anything to say.
            values = value(context.incoming, scoring[i], unknown)
            if values is None:
                nothing.add(i)
            else:
                row[unknown] = values
        weights = np.array([[scoring[i].weight] for i in self._scorers], dtype=np.int64)
        found.score[unknown] = (found.scores[:, unknown] * weights).sum(axis=0)
        found.scored[unknown] = True
        values_of = zip(self._scorers, found.scores, strict=True)
        return NodeScores(
            values={i: None if i in nothing else row for i, row in values_of},
            total=found.score,
        )

    # --- the dry run -----------------------------------------------------------------------------

    def examined(self, context: DecisionContext, walk: Rows, *, wanted: int) -> Rows:
        """The nodes that a walk looks at until it has the wanted candidates, in its order.

        At least one of the candidates violates no budget; all of the walk where there are too few.
        """
        found = self._findings
        size = min(walk.size, max(1, wanted))
        while True:
            some = walk[:size]
            self._make_known(context, some)
            candidate = found.kind[some] == _CANDIDATE
            missing = wanted - int(np.count_nonzero(candidate))
            if missing <= 0:
                clean = candidate & (found.pdb_violations[some] == 0)
                first = int(clean.argmax())
                if clean[first]:
                    last = wanted - 1  # where all of them are candidates
                    if not candidate[:wanted].all():
                        last = int(np.searchsorted(candidate.cumsum(), wanted))
                    return walk[: 1 + max(last, first)]
            if size == walk.size:
                return walk
            size = min(walk.size, size + max(missing, size // 8, 1))

    def _make_known(self, context: DecisionContext, nodes: Rows) -> None:
        found = self._findings
        if not found.ran.take(nodes).all():
            # What happened elsewhere is found anew in the same go: a dry run of ten nodes takes
            # hardly longer than that of one.
            wanted = found.once & ~found.ran
            wanted[nodes] = ~found.ran[nodes]
            self._run(context, wanted.nonzero()[0])

    def dry_run(self, context: DecisionContext, nodes: Rows) -> DryRun:
        """`victims.dry_run` of some nodes (ascending), without their potential victims."""
        found = self._findings
        self._make_known(context, nodes)
        if nodes is not context.snapshot.nodes.every:
            return self._told(nodes)
        if found.of_every is None:
            found.of_every = self._told(nodes)
        return found.of_every

    def _told(self, nodes: Rows) -> DryRun:
        """What is known of some nodes, all of which were dry-run."""
        found = self._findings
        kind = found.kind[nodes]
        candidates, failed = nodes[kind == _CANDIDATE], nodes[kind == _NO_CANDIDATE]
        over_limit = nodes[kind == _OVER_LIMIT]
        flat, offsets = _listed(found.first[candidates], found.count[candidates])
        return DryRun(
            potentials=(),
            nodes=candidates,
            victims=found.victims[flat],
            offsets=offsets,
            violating=found.violating[flat],
            pdb_violations=found.pdb_violations[candidates].astype(np.int64),
            failed=failed,
            failed_load=one_node.NO_LOAD,
            without_victims=nodes[kind == _WITHOUT_VICTIMS],
            over_limit=over_limit,
            needed=found.count[over_limit],
            needless=nodes[kind == _NEEDLESS],
            values=self._values(candidates),
        )

    def _values(self, candidates: Rows) -> dict[str, Ints]:
        found = self._findings
        if not found.lasting[candidates].all():
            return {}
        return dict(zip(self._criteria, found.values.take(candidates, axis=1), strict=True))

    def why_failed(self, context: DecisionContext, nodes: Rows) -> Judged:
        """`Pipeline.judge` of nodes that the dry run made no candidates."""

        def judge(some: Rows) -> Judged:
            ascending = np.sort(some)
            load = _dry_run(context, ascending).failed_load
            return context.pipeline.judge(taken(load, np.searchsorted(ascending, some)), some)

        failure = self._findings.failure[nodes]
        return self._failures.ordered(failure, nodes, judge, nominated=nodes[:0])

    def decided(self, nodes: Rows) -> list[int]:
        """Pods on nodes that were dry-run for which no victim rule decided, then each of them."""
        found: list[int] = self._findings.decided.take(nodes, axis=1).sum(axis=1).tolist()
        return found

    def _run(self, context: DecisionContext, nodes: Rows) -> None:
        found = self._findings
        found.of_every = None
        found.own(*_BY_DRY_RUN)
        few = one_node.dry_run(context, nodes)
        if few is None:
            new = _dry_run(context, nodes)
            failures = self._failures.ids_of(context.pipeline.judge(new.failed_load, new.failed))
        else:
            new, statuses = few
            failures = self._failures.ids(statuses)
        found.failure[new.failed] = failures
        found.kind[nodes] = _NO_CANDIDATE
        for kind, of_kind in (
            (_CANDIDATE, new.nodes),
            (_WITHOUT_VICTIMS, new.without_victims),
            (_OVER_LIMIT, new.over_limit),
            (_NEEDLESS, new.needless),
        ):
            found.kind[of_kind] = kind
        self._rank(context, new)
        found.pdb_violations[new.nodes] = new.pdb_violations
        self._add_victims(new)
        found.count[new.over_limit] = new.needed
        rows, group = context.order.on(nodes)
        rules = found.decided.shape[0]
        numbers = (context.allowed.rule[rows].astype(np.int64) + 1) * nodes.size + group
        counts = np.bincount(numbers, minlength=rules * nodes.size)
        found.decided[:, nodes] = counts.reshape(rules, nodes.size)
        found.ran[nodes] = found.once[nodes] = True

    def _rank(self, context: DecisionContext, new: DryRun) -> None:
        if not new.nodes.size:
            return
        found = self._findings
        field = Field.of(new, context.staying_violations)
        values, lasting = lasting_values(context.rules.ranking, context.snapshot, field)
        found.own("values", "lasting")
        for row, of_criterion in zip(found.values, values, strict=True):
            row[new.nodes] = of_criterion
        found.lasting[new.nodes] = lasting

    def _add_victims(self, new: DryRun) -> None:
        """Behind those that there are; victims of nodes found anew are left out at times."""
        found = self._findings
        found.count[new.nodes] = 0
        if found.victims.size > 1024 + 2 * int(found.count[found.ran].sum()):
            kept = (found.ran & (found.kind == _CANDIDATE)).nonzero()[0]
            flat, offsets = _listed(found.first[kept], found.count[kept])
            found.victims, found.violating = found.victims[flat], found.violating[flat]
            found.first[kept] = offsets[:-1]
        found.first[new.nodes] = found.victims.size + new.offsets[:-1]
        found.count[new.nodes] = np.diff(new.offsets)
        found.victims = np.concatenate([found.victims, new.victims])
        found.violating = np.concatenate([found.violating, new.violating])


def _dry_run(context: DecisionContext, nodes: Rows) -> DryRun:
    """The ordinary dry run, on some nodes (ascending)."""
    potential = context.potential_victims(nodes)
    return dry_run(context.pipeline, potential, context.rules.victims, context.importance)


def _listed(first: _Small, count: _Small) -> tuple[Rows, Rows]:
    """Positions of the elements of some segments, one after the other, and their offsets there."""
    offsets = np.zeros(count.size + 1, dtype=np.int64)
    count.cumsum(out=offsets[1:])
    return np.arange(offsets[-1]) + (first - offsets[:-1]).repeat(count), offsets
