"""Decisions with their traces, their effects and their ledger entries, in one transaction.

Several decisions in a row may share a transaction: all of them are in the database, or none. Every
row and every digest is what it would be if each had one of its own; ids, live versions and the last
ledger entry are read once, and rows are written once per table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Connection

from policy.cluster import canonical
from policy.cluster.digest import Change
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision
from policy.decision.record import DecisionRecord, Keep, record_of, values_of
from policy.store import bulk, identity, rows
from policy.store.decision_rows import DecisionPlace, rows_of
from policy.store.errors import AlreadyWritten, PodsGone, StoreError
from policy.store.ledger import entries
from policy.store.model.decisions import Origin, QueueInfo, Recorded, ServedCall
from policy.store.model.sessions import RecordedSession
from policy.store.model.state import Cause
from policy.store.record import environments, keys, rule_sets, sessions
from policy.store.record.basis import Basis
from policy.store.record.calls import call_decided
from policy.store.record.groups import as_group_record
from policy.store.record.keys import WriteKey
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state import around
from policy.store.state.revisions import Revisions, puts_and_deletes
from policy.store.state.versions import Head, lock_head
from policy.store.tables import CYCLES, EXTENDER_CALLS, RULE_SETS
from policy.store.totals import Totals

DEFAULT_CANDIDATES_KEPT: Final = 10

_TAKEN: Final = "extender"
"""Who changes the state by what a scheduler's call says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPod:
    """A decision with what it changes, made on the state that the one before it led to."""

    record: DecisionRecord
    changes: Sequence[Change]
    at_ms: int
    #: what the scheduler's call knows better: a revision of its own, on which it was decided
    taken: Sequence[Change] = ()
    #: uid of the preemptor where it is taken for a pod that was never there
    new_uid: str | None = None
    queue: QueueInfo = QueueInfo()  # noqa: RUF009 (frozen)
    served: ServedCall | None = None  #: the scheduler's call that it answers


@dataclass(frozen=True, slots=True, kw_only=True)
class HypotheticalDecision:
    """A decision, or the cycle of a pod group, on a state that never was."""

    decision: Decision | GroupDecision
    #: what is supposed beside the decisions before this one, one step after the other
    supposed: Sequence[Sequence[Change]] = ()


def record(
    connection: Connection,
    cluster: str,
    decision: Decision,
    changes: Sequence[Change],
    *,
    expected_revision: int,
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    at_ms: int,
    queue: QueueInfo | None = None,
    candidates_kept: Keep = DEFAULT_CANDIDATES_KEPT,
    cause: Cause = Cause.DECISION,
    origin: Origin = Origin.DECIDED,
    served: ServedCall | None = None,
) -> Recorded:
    """Keep a decision together with the state changes that it causes.

    served: the scheduler's call that the decision answers.

    Raises StaleRevision where the cluster is no longer at `expected_revision`, RuleSetChanged
    where another rule set is active in the environment by now: decide again. Raises
    SnapshotMismatch for a decision that was made on another state than that revision's.
    """
    decided = DecidedPod(
        record=record_of(decision, keep=candidates_kept),
        changes=changes,
        at_ms=at_ms,
        queue=queue or QueueInfo(),
        served=served,
    )
    (recorded,) = record_group(
        connection,
        cluster,
        [decided],
        expected_revision=expected_revision,
        rules=rules,
        environment=environment,
        actor=actor,
        cause=cause,
        origin=origin,
    )
    return recorded


def record_group(
    connection: Connection,
    cluster: str,
    decided: Sequence[DecidedPod],
    *,
    expected_revision: int,
    expected_digest: str = "",
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    cause: Cause = Cause.DECISION,
    origin: Origin = Origin.DECIDED,
    claim: Callable[[], Callable[[], None]] | None = None,
    seconds: Callable[[], float] | None = None,
    once: WriteKey | None = None,
    unless_decided: Sequence[str] = (),
) -> list[Recorded]:
    """Keep decisions that follow one another, all or none of them; see `record`.

    expected_revision: that the first one was made on. expected_digest: of the state there, where
    the revision may be another one that others have written. claim: called when all is ready to be
    written; what it gives is called before that is committed. What either raises takes everything
    back. seconds: called next, says how long Postgres may take for each statement that writes; what
    takes longer, as behind somebody's lock, takes everything back. once: what the decisions are
    recorded under, so that no other process records them, too; raises AlreadyWritten where one did.
    unless_decided: raises it, too, where the call of the first decision is in the record with one
    of these failures; a transaction that may just be writing it is waited for. Raises PodsGone
    where a preemptor that is taken for a new pod is none.
    """
    if not decided:
        return []
    if once is not None:
        keys.write_once(connection, once, at_ms=decided[0].at_ms)
    with bulk.together(connection):
        head = lock_head(connection, cluster)
        if unless_decided:
            _require_undecided(connection, environment, decided[0], failures=unless_decided)
        basis = Basis.newest(
            head, expected_revision=expected_revision, expected_digest=expected_digest
        )
        new = [(one.record.preemptor, one.new_uid) for one in decided if one.new_uid is not None]
        gone = around.AskedGone(connection, cluster, new) if new else None
        active = environments.AskedActive(connection, environment) if environment else None
        writer = _Writer(
            connection,
            head,
            rules=rules,
            environment=environment,
            actor=actor,
            cause=cause,
            origin=origin,
            first_ms=decided[0].at_ms,
            count=len(decided),
        )
        writer.look_up(some for one in decided for some in (one.taken, one.changes))
        if active is not None:
            active.require(rules.digest)
        if gone is not None and (left := gone.pods()):
            raise PodsGone(left)
        recorded = []
        for one in decided:
            if one.taken:
                basis = writer.take(one, basis=basis)
            done = writer.add(one, basis=basis)
            basis = Basis(cluster=cluster, revision=done.revision, state_digest=done.state_digest)
            recorded.append(done)
        claimed = claim() if claim is not None else None
        if seconds is not None:
            bulk.within(connection, seconds())
        writer.write()
        if claimed is not None:
            claimed()
    return recorded


def _require_undecided(
    connection: Connection, environment: str, one: DecidedPod, *, failures: Sequence[str]
) -> None:
    """Raises AlreadyWritten where the call is in the record with one of these failures."""
    call = one.served
    if call is not None and call_decided(
        connection,
        call.request_digest,
        environment=environment,
        mode=call.mode.value,
        caller=call.caller,
        arrived_ms=call.arrived_ms,
        failures=failures,
    ):
        raise AlreadyWritten("the call was decided in time")


def record_hypothetical(
    connection: Connection,
    cluster: str,
    supposed: Iterable[HypotheticalDecision],
    *,
    revision: int,
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    at_ms: int,
    candidates_kept: Keep = DEFAULT_CANDIDATES_KEPT,
    origin: Origin = Origin.DECIDED,
) -> list[Recorded | RecordedSession]:
    """Keep decisions and cycles of pod groups on what is supposed of a revision, all or none.

    Each is on the state that the suppositions up to its own lead to; none changes anything.
    Raises NotFound for an unknown revision, SnapshotMismatch where a decision was made on
    another state.
    """
    head = lock_head(connection, cluster)
    basis = Basis.at(connection, head, revision)
    every = list(supposed)
    writer = _Writer(
        connection,
        head,
        rules=rules,
        environment=environment,
        actor=actor,
        cause=Cause.DECISION,
        origin=origin,
        first_ms=at_ms,
        count=sum(isinstance(one.decision, Decision) for one in every),
    )
    recorded: list[Recorded | RecordedSession] = []
    for one in every:
        basis = basis.supposing(one.supposed)
        if isinstance(one.decision, Decision):
            kept = record_of(one.decision, keep=candidates_kept)
            decided = DecidedPod(record=kept, changes=(), at_ms=at_ms)
            recorded.append(writer.add(decided, basis=basis, hypothetical=True))
        else:
            recorded.append(writer.suppose_cycle(one.decision, basis=basis, at_ms=at_ms))
    writer.write()
    return recorded


class _Writer:
    """What the decisions of one transaction share."""

    def __init__(
        self,
        connection: Connection,
        head: Head,
        *,
        rules: AnyRuleSet,
        environment: str,
        actor: str,
        cause: Cause,
        origin: Origin,
        first_ms: int,
        count: int,
    ) -> None:
        """head: locked. first_ms: when the first decision is recorded; count: of all decisions."""
        self._connection = connection
        self._environment = environment
        self._actor = actor
        self._cause = cause
        self._origin = origin
        self._rules = RuleSetText.of(rules)
        self._identity = identity.columns(connection)
        # Nothing is read before all is asked for: see `look_up`.
        self._asked_rules = rule_sets.AskedRow(connection, self._rules)
        self._asked_ids = _asked_ids(connection, count)
        self._first_ms, self._count = first_ms, count
        self._pending = bulk.PendingRows()
        self._totals = Totals()
        self._revisions = Revisions(connection, head, self._pending)
        self._chain = entries.Chain(connection, head, self._pending)

    def look_up(self, changes: Iterable[Sequence[Change]]) -> None:
        """Read what is true now of everything that changes, at once.

        And with it, in one round trip, all that was asked for before.
        """
        self._revisions.look_up((kind, key) for some in changes for kind, key, _ in some)

    @cached_property
    def _rules_row(self) -> dict[str, Any]:
        return self._asked_rules.ensure(at_ms=self._first_ms)

    @cached_property
    def _rules_line(self) -> bytes:
        return rows.line(RULE_SETS, self._rules_row)

    @cached_property
    def _ids(self) -> Iterator[int]:
        return iter(_ids_of(self._asked_ids.rows(), self._connection, self._count))

    def take(self, one: DecidedPod, *, basis: Basis) -> Basis:
        """Make the revision that a decision is on, the one after the basis."""
        puts, deletes = puts_and_deletes(one.taken)
        taken = self._revisions.add(
            puts, deletes, at_ms=one.record.now_ms, source=_TAKEN, cause=Cause.EXTENDER
        )
        self._chain.append(
            entries.EntryKind.CHANGE,
            taken.lines,
            subject_digest=taken.digest,
            at_ms=one.at_ms,
            actor=_TAKEN,
            revision=taken.number,
        )
        return replace(basis, revision=taken.number, state_digest=taken.digest)

    def add(self, one: DecidedPod, *, basis: Basis, hypothetical: bool = False) -> Recorded:
        """Make the rows of a decision that was made on the basis."""
        decision, changes = one.record, one.changes
        subject = f"the decision of `{decision.preemptor}`"
        basis.require(
            decision.snapshot_digest,
            now_ms=decision.now_ms,
            history=decision.history,
            subject=subject,
        )
        self._require_rules(decision.rule_set_digest, subject)
        decision_id = next(self._ids)
        revision = self._revisions.head.number + 1 if changes else None
        cycle = self._cycle(one, decision_id, base=basis.revision, revision=revision)
        lines = [self._rules_line]
        if changes:
            puts, deletes = puts_and_deletes(changes)
            lines += self._revisions.add(
                puts,
                deletes,
                # The state is that of the time decided for; the ledger says when it was recorded.
                at_ms=decision.now_ms,
                source=f"decision {decision_id}",
                cause=self._cause,
                decision_id=decision_id,
                taken_away=decision.effects.clear_nominations,
            ).lines
        head = self._revisions.head
        place = DecisionPlace(
            decision_id=decision_id,
            cluster_id=head.cluster_id,
            rule_set_id=self._rules_row["id"],
            base_revision=basis.revision,
            revision=revision,
            origin=self._origin,
            hypothetical=hypothetical,
            # A call that was only watched, or answered otherwise, has evicted nothing.
            effective=revision is not None or self._origin is not Origin.EXTENDER,
        )
        of_decision = rows_of(decision, place)
        self._totals.decision(of_decision)
        made = [(CYCLES, [cycle]), *of_decision]
        if one.served is not None:
            call = rows.of_table(EXTENDER_CALLS, _call_row(one.served, decision_id))
            made.append((EXTENDER_CALLS, [call]))
        for table, values in made:
            self._pending.add(table, values)
        lines += rows.lines_of_all(made)
        entry = self._chain.append(
            entries.EntryKind.DECISION,
            lines,
            subject_digest=decision.digest,
            at_ms=one.at_ms,
            actor=self._actor,
            environment=self._environment,
            revision=revision,
            decision_id=decision_id,
        )
        return Recorded(
            decision_id=decision_id,
            revision=head.number,
            state_digest=head.digest,
            ledger_hash=entry,
        )

    def suppose_cycle(
        self, decision: GroupDecision, *, basis: Basis, at_ms: int
    ) -> RecordedSession:
        """Keep the cycle of a pod group that is only supposed on the basis."""
        self._require_rules(decision.rule_set_digest, f"the cycle of pod group `{decision.group}`")
        head = self._revisions.head
        session_id, lines = sessions.write_rows(
            self._connection,
            as_group_record(decision, hypothetical=True),
            basis=basis,
            of_cluster=head.cluster_id,
            rules_row=self._rules_row,
            environment=self._environment,
            actor=self._actor,
            at_ms=at_ms,
            hypothetical=True,
        )
        entry = self._chain.append(
            entries.EntryKind.SESSION,
            lines,
            subject_digest=decision.digest,
            at_ms=at_ms,
            actor=self._actor,
            environment=self._environment,
            session_id=session_id,
        )
        return RecordedSession(
            session_id=session_id,
            revision=head.number,
            state_digest=head.digest,
            ledger_hash=entry,
        )

    def _require_rules(self, digest: str, subject: str) -> None:
        if self._rules.digest != digest:
            raise StoreError(
                f"{subject} was not made by rule set `{self._rules.name}`,"
                " with which it is to be recorded"
            )

    def write(self) -> None:
        """Write all rows."""
        with bulk.together(self._connection):
            self._revisions.write()
            self._totals.add_to(self._pending)
            self._pending.write(self._connection)

    def _cycle(
        self, one: DecidedPod, decision_id: int, *, base: int, revision: int | None
    ) -> bulk.Row:
        cycle: dict[str, Any] = {
            "id": decision_id,
            "cluster_id": self._revisions.head.cluster_id,
            "at_ms": one.at_ms,
            "actor": self._actor,
            "environment": self._environment,
            "pod": one.record.preemptor,
            "attempt": one.queue.attempt,
            "queued_ms": one.queue.queued_ms,
            "base_revision": base,
            "revision": revision,
            **self._identity,
        }
        return rows.of_table(CYCLES, cycle)


def _call_row(served: ServedCall, decision_id: int) -> dict[str, Any]:
    return {
        **values_of(served),
        "decision_id": decision_id,
        "mode": served.mode.value,
        "answer": served.answer.value,
        "from_request": canonical.text(list(served.from_request)),
    }


def _asked_ids(connection: Connection, count: int) -> bulk.Asked:
    """What says which ids are next, see `_ids_of`."""
    if connection.dialect.name == "postgresql":
        return bulk.Asked(connection, _NEXT_IDS, (count,))
    return bulk.Asked(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'cycles'")


def _ids_of(found: Sequence[bulk.Row], connection: Connection, count: int) -> Sequence[int]:
    """Ids of decisions that nothing else is given."""
    if connection.dialect.name == "postgresql":
        return [decision_id for (decision_id,) in found]
    # The writer is alone, and SQLite goes on behind the largest id that was ever written.
    last: int = found[0][0] if found else 0
    return range(last + 1, last + 1 + count)


_NEXT_IDS: Final = (
    "SELECT nextval(pg_get_serial_sequence('cycles', 'id')) FROM generate_series(1, ?)"
)
