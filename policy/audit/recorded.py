"""Recorded decisions as questions to other rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from policy.audit.compare import Comparison, Question, Result, compare
from policy.audit.replay import Incomplete, Lack, Replayer
from policy.preemption.columns import history_key
from policy.preemption.decision import Outcome
from policy.rules import RuleSet
from policy.store import DecisionRow, Store, StoredVictim

_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A decision whose state cannot be rebuilt; it is not compared."""

    id: int
    lacks: tuple[Lack, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Comparing:
    """Work for `processes.run`: recorded decisions under other rules."""

    rules: RuleSet

    def __call__(self, store: Store, ids: Sequence[int]) -> Iterator[Comparison | Skipped]:
        for question in questions(store, ids, history_needs=self.rules.history_needs):
            if isinstance(question, Skipped):
                yield question
            else:
                yield from compare([question], self.rules)


def questions(
    store: Store,
    ids: Sequence[int],
    *,
    history_needs: Collection[tuple[str, int | None]] = frozenset(),
) -> Iterator[Question | Skipped]:
    """Recorded decisions with the states they were made on; ascending order is cheap.

    history_needs: of the rules that will be asked. Figures that the decision read are those that
    it read; others are what the record shows just before it.
    """
    replayer = Replayer(store)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        victims = store.audit_queries().victims_of(batch)
        for row in replayer.rows(batch):
            try:
                snapshot = replayer.snapshot(row)
            except Incomplete as exc:
                yield Skipped(id=row.id, lacks=exc.lacks, detail=exc.detail)
                continue
            frozen = snapshot.history or {}
            unread = {need for need in history_needs if history_key(*need) not in frozen}
            if unread:
                figures = store.history(row.cluster, unread, now_ms=row.now_ms - 1)
                snapshot = snapshot.at(row.now_ms, history={**figures, **frozen})
            yield Question(
                id=row.id,
                snapshot=snapshot,
                preemptor=row.preemptor,
                priority=row.preemptor_priority,
                seed=row.seed,
                before=recorded_result(row, victims.get(row.id, ())),
            )


def recorded_result(row: DecisionRow, victims: Sequence[StoredVictim]) -> Result:
    """What a recorded decision came to."""
    return Result.of(
        outcome=Outcome(row.outcome),
        node=row.node,
        victims=victims,
        decided_by=row.decided_by,
        message=row.message,
    )
