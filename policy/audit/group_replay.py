"""Replay of pod groups' cycles: decided again on the state and under the rules of then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policy.audit.differences import ONLY_DIGEST, Difference, first_of_documents
from policy.audit.inputs import Incomplete, Inputs, MissingInput, Replayed, ReplayVerdict
from policy.cluster import canonical
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import ENGINE_VERSION
from policy.groups.decide import decide_group
from policy.rules.ruleset import RuleSet
from policy.store import SessionRow, Store
from policy.store.record.groups import document_of


class GroupReplayer:
    """Decides the cycles of one store again; ascending order within a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._inputs = Inputs(store, RuleSet.from_canonical, engine=ENGINE_VERSION)

    def replay_all(self, rows: Sequence[SessionRow]) -> Iterator[Replayed[SessionRow]]:
        """Replay cycles in this order."""
        self._inputs.expect(rows)
        for row in rows:
            yield self.replay(row)

    def replay(self, row: SessionRow) -> Replayed[SessionRow]:
        """Decide a cycle again and compare it with the record."""
        try:
            decision = self.again(row)
        except Incomplete as exc:
            return Replayed(
                row=row, verdict=ReplayVerdict.INCOMPLETE, missing=exc.missing, detail=exc.detail
            )
        if decision.digest == row.digest:
            return Replayed(row=row, verdict=ReplayVerdict.EQUAL, digest=decision.digest)
        self._inputs.check(row)
        recorded = document_of(self.store.read.session(row.id))
        found = first_of_documents(recorded, canonical.parse(decision.canonical.decode()))
        if found is None:
            found = Difference(path=ONLY_DIGEST, recorded=row.digest, replayed=decision.digest)
        return Replayed(
            row=row, verdict=ReplayVerdict.DIFFERENT, digest=decision.digest, difference=found
        )

    def again(self, row: SessionRow) -> GroupDecision:
        """The cycle decided again. Raises Incomplete."""
        snapshot, rules = self.situation(row)
        return decide_group(snapshot, rules, row.subject, seed=row.seed)

    def situation(self, row: SessionRow) -> tuple[Snapshot, RuleSet]:
        """Snapshot and rules of then. Raises Incomplete."""
        return self._inputs.situation(row, lambda: self._snapshot(row))

    def _snapshot(self, row: SessionRow) -> Snapshot:
        history = document_of(self.store.read.session(row.id)).get("history")
        snapshot = self._inputs.state(row, history=history)
        if snapshot.digest != row.snapshot_digest:
            supposed = row.hypothetical
            raise Incomplete((MissingInput.HYPOTHETICAL if supposed else MissingInput.SNAPSHOT,))
        return snapshot
