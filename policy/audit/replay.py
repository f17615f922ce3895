"""Replay: decide again what was decided, on the state and under the rules of then.

Nothing else is ever replayed: where a part of what a decision was made from is not there, or is
not what it was, that is said, and no decision is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from policy.audit.differences import Difference, first_difference
from policy.audit.inputs import Incomplete, Inputs, MissingInput, Replayed, ReplayVerdict
from policy.cluster.snapshot import Snapshot
from policy.decision.model import ENGINE_VERSION, Decision, OfferedNode
from policy.extenders.recorded import NotRecorded, RecordedExtenders
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.store import DamagedRows, DecisionRow, NotFound, Origin, Store
from policy.store.read.queries import Frozen

_BATCH: Final = 500


class Replayer:
    """Makes decisions of one store again; ascending order within a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._inputs = Inputs(store, RuleSet.from_canonical, engine=ENGINE_VERSION)
        self._frozen: dict[int, Frozen] = {}  #: of the decisions that `rows` gave last

    def rows(self, ids: Sequence[int]) -> Iterator[DecisionRow]:
        """The decisions with these numbers; what the next ones need is read together.

        Raises NotFound, DamagedRows.
        """
        for start in range(0, len(ids), _BATCH):
            wanted = ids[start : start + _BATCH]
            batch = self.store.read.decisions_by_id(wanted)
            gone = set(wanted).difference(row.id for row in batch)
            if gone:
                self._say_what_is_missing(gone)
            self._inputs.expect(batch)
            self._frozen = self.store.read.frozen(
                [
                    row.id
                    for row in batch
                    if row.origin == Origin.EXTENDER
                    or self._reads(row, "history_needs", "extenders")
                ]
            )
            yield from batch

    def _say_what_is_missing(self, gone: Set[int]) -> None:
        """Raises NotFound for numbers of no decision, DamagedRows."""
        unknown = gone - self.store.read.known_decisions(sorted(gone))
        if unknown:
            raise NotFound(
                f"there is no decision `{min(unknown)}`",
                help="`policy decisions` lists the numbers",
            )
        raise DamagedRows(
            f"decision {min(gone)} is missing rows that belong to it",
            help="`policy audit verify` names what was changed",
        )

    def _reads(self, row: DecisionRow, *inputs: str) -> bool:
        """Do the rules read more than the state: `history_needs`, or `extenders`?"""
        try:
            rules = self._inputs.rules(row.rule_set_digest)
        except Incomplete:
            return True  # whether they do is not known
        return any(getattr(rules, name) for name in inputs)

    def situation(self, row: DecisionRow) -> tuple[Snapshot, RuleSet]:
        """The snapshot and the rules that a decision was made with. Raises Incomplete."""
        return self._inputs.situation(row, lambda: self.snapshot(row))

    def snapshot(self, row: DecisionRow) -> Snapshot:
        """The snapshot that a decision was made with. Raises Incomplete."""
        history = self._frozen.get(row.id, Frozen()).history
        snapshot = self._inputs.state(row, history=history)
        if snapshot.digest == row.snapshot_digest:
            return snapshot
        if row.hypothetical:
            raise Incomplete((MissingInput.HYPOTHETICAL,))
        unread = history is None and self._reads(row, "history_needs")
        raise Incomplete((MissingInput.HISTORY if unread else MissingInput.SNAPSHOT,))

    def again(self, row: DecisionRow) -> Decision:
        """The decision made again. Raises Incomplete, DecisionError."""
        snapshot, rules = self.situation(row)
        try:
            return decide(
                snapshot,
                rules,
                row.preemptor,
                seed=row.seed,
                evaluate_all=row.evaluate_all,
                extenders=self.extenders(row, rules),
                offer=self.offer(row),
            )
        except NotRecorded as exc:
            raise Incomplete((MissingInput.EXTENDERS,), str(exc)) from exc

    def offer(self, row: DecisionRow) -> tuple[OfferedNode, ...] | None:
        """What a scheduler offered to choose from; None where the engine searched itself."""
        return self._frozen.get(row.id, Frozen()).offer

    def extenders(self, row: DecisionRow, rules: RuleSet) -> RecordedExtenders | None:
        """What the extenders of its rules answered then; the network is never asked."""
        if not rules.extenders:
            return None
        return RecordedExtenders(self._frozen.get(row.id, Frozen()).extender_calls)

    def replay(self, row: DecisionRow) -> Replayed[DecisionRow]:
        """Make a decision again and compare it with the record."""
        try:
            return self._replay(row)
        except Incomplete as exc:
            return Replayed(
                row=row, verdict=ReplayVerdict.INCOMPLETE, missing=exc.missing, detail=exc.detail
            )

    def _replay(self, row: DecisionRow) -> Replayed[DecisionRow]:
        try:
            decision = self.again(row)
        except DecisionError as exc:
            self._inputs.check(row)
            found = Difference(path="preemptor", recorded=row.preemptor, replayed=None)
            return Replayed(
                row=row, verdict=ReplayVerdict.DIFFERENT, difference=found, detail=str(exc)
            )
        if decision.digest == row.digest:
            return Replayed(row=row, verdict=ReplayVerdict.EQUAL, digest=decision.digest)
        self._inputs.check(row)
        difference = first_difference(self.store.read.decision(row.id).record, decision)
        return Replayed(
            row=row, verdict=ReplayVerdict.DIFFERENT, digest=decision.digest, difference=difference
        )


def replay_all(store: Store, ids: Sequence[int]) -> Iterator[Replayed[DecisionRow]]:
    """Replay decisions by number; in ascending order they share the most work."""
    return replayed(Replayer(store), ids)


def replayed(replayer: Replayer, ids: Sequence[int]) -> Iterator[Replayed[DecisionRow]]:
    """The same with a replayer that may have done others; work for `decisions.over`."""
    for row in replayer.rows(ids):
        yield replayer.replay(row)
