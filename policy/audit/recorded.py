"""Recorded decisions as questions to other rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policy.audit.compare import Comparison, DecisionResult, RecordedQuestion, compare
from policy.audit.inputs import Incomplete, MissingInput, why
from policy.audit.replay import Replayer
from policy.cluster.objects import Pod
from policy.cluster.pod_groups import group_key
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Outcome, Victim
from policy.extenders.recorded import NotRecorded
from policy.preemption.columns import history_key
from policy.rules import RuleSet
from policy.store import DecisionRow, Store
from policy.store.read.history import Moment

_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A decision that is not compared: its state cannot be rebuilt, or an answer is not known."""

    id: int | str  #: number of a decision, or `group:` and that of a group's cycle
    missing: tuple[MissingInput, ...]
    detail: str

    @property
    def why(self) -> str:
        """Why it is not, in words."""
        return why(self.missing, self.detail)


@dataclass(frozen=True, slots=True)
class Comparing:
    """Recorded decisions under other rules."""

    rules: RuleSet

    def __call__(self, store: Store, ids: Sequence[int]) -> Iterator[Comparison | Skipped]:
        return self.compared(Replayer(store), ids)

    def compared(self, replayer: Replayer, ids: Sequence[int]) -> Iterator[Comparison | Skipped]:
        """The same with a replayer that may have done others; work for `decisions.over`."""
        for question in questions(replayer, ids, self.rules):
            if isinstance(question, Skipped):
                yield question
                continue
            try:
                yield from compare([question], self.rules)
            except NotRecorded as exc:
                yield Skipped(id=question.id, missing=(MissingInput.EXTENDERS,), detail=str(exc))


def questions(
    replayer: Replayer, ids: Sequence[int], rules: RuleSet
) -> Iterator[RecordedQuestion | Skipped]:
    """Recorded decisions with the states they were made on; ascending order is cheap.

    rules: that will be asked. History figures that the decision read are those that it read;
    others are what the record shows just before it. Extenders answer what they answered then, and
    only to the rules that asked them.
    """
    store = replayer.store
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        victims = store.read.victims_of(batch)
        for row in replayer.rows(batch):
            try:
                snapshot = replayer.snapshot(row)
            except Incomplete as exc:
                yield Skipped(id=row.id, missing=exc.missing, detail=exc.detail)
                continue
            offer = replayer.offer(row)
            if rules.extenders and offer is None and row.rule_set_digest != rules.digest:
                detail = f"it is not known what the extenders of `{rules.name}` would have answered"
                yield Skipped(id=row.id, missing=(MissingInput.EXTENDERS,), detail=detail)
                continue
            if detail := not_pod_by_pod(rules, snapshot.pod(row.preemptor)):
                yield Skipped(id=row.id, missing=(MissingInput.GROUPS,), detail=detail)
                continue
            snapshot = with_figures(store, row, snapshot, rules)
            yield RecordedQuestion(
                id=row.id,
                snapshot=snapshot,
                preemptor=row.preemptor,
                priority=row.preemptor_priority,
                seed=row.seed,
                before=recorded_result(row, victims.get(row.id, ())),
                extenders=replayer.extenders(row, rules),
                offer=offer,
            )


def not_pod_by_pod(rules: RuleSet, pod: Pod | None) -> str:
    """Why the rules do not decide for a pod alone; "" where they do."""
    group = "" if pod is None or rules.groups is None else group_key(pod)
    return f"`{rules.name}` schedules pod group `{group}` as one, not pod by pod" if group else ""


def with_figures(store: Store, row: DecisionRow, snapshot: Snapshot, rules: RuleSet) -> Snapshot:
    """The snapshot of a decision with the figures of the past that these rules read.

    Those that the decision read are those that it read, others what the record shows just before.
    """
    frozen = snapshot.history or {}
    unread = {need for need in rules.history_needs if history_key(*need) not in frozen}
    if not unread:
        return snapshot
    moment = Moment(decision_id=row.id, base_revision=row.base_revision)
    figures = store.read.history(row.cluster, unread, now_ms=row.now_ms, before=moment)
    return snapshot.at(row.now_ms, history={**figures, **frozen})


def recorded_result(row: DecisionRow, victims: Sequence[Victim]) -> DecisionResult:
    """What a recorded decision came to."""
    return DecisionResult.of(
        outcome=Outcome(row.outcome),
        node=row.node,
        victims=victims,
        decided_by=row.decided_by,
        message=row.message,
    )
