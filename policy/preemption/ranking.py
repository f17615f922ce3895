"""Which candidate is best: the rule set's criteria, one after the other, until one is left."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import numpy as np

from policy.cluster import times
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import PRIORITY, START, Bools, Ints
from policy.decision.model import RankingStep, RuleFired
from policy.filters.base import Incoming
from policy.lazy import once
from policy.preemption.columns import (
    ColumnSource,
    FrozenHistory,
    Lazy,
    node_variables,
    preemptor_variables,
    run_seconds,
    starts_or_now,
)
from policy.preemption.context import DecisionContext
from policy.preemption.importance import Importance
from policy.preemption.no_value import criterion_without_value
from policy.preemption.segments import gathered, saturated_sums, segment_sums
from policy.preemption.victims import DryRun
from policy.rules.expressions import (
    BoolColumn,
    Column,
    Columns,
    Expression,
    IntColumn,
    InternedColumn,
    Scalar,
    TimestampColumn,
    ValueType,
)
from policy.rules.ruleset import Direction, Pick, RankingCriterion, RuleSet

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_FEW_VICTIMS: Final = 4096
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
    #: nodes, victims, (nodes,) victims of each -> (nodes,) pods there that may be evicted, would
    #: break a budget, and are not among the victims
    staying_violations: Callable[[Rows, Rows, Rows], Ints]
    #: (candidates,) sort keys by criterion, of those that are known (`lasting_values`)
    values: Mapping[str, Ints] = field(default_factory=dict)

    @staticmethod
    def of(found: DryRun, staying_violations: Callable[[Rows, Rows, Rows], Ints]) -> Field:
        """The candidates that a dry run found."""
        return Field(
            nodes=found.nodes,
            victims=found.victims,
            offsets=found.offsets,
            pdb_violations=found.pdb_violations,
            staying_violations=staying_violations,
            values=found.values,
        )

    def only(self, candidates: Rows) -> Field:
        """Some of them, ascending."""
        flat, offsets = gathered(self.offsets, candidates)
        return Field(
            nodes=self.nodes[candidates],
            victims=self.victims[flat],
            offsets=offsets,
            pdb_violations=self.pdb_violations[candidates],
            staying_violations=self.staying_violations,
        )


_LOWEST = int(np.iinfo(np.int32).min)


@dataclass(frozen=True, eq=False)
class _Victims:
    """The victims of all candidates, as variables are computed from them."""

    snapshot: Snapshot
    field: Field

    @once
    def counts(self) -> Ints:
        return self.field.offsets[1:] - self.field.offsets[:-1]

    @once
    def some(self) -> Bools:
        return np.asarray(self.counts > 0)

    @once
    def firsts(self) -> Rows:
        return self.field.offsets[:-1][self.some]

    @once
    def priorities(self) -> Ints:
        return np.asarray(self.snapshot.column(PRIORITY).take(self.field.victims))

    @once
    def top(self) -> Ints:
        return self._of_some(self.priorities.take(self.firsts), _LOWEST)

    @once
    def highest(self) -> Ints:
        if not self.firsts.size:
            return np.full(self.counts.size, _LOWEST, dtype=np.int64)
        return self._of_some(np.maximum.reduceat(self.priorities, self.firsts), _LOWEST)

    def _of_some(self, values: Ints, other: int) -> Ints:
        """Values of the candidates that have victims, and another one of those without."""
        if values.size == self.counts.size:
            return values
        found = np.full(self.counts.size, other, dtype=np.int64)
        found[self.some] = values
        return found

    def earliest_start(self) -> TimestampColumn:
        now = self.snapshot.now_ms
        if not self.firsts.size:
            return TimestampColumn(np.full(self.counts.size, now, dtype=np.int64))
        start = starts_or_now(self.snapshot, self.field.victims)
        start[self.priorities < self.highest.repeat(self.counts)] = _INT64_MAX
        return TimestampColumn(self._of_some(np.minimum.reduceat(start, self.firsts), now))

    def requested(self, resource: str) -> IntColumn:
        position = self.snapshot.pools.resources.ids.get(resource)
        if position is None:
            return IntColumn(np.zeros(self.counts.size, dtype=np.int64))
        requests = self.snapshot.requests()[self.field.victims, position]
        return IntColumn(saturated_sums(requests, self.counts))

    def priority_sum(self) -> IntColumn:
        return IntColumn(saturated_sums(self.priorities + _PRIORITY_SHIFT, self.counts))

    def seconds(self) -> IntColumn:
        return IntColumn(
            saturated_sums(run_seconds(self.snapshot, self.field.victims), self.counts)
        )

    def reprieved_violations(self) -> IntColumn:
        # Counted pod by pod: a scheduler or an extender that offers victims may know of other
        # budgets, so that its number of violations says nothing of them.
        field = self.field
        return IntColumn(field.staying_violations(field.nodes, field.victims, self.counts))

    def node_names(self) -> InternedColumn:
        return InternedColumn(self.field.nodes.astype(np.intp), self.snapshot.nodes.names)


_CANDIDATE: Mapping[str, Callable[[_Victims], Column]] = {
    "candidate.node": lambda v: v.node_names(),
    "candidate.pdbViolations": lambda v: IntColumn(v.field.pdb_violations),
    "candidate.topPriority": lambda v: IntColumn(v.top),
    "candidate.highestPriority": lambda v: IntColumn(v.highest),
    "candidate.prioritySum": lambda v: v.priority_sum(),
    "candidate.victimCount": lambda v: IntColumn(v.counts),
    "candidate.earliestStartOfTopPriority": lambda v: v.earliest_start(),
    "candidate.cpuMilli": lambda v: v.requested("cpu"),
    "candidate.memoryBytes": lambda v: v.requested("memory"),
    "candidate.victimSeconds": lambda v: v.seconds(),
    "candidate.needsNoVictim": lambda v: BoolColumn(~v.some),
    "candidate.reprievedViolations": lambda v: v.reprieved_violations(),
}


_LASTING: Final = frozenset(
    {
        "candidate.pdbViolations",
        "candidate.topPriority",
        "candidate.highestPriority",
        "candidate.prioritySum",
        "candidate.victimCount",
        "candidate.earliestStartOfTopPriority",
        "candidate.cpuMilli",
        "candidate.memoryBytes",
        "candidate.needsNoVictim",
        "candidate.reprievedViolations",
    }
)
"""These stay as they are for as long as the node, its pods and who of them may leave do, where all
victims have started.
"""


def lasting_criteria(criteria: Sequence[RankingCriterion]) -> tuple[str, ...]:
    """The criteria of which every candidate has a value that depends on its node alone."""
    return tuple(criterion.id for criterion, _ in _lasting(criteria))


def lasting_values(
    criteria: Sequence[RankingCriterion], snapshot: Snapshot, field: Field
) -> tuple[list[Ints], Bools]:
    """Sort keys of the candidates by each of `lasting_criteria`, and of whom they are lasting."""
    variables = Lazy(*candidate_variables(snapshot, field))
    columns = Columns(field.nodes.size, variables, FrozenHistory({}))
    waiting = snapshot.column(START)[field.victims] == times.MISSING
    lasting = segment_sums(waiting, np.diff(field.offsets)) == 0
    values = []
    for _, expression in _lasting(criteria):
        found = expression.evaluate(columns).broadcast(columns.size)
        values.append(found.order_keys(errors_as=0))
        if found.errors is not None:  # an instant that no timestamp holds
            lasting &= ~found.errors
    return values, lasting


def _lasting(
    criteria: Sequence[RankingCriterion],
) -> Iterator[tuple[RankingCriterion, Expression]]:
    for criterion in criteria:
        found = criterion.expression
        if found is None or not found.total or found.type is ValueType.STRING:
            continue  # texts sort by their places among those that there are
        if set(found.variables) <= _LASTING:
            yield criterion, found


def candidate_variables(snapshot: Snapshot, field: Field) -> tuple[ColumnSource, ColumnSource]:
    """candidate.* and node.*, one row per candidate."""
    nodes = node_variables(snapshot, lambda: field.nodes.astype(np.intp))
    return (_CANDIDATE, _Victims(snapshot, field)), nodes


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

    @once
    def order(self) -> Rows:
        """Candidates, best first."""
        keys = [m.values[0] if m.lowest else ~m.values[0] for m in reversed(self._measures)]
        # Equals stay in name order: the sort is stable.
        order = np.lexsort(keys) if keys else np.arange(self._size)
        # A seeded pick may prefer another of the equals than name order does.
        return np.concatenate([[self.best], order[order != self.best]])

    @once
    def eliminated_at(self) -> Rows:
        """(candidates,) step that eliminated each; -1 for the best."""
        step = np.zeros(self._size, dtype=np.int64)
        for i, kept in enumerate(self._survivors):
            step[kept] = i + 1
        step[self.best] = -1
        return step


@dataclass(eq=False, kw_only=True)
class _Measure:
    """One criterion's value of the candidates."""

    expression: Expression
    lowest: bool
    columns: Columns
    known: Ints | None  #: of every candidate, where that was found before
    few: bool  #: there are few victims in all: those of some candidates take as long

    @property
    def total(self) -> bool:
        """Every candidate has a value; figures of the past may not have been given."""
        return self.expression.total and not self.expression.history_needs

    @once
    def values(self) -> tuple[Ints, Bools | None]:
        """Of every candidate, and who has none."""
        return self._over(self.columns) if self.known is None else (self.known, None)

    def among(self, alive: Rows, columns: Callable[[], Columns]) -> tuple[Ints, Bools | None]:
        """Of some candidates; columns: of these alone."""
        # Missing values are reported of every candidate.
        every = self.few or 2 * alive.size > self.columns.size or not self.total
        if self.known is not None or every:
            values, missing = self.values
            return values[alive], None if missing is None else missing[alive]
        return self._over(columns())

    def _over(self, columns: Columns) -> tuple[Ints, Bools | None]:
        found = self.expression.evaluate(columns).broadcast(columns.size)
        # Fails closed: who has no value comes last.
        return found.order_keys(errors_as=_INT64_MAX if self.lowest else _INT64_MIN), found.errors


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
    of_preemptor = preemptor_variables(incoming)
    failed = {"cluster.failedNodeCount": lambda: Scalar(failed_nodes)}
    history = FrozenHistory(snapshot.history or {})

    def columns_of(part: Field) -> Columns:
        sources = (*candidate_variables(snapshot, part), of_preemptor)
        variables = Lazy(*sources, providers=failed)
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
            measure = _Measure(
                expression=criterion.expression,
                lowest=lowest,
                columns=columns,
                known=field.values.get(criterion.id),
                few=field.victims.size <= _FEW_VICTIMS,
            )
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
    incoming = Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row, messages=rules.messages)
    context = DecisionContext(incoming=incoming, rules=rules, seed=0, importance=Importance)
    offsets = np.zeros(len(ordered) + 1, dtype=np.int64)
    np.cumsum([len(candidates[n][0]) for n in ordered], out=offsets[1:])
    field = Field(
        nodes=np.array([snapshot.nodes.index[n] for n in ordered], dtype=np.int64),
        victims=np.array(victims, dtype=np.int64),
        offsets=offsets,
        pdb_violations=np.array([candidates[n][1] for n in ordered], dtype=np.int64),
        staying_violations=context.staying_violations,
    )
    ranked = rank(
        criteria=rules.ranking,
        field=field,
        incoming=incoming,
        failed_nodes=len(snapshot.nodes),
        seed=0,
    )
    return ordered[ranked.best]
