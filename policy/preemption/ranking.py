"""Which candidate is best: the rule set's criteria, one after the other, until one is left."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

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
from policy.preemption.segments import saturated_sums
from policy.rules.expressions import (
    BoolColumn,
    Columns,
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranked:
    """The field put in order."""

    order: Rows  #: candidates, best first
    criteria: tuple[str, ...]
    values: tuple[Ints, ...]  #: per criterion, in the order of the field
    missing: tuple[Bools | None, ...]  #: per criterion: who has no value and counts as the worst
    eliminated_at: Rows  #: (candidates,) step that eliminated each; -1 for the best
    steps: tuple[RankingStep, ...]
    decided_by: str  #: the criterion that left one; "" for fewer than two candidates
    without_value: tuple[RuleFired, ...]  #: what the trace says of criteria without a value


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
    size = field.nodes.size
    shared = {
        **preemptor_variables(incoming),
        "cluster.failedNodeCount": lambda: Scalar(failed_nodes),
    }
    variables = candidate_variables(snapshot, field).also(shared)
    columns = Columns(size, variables, FrozenHistory(snapshot.history or {}))
    alive = np.ones(size, dtype=np.bool_)
    eliminated_at = np.full(size, -1, dtype=np.int64)
    names, values, missing, sort_keys, steps = [], [], [], [], []
    without_value: list[RuleFired] = []
    decided_by = ""
    best_first = np.arange(size)
    for step, criterion in enumerate(criteria):
        before = int(alive.sum())
        if criterion.direction is Direction.PICK:
            kept = _pick(criterion, alive, incoming, seed=seed)
            best = None
        else:
            assert criterion.expression is not None
            lowest = criterion.direction is Direction.MINIMIZE
            evaluated = criterion.expression.evaluate(columns).broadcast(size)
            # Fails closed: who has no value comes last.
            found = evaluated.order_keys(errors_as=_INT64.max if lowest else _INT64.min)
            errors = evaluated.errors
            if errors is not None and errors.any():
                nodes = [snapshot.nodes.names[node] for node in field.nodes.tolist()]
                told = criterion_without_value(
                    criterion.id, criterion.expression, columns, errors, nodes
                )
                without_value.append(told)
            names.append(criterion.id)
            values.append(found)
            missing.append(errors)
            sort_keys.append(found if lowest else ~found)
            best = int(found[alive].min() if lowest else found[alive].max())
            kept = alive & (found == best)
            if errors is not None and errors[kept].all():
                best = None
        eliminated_at[alive & ~kept] = step
        alive = kept
        after = int(alive.sum())
        if before > 1:
            steps.append(
                RankingStep(
                    criterion=criterion.id,
                    direction=criterion.direction.value,
                    before=before,
                    after=after,
                    best=best,
                )
            )
            if after == 1:
                decided_by = criterion.id
    if sort_keys:
        best_first = np.lexsort((best_first, *reversed(sort_keys)))
    # A seeded pick may prefer another of the equals than name order does.
    winner = int(np.flatnonzero(alive)[0])
    best_first = np.concatenate([[winner], best_first[best_first != winner]])
    return Ranked(
        order=best_first,
        criteria=tuple(names),
        values=tuple(values),
        missing=tuple(missing),
        eliminated_at=eliminated_at,
        steps=tuple(steps),
        decided_by=decided_by,
        without_value=tuple(without_value),
    )


def _pick(criterion: RankingCriterion, alive: Bools, incoming: Incoming, *, seed: int) -> Bools:
    left = np.flatnonzero(alive)
    chosen = left[0]
    if criterion.pick is Pick.SEEDED and left.size > 1:
        chosen = left[draw(incoming, seed=seed, purpose=criterion.id, size=left.size)]
    kept = np.zeros(alive.size, dtype=np.bool_)
    kept[chosen] = True
    return kept


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
    incoming = Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row)
    ranked = rank(
        criteria=rules.ranking,
        field=field,
        incoming=incoming,
        failed_nodes=len(snapshot.nodes),
        seed=0,
    )
    return ordered[int(ranked.order[0])]
