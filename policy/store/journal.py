"""The store as the journal of one cluster, for the scheduling cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from policy.cluster.digest import Change, HistoryFigures
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision
from policy.decision.record import record_of
from policy.preemption.tally import Tally
from policy.rules.ruleset import RuleSet
from policy.scheduling.state import State, StateDelta, StateLost, StateMoved
from policy.store.errors import NotFound, StaleRevision
from policy.store.model.decisions import Origin, Recorded
from policy.store.model.sessions import RecordedSession, SessionRecord
from policy.store.model.state import Cause, ChangedState
from policy.store.record.decisions import DecidedPod
from policy.store.record.environments import RuleSetChanged
from policy.store.record.groups import as_group_record
from policy.store.record.sessions import as_record
from policy.store.store import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

    from policy.batch.result import SessionResult
    from policy.batch.rules import BatchRules

_KNOWN = 8
"""Rule sets that stay compiled: an environment goes back and forth between few."""


R = TypeVar("R")
_Rules = TypeVar("_Rules", "RuleSet", "BatchRules")


class _ActiveRules(Generic[_Rules]):
    """What is active in an environment, read anew only where something else was activated."""

    def __init__(self, store: Store, environment: str, parse: Callable[[str], _Rules]) -> None:
        self._store = store
        self._environment = environment
        self._parse: Callable[[str], _Rules] = parse
        self._digest = ""  #: of what is active; numbers of activations come again after a restore
        self._active: _Rules | None = None
        self._known: dict[str, _Rules] = {}

    def newest(self) -> _Rules | None:
        """None where there is no environment."""
        if not self._environment:
            return None
        found = self._store.read.active_rule_set(self._environment, unless=self._digest)
        if found is not None:
            rules = self._known.get(found.digest)
            if rules is None:
                rules = self._known[found.digest] = self._parse(found.canonical)
                while len(self._known) > _KNOWN:
                    del self._known[next(iter(self._known))]
            self._digest, self._active = found.digest, rules
        return self._active


class StoreJournal:
    """One cluster of a store; every decision is kept with who made it and in which environment."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        *,
        actor: str,
        clock: Callable[[], int],
        environment: str = "",
        origin: Origin = Origin.DECIDED,
        cause: Cause = Cause.SIMULATION,
    ) -> None:
        """clock: milliseconds since 1970 UTC; the time at which a decision is recorded."""
        self._store = store
        self._cluster = cluster
        self._actor = actor
        self._clock = clock
        self._environment = environment
        self._origin = origin
        self._cause = cause
        self._rules: _ActiveRules[RuleSet] = _ActiveRules(
            store, environment, RuleSet.from_canonical
        )
        self._batch_rules: _ActiveRules[BatchRules] | None = None

    def load(self, *, now_ms: int) -> State:
        loaded = self._store.state.load(self._cluster)
        snapshot = Snapshot.from_objects(
            loaded.objects, now_ms=now_ms, state_digest=loaded.state_digest
        )
        return State(snapshot=snapshot, revision=loaded.revision)

    def delta(self, revision: int, *, state_digest: str) -> StateDelta:
        try:
            since = self._store.state.changes_since(
                self._cluster, revision, state_digest=state_digest
            )
        except NotFound as exc:
            raise StateLost(
                f"revision {revision} of cluster `{self._cluster}` is not in the database any more,"
                " or is another one there, as after a backup was restored"
            ) from exc
        return StateDelta(
            changes=since.changes, revision=since.revision, state_digest=since.state_digest
        )

    def active_rules(self) -> RuleSet | None:
        return self._rules.newest()

    def active_batch_rules(self) -> BatchRules | None:
        if self._batch_rules is None:
            from policy.batch.rules import BatchRules

            self._batch_rules = _ActiveRules(
                self._store, self._environment, BatchRules.from_canonical
            )
        return self._batch_rules.newest()

    def history(
        self, rules: RuleSet, *, now_ms: int, under_way: Sequence[tuple[int, Decision]] = ()
    ) -> HistoryFigures | None:
        """The figures that the rules read; None where they read none.

        under_way: decisions that are on their way into the record, each with the revision that it
        makes. They count, whether or not they are there by now.
        """
        needs = rules.history_needs
        if not needs:
            return None
        if not under_way:
            return self._store.read.history(self._cluster, needs, now_ms=now_ms)
        with self._store.reading() as rooms:
            head = rooms.state.head_revision(self._cluster)
            recorded = rooms.read.history(self._cluster, needs, now_ms=now_ms)
        # Where that revision is somebody else's, those under way fail, and what counted them, too.
        coming = Tally()
        for revision, decision in under_way:
            if revision > head:
                coming.note(decision)
        return coming.added_to(recorded, needs, now_ms=now_ms)

    def record(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> list[Recorded]:
        return self._recorded(
            self._store.record.decision_group,
            decided,
            expected_revision=expected_revision,
            rules=rules,
        )

    def record_ahead(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> Future[list[Recorded]]:
        return self._recorded(
            self._store.record.decision_group_ahead,
            decided,
            expected_revision=expected_revision,
            rules=rules,
        )

    def _recorded(
        self,
        write: Callable[..., R],
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> R:
        try:
            return write(
                self._cluster,
                [
                    DecidedPod(
                        record=record_of(decision, keep=rules.audit_candidates),
                        changes=changes,
                        at_ms=self._clock(),
                    )
                    for decision, changes in decided
                ],
                expected_revision=expected_revision,
                rules=rules,
                environment=self._environment,
                actor=self._actor,
                origin=self._origin,
            )
        except (StaleRevision, RuleSetChanged) as stale:
            raise StateMoved(str(stale)) from stale

    def record_group(
        self,
        decision: GroupDecision,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> RecordedSession:
        record = as_group_record(decision)
        return self._session(record, changes, expected_revision=expected_revision, rules=rules)

    def record_session(
        self,
        result: SessionResult,
        queues: Mapping[str, str],
        *,
        now_ms: int,
        expected_revision: int,
        rules: BatchRules,
    ) -> RecordedSession:
        record = as_record(result, queues, now_ms=now_ms)
        return self._session(
            record, result.changes, expected_revision=expected_revision, rules=rules
        )

    def _session(
        self,
        record: SessionRecord,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rules: RuleSet | BatchRules,
    ) -> RecordedSession:
        try:
            return self._store.record.session(
                self._cluster,
                record,
                changes,
                expected_revision=expected_revision,
                rules=rules,
                environment=self._environment,
                actor=self._actor,
                at_ms=self._clock(),
            )
        except (StaleRevision, RuleSetChanged) as stale:
            raise StateMoved(str(stale)) from stale

    def change(
        self,
        changes: Sequence[Change],
        *,
        source: str,
        at_ms: int,
        expected_revision: int,
        expected_digest: str,
    ) -> ChangedState:
        try:
            return self._store.record.change(
                self._cluster,
                changes,
                at_ms=at_ms,
                source=source,
                cause=self._cause,
                actor=self._actor,
                expected_revision=expected_revision,
                expected_digest=expected_digest,
            )
        except StaleRevision as stale:
            raise StateMoved(str(stale)) from stale
