"""Which candidate is best: the rule set's criteria, one after the other, until one is left."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import msgspec
import numpy as np

from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import PRIORITY, Bools, Ints
from policy.decision.model import RankingStep, RuleFired
from policy.filters.base import Incoming
from policy.preemption.columns import (
    FrozenHistory,
    Lazy,
    node_variables,
    preemptor_variables,
    run_seconds,
    starts_or_now,
)
from policy.preemption.no_value import criterion_without_value
from policy.preemption.segments import gathered, saturated_sums
from policy.rules.expressions import (
    BoolColumn,
    Columns,
    Expression,
    IntColumn,
    InternedColumn,
    Scalar,
    TimestampColumn,
)
from policy.rules.ruleset import Direction, Pick, RankingCriterion, RuleSet

_INT64 = np.iinfo(np.int64)
_PRIORITY_SHIFT = 2**31  # keeps few victims of negative priority ahead of many


def draw(incoming: Incoming, *, seed: int, purpose: str, size: int) -> int:
    """A number below `size`, the same on every machine.

    It depends on the seed, the purpose, the pod and the state of the cluster: one seed serves a
    whole run, and its pods must not all be given the same nodes. A replay has all four.
    """
    drawn = [seed, purpose, incoming.key, incoming.snapshot.state_digest]
    data = hashlib.sha256(msgspec.json.encode(drawn)).digest()
    return int.from_bytes(data[:16], "big") % size


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    """Candidates as ranking reads them.

    Victims of candidate i are `victims[offsets[i]:offsets[i + 1]]`; `nodes` ascend.
    """

    nodes: Rows  #: (candidates,) node indexes
    victims: Rows  #: rows of pods
    offsets: Rows  #: (candidates + 1,)
    pdb_violations: Ints  #: (candidates,)

    def only(self, candidates: Rows) -> Field:
        """Some of them, ascending."""
        flat, offsets = gathered(self.offsets, candidates)
        return Field(
            nodes=self.nodes[candidates],
            victims=self.victims[flat],
            offsets=offsets,
            pdb_violations=self.pdb_violations[candidates],
        )


def candidate_variables(snapshot: Snapshot, field: Field) -> Lazy:
    """candidate.* and node.*, one row per candidate."""
    offsets, victims = field.offsets, field.victims
    counts = np.diff(offsets)
    some = counts > 0
    firsts = offsets[:-1][some]
    lowest = int(np.iinfo(np.int32).min)

    @cache
    def priorities() -> Ints:
        return np.asarray(snapshot.column(PRIORITY)[victims])

    def top() -> Ints:
        first = np.full(counts.size, lowest, dtype=np.int64)
        first[some] = priorities()[firsts]
        return first

    @cache
    def highest() -> Ints:
        found = np.full(counts.size, lowest, dtype=np.int64)
        if firsts.size:
            found[some] = np.maximum.reduceat(priorities(), firsts)
        return found

    def earliest_start() -> TimestampColumn:
        found = np.full(counts.size, snapshot.now_ms, dtype=np.int64)
        if firsts.size:
            start = starts_or_now(snapshot, victims)
            below = priorities() < np.repeat(highest(), counts)
            start = np.where(below, np.iinfo(np.int64).max, start)
            found[some] = np.minimum.reduceat(start, firsts)
        return TimestampColumn(found)

    def requested(resource: str) -> IntColumn:
        position = snapshot.pools.resources.ids.get(resource)
        if position is None:
            return IntColumn(np.zeros(counts.size, dtype=np.int64))
        return IntColumn(saturated_sums(snapshot.requests()[victims, position], counts))

    names = snapshot.nodes.names
    return Lazy(
        {
            "candidate.node": lambda: InternedColumn(field.nodes.astype(np.intp), names),
            "candidate.pdbViolations": lambda: IntColumn(field.pdb_violations),
            "candidate.topPriority": lambda: IntColumn(top()),
            "candidate.highestPriority": lambda: IntColumn(highest()),
            "candidate.prioritySum": lambda: IntColumn(
                saturated_sums(priorities() + _PRIORITY_SHIFT, counts)
            ),
            "candidate.victimCount": lambda: IntColumn(counts),
            "candidate.earliestStartOfTopPriority": earliest_start,
            "candidate.cpuMilli": lambda: requested("cpu"),
            "candidate.memoryBytes": lambda: requested("memory"),
            "candidate.victimSeconds": lambda: IntColumn(
                saturated_sums(run_seconds(snapshot, victims), counts)
            ),
            "candidate.needsNoVictim": lambda: BoolColumn(~some),
            **node_variables(snapshot, lambda: field.nodes.astype(np.intp)),
        }
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranked:
    """The best of the field; the order of all others is found when it is read."""

    best: int
    criteria: tuple[str, ...]
    steps: tuple[RankingStep, ...]
    decided_by: str  #: the criterion that left one; "" for fewer than two candidates
    without_value: tuple[RuleFired, ...]  #: what the trace says of criteria without a value
    _size: int
    _measures: tuple[_Measure, ...]
    _survivors: tuple[Rows, ...]  #: who was left after each step, picks included

    def values(self, criterion: int) -> tuple[Ints, Bools | None]:
        """Of one of `criteria`, in the order of the field, and who has none (the worst then)."""
        return self._measures[criterion].values

    @cached_property
    def order(self) -> Rows:
        """Candidates, best first."""
        order = np.arange(self._size)
        keys = [m.values[0] if m.lowest else ~m.values[0] for m in reversed(self._measures)]
        if keys:
            order = np.lexsort((order, *keys))
        # A seeded pick may prefer another of the equals than name order does.
        return np.concatenate([[self.best], order[order != self.best]])

    @cached_property
    def eliminated_at(self) -> Rows:
        """(candidates,) step that eliminated each; -1 for the best."""
        step = np.zeros(self._size, dtype=np.int64)
        for i, kept in enumerate(self._survivors):
            step[kept] = i + 1
        step[self.best] = -1
        return step


@dataclass(frozen=True, eq=False, kw_only=True)
class _Measure:
    """One criterion's value of the candidates."""

    expression: Expression
    lowest: bool
    columns: Columns

    @property
    def total(self) -> bool:
        """Every candidate has a value; figures of the past may not have been given."""
        return self.expression.total and not self.expression.history_needs

    @cached_property
    def values(self) -> tuple[Ints, Bools | None]:
        """Of every candidate, and who has none."""
        return self._over(self.columns)

    def among(self, alive: Rows, columns: Callable[[], Columns]) -> tuple[Ints, Bools | None]:
        """Of some candidates; columns: of these alone."""
        # Missing values are reported of every candidate.
        if 2 * alive.size > self.columns.size or not self.total:
            values, missing = self.values
            return values[alive], None if missing is None else missing[alive]
        return self._over(columns())

    def _over(self, columns: Columns) -> tuple[Ints, Bools | None]:
        found = self.expression.evaluate(columns).broadcast(columns.size)
        # Fails closed: who has no value comes last.
        return found.order_keys(errors_as=_INT64.max if self.lowest else _INT64.min), found.errors


def rank(
    *,
    criteria: Sequence[RankingCriterion],
    field: Field,
    incoming: Incoming,
    failed_nodes: int,
    seed: int,
) -> Ranked:
    """Apply the criteria in order; each keeps only the best. The field must not be empty."""
    snapshot = incoming.snapshot
    shared = {
        **preemptor_variables(incoming),
        "cluster.failedNodeCount": lambda: Scalar(failed_nodes),
    }
    history = FrozenHistory(snapshot.history or {})

    def columns_of(part: Field) -> Columns:
        variables = candidate_variables(snapshot, part).also(shared)
        return Columns(part.nodes.size, variables, history)

    def columns_at(candidates: Rows) -> Columns:
        return columns_of(field.only(candidates))

    columns = columns_of(field)
    alive = np.arange(field.nodes.size)
    measures: list[_Measure] = []
    survivors: list[Rows] = []
    steps: list[RankingStep] = []
    without_value: list[RuleFired] = []
    decided_by = ""
    for criterion in criteria:
        before = alive.size
        best = None
        if criterion.direction is Direction.PICK:
            alive = _pick(criterion, alive, incoming, seed=seed)
        else:
            assert criterion.expression is not None
            lowest = criterion.direction is Direction.MINIMIZE
            measure = _Measure(expression=criterion.expression, lowest=lowest, columns=columns)
            measures.append(measure)
            without_value.extend(_without_value(criterion.id, measure, field, snapshot))
            if before > 1:
                found, missing = measure.among(alive, partial(columns_at, alive))
                best = int(found.min() if lowest else found.max())
                kept = found == best
                if missing is not None and missing[kept].all():
                    best = None
                alive = alive[kept]
        survivors.append(alive)
        if before > 1:
            steps.append(
                RankingStep(
                    criterion=criterion.id,
                    direction=criterion.direction.value,
                    before=before,
                    after=alive.size,
                    best=best,
                )
            )
            if alive.size == 1:
                decided_by = criterion.id
    return Ranked(
        best=int(alive[0]),
        criteria=tuple(c.id for c in criteria if c.direction is not Direction.PICK),
        steps=tuple(steps),
        decided_by=decided_by,
        without_value=tuple(without_value),
        _size=field.nodes.size,
        _measures=tuple(measures),
        _survivors=tuple(survivors),
    )


def _without_value(
    criterion: str, measure: _Measure, field: Field, snapshot: Snapshot
) -> Iterator[RuleFired]:
    """What the trace says of a criterion that has no value for some candidates."""
    if measure.total:
        return
    _, errors = measure.values
    if errors is not None and errors.any():
        nodes = [snapshot.nodes.names[node] for node in field.nodes.tolist()]
        yield criterion_without_value(criterion, measure.expression, measure.columns, errors, nodes)


def _pick(criterion: RankingCriterion, left: Rows, incoming: Incoming, *, seed: int) -> Rows:
    chosen = 0
    if criterion.pick is Pick.SEEDED and left.size > 1:
        chosen = draw(incoming, seed=seed, purpose=criterion.id, size=left.size)
    return left[chosen : chosen + 1]


def rank_recorded(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    candidates: Mapping[str, tuple[Sequence[str], int]],
) -> str:
    """The node that the rule set's ranking picks among given candidates.

    candidates: node -> (victims in order, PDB violations). Raises KeyError for unknown names.
    """
    row = snapshot.row(preemptor)
    pod = snapshot.pod(preemptor)
    if row is None or pod is None:
        raise KeyError(preemptor)
    ordered = sorted(candidates, key=snapshot.nodes.index.__getitem__)
    victims = []
    for node in ordered:
        for key in candidates[node][0]:
            victim = snapshot.row(key)
            if victim is None:
                raise KeyError(key)
            victims.append(victim)
    offsets = np.zeros(len(ordered) + 1, dtype=np.int64)
    np.cumsum([len(candidates[n][0]) for n in ordered], out=offsets[1:])
    field = Field(
        nodes=np.array([snapshot.nodes.index[n] for n in ordered], dtype=np.int64),
        victims=np.array(victims, dtype=np.int64),
        offsets=offsets,
        pdb_violations=np.array([candidates[n][1] for n in ordered], dtype=np.int64),
    )
    incoming = Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row, messages=rules.messages)
    ranked = rank(
        criteria=rules.ranking,
        field=field,
        incoming=incoming,
        failed_nodes=len(snapshot.nodes),
        seed=0,
    )
    return ordered[ranked.best]
