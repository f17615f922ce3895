"""Replay: decide again what was decided, on the state and under the rules of then.

Nothing else is ever replayed: where a part of what a decision was made from is not there, or is
not what it was, that is said, and no decision is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policy.audit.differences import Difference, first_difference
from policy.audit.past import Damaged, Past
from policy.cluster import canonical
from policy.cluster.snapshot import Snapshot
from policy.decision.model import ENGINE_VERSION, Decision
from policy.extenders.recorded import NotRecorded, RecordedExtenders
from policy.preemption.decide import DecisionError, decide
from policy.rules import RulesError, RuleSet
from policy.store import DecisionRow, NotFound, Store, StoreError
from policy.store.read.audit_queries import Frozen

_BATCH: Final = 500


class MissingInput(StrEnum):
    """What a replay would need and does not have. Values are part of the output."""

    ENGINE = "engine-version"  # made by another version of the decision procedure
    RULE_SET = "rule-set"  # its text is not there
    RULE_SET_DIGEST = "rule-set-digest"  # its text is not the one that was used
    RULE_SET_UNREADABLE = "rule-set-unreadable"  # this version cannot read it
    STATE = "state"  # the revision it was made on is not kept
    STATE_DIGEST = "state-digest"  # the rows of the state are not those that were written
    HYPOTHETICAL = "hypothetical-state"  # made on a state that never was
    EXTENDERS = "extender-answers"  # an extender would be queried about something new
    HISTORY = "history"  # the history figures that its rules read are not recorded
    SNAPSHOT = "snapshot-digest"  # state and time do not have the digest that was recorded


class Verdict(StrEnum):
    """How a replay ended. Values are part of the output."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of one replay."""

    id: int
    cluster: str
    preemptor: str
    verdict: Verdict
    recorded_digest: str
    replayed_digest: str = ""  #: "" where nothing could be decided
    difference: Difference | None = None
    missing: tuple[MissingInput, ...] = ()
    detail: str = ""


class Incomplete(Exception):  # what happened, with all that is missing
    """A decision cannot be made again."""

    def __init__(self, missing: Sequence[MissingInput], detail: str = "") -> None:
        super().__init__(", ".join(missing))
        self.missing = tuple(missing)
        self.detail = detail


class Replayer:
    """Makes decisions of one store again; ascending order within a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pasts: dict[str, Past] = {}
        self._rules: dict[str, RuleSet | Incomplete] = {}
        self._frozen: dict[int, Frozen] = {}  #: of the decisions that `rows` gave last

    def rows(self, ids: Sequence[int]) -> Iterator[DecisionRow]:
        """The decisions with these numbers; what the next ones need is read together."""
        for start in range(0, len(ids), _BATCH):
            queries = self._store.audit_queries()
            wanted = ids[start : start + _BATCH]
            batch = queries.decisions(wanted)
            gone = set(wanted).difference(row.id for row in batch)
            if gone:
                raise StoreError(
                    f"decision {min(gone)} is missing rows that belong to it",
                    help="`policy audit verify` names what was changed",
                )
            for row in batch:
                self._past(row.cluster).expect(row.base_revision)
            self._frozen = queries.frozen([r.id for r in batch if self._told_more(r)])
            yield from batch

    def _told_more(self, row: DecisionRow) -> bool:
        """Was the decision told more than its state: figures, or extenders' answers?"""
        try:
            rules = self._rule_set(row.rule_set_digest)
        except Incomplete:
            return True  # whether it was is not known
        return bool(rules.history_needs or rules.extenders)

    def _reads_history(self, row: DecisionRow) -> bool:
        try:
            return bool(self._rule_set(row.rule_set_digest).history_needs)
        except Incomplete:
            return True  # whether it does is not known

    def _past(self, cluster: str) -> Past:
        if cluster not in self._pasts:
            self._pasts[cluster] = Past(self._store, cluster)
        return self._pasts[cluster]

    def situation(self, row: DecisionRow) -> tuple[Snapshot, RuleSet]:
        """The snapshot and the rules that a decision was made with. Raises Incomplete."""
        rules: RuleSet | None = None
        missing: list[MissingInput] = []
        details: list[str] = []
        try:
            rules = self._rule_set(row.rule_set_digest)
        except Incomplete as exc:
            missing += exc.missing
            details.append(exc.detail)
        try:
            snapshot = self.snapshot(row)
        except Incomplete as exc:
            missing += exc.missing
            details.append(exc.detail)
        if rules is None or missing:
            raise Incomplete(missing, "; ".join(text for text in details if text))
        return snapshot, rules

    def snapshot(self, row: DecisionRow) -> Snapshot:
        """The snapshot that a decision was made with. Raises Incomplete."""
        if row.engine_version != ENGINE_VERSION:
            detail = f"made by engine version {row.engine_version}, this is {ENGINE_VERSION}"
            raise Incomplete((MissingInput.ENGINE,), detail)
        history = self._frozen.get(row.id, Frozen()).history
        try:
            snapshot = self._past(row.cluster).at(
                row.base_revision, now_ms=row.now_ms, history=history
            )
        except NotFound as exc:
            raise Incomplete((MissingInput.STATE,), exc.message) from exc
        except (Damaged, StoreError) as exc:
            raise Incomplete((MissingInput.STATE_DIGEST,), str(exc)) from exc
        if snapshot.digest == row.snapshot_digest:
            return snapshot
        if row.hypothetical:
            raise Incomplete((MissingInput.HYPOTHETICAL,))
        unread = history is None and self._reads_history(row)
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
            )
        except NotRecorded as exc:
            raise Incomplete((MissingInput.EXTENDERS,), str(exc)) from exc

    def extenders(self, row: DecisionRow, rules: RuleSet) -> RecordedExtenders | None:
        """What the extenders of its rules answered then; the network is never asked."""
        if not rules.extenders:
            return None
        return RecordedExtenders(self._frozen.get(row.id, Frozen()).extender_calls)

    def replay(self, row: DecisionRow) -> Replayed:
        """Make a decision again and compare it with the record."""
        try:
            return self._replay(row)
        except Incomplete as exc:
            return _replayed(row, Verdict.INCOMPLETE, missing=exc.missing, detail=exc.detail)

    def _replay(self, row: DecisionRow) -> Replayed:
        try:
            decision = self.again(row)
        except DecisionError as exc:
            self._check_state(row)
            found = Difference(path="preemptor", recorded=row.preemptor, replayed=None)
            return _replayed(row, Verdict.DIFFERENT, difference=found, detail=str(exc))
        if decision.digest == row.digest:
            return _replayed(row, Verdict.EQUAL, digest=decision.digest)
        self._check_state(row)
        difference = first_difference(self._store.decision(row.id).record, decision)
        return _replayed(row, Verdict.DIFFERENT, digest=decision.digest, difference=difference)

    def _check_state(self, row: DecisionRow) -> None:
        """Is the state on which a decision came out differently the one of then?

        All the way back, which only a difference is worth. Raises Incomplete.
        """
        try:
            self._past(row.cluster).check(row.base_revision)
        except NotFound as exc:
            raise Incomplete((MissingInput.STATE,), exc.message) from exc
        except (Damaged, StoreError) as exc:
            raise Incomplete((MissingInput.STATE_DIGEST,), str(exc)) from exc

    def _rule_set(self, digest: str) -> RuleSet:
        """Raises Incomplete."""
        found = self._rules.get(digest)
        if found is None:
            try:
                found = _read_rules(self._store.rule_set(digest), digest)
            except NotFound as exc:
                found = Incomplete((MissingInput.RULE_SET,), exc.message)
            self._rules[digest] = found
        if isinstance(found, Incomplete):
            raise found
        return found


def _read_rules(text: str, digest: str) -> RuleSet | Incomplete:
    if canonical.sha256(text.encode()) != digest:
        return Incomplete(
            (MissingInput.RULE_SET_DIGEST,), f"the stored text is not that of {digest}"
        )
    try:
        return RuleSet.from_canonical(text)
    except RulesError as exc:
        return Incomplete((MissingInput.RULE_SET_UNREADABLE,), str(exc).partition("\n")[0])


def _replayed(
    row: DecisionRow,
    verdict: Verdict,
    *,
    digest: str = "",
    difference: Difference | None = None,
    missing: tuple[MissingInput, ...] = (),
    detail: str = "",
) -> Replayed:
    return Replayed(
        id=row.id,
        cluster=row.cluster,
        preemptor=row.preemptor,
        verdict=verdict,
        recorded_digest=row.digest,
        replayed_digest=digest,
        difference=difference,
        missing=missing,
        detail=detail,
    )


def replay_all(store: Store, ids: Sequence[int]) -> Iterator[Replayed]:
    """Replay decisions by number; in ascending order they share the most work."""
    replayer = Replayer(store)
    for row in replayer.rows(ids):
        yield replayer.replay(row)
