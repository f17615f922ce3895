"""Decisions and batch sessions that a new state of the cluster contradicts.

A decision of ours evicts pods in the record, and so does a session; whether somebody carried that
out, only the cluster itself shows. After each state that came from outside, the evictions before it
are compared with it: a victim that is still there was not evicted, and a decision none of whose
victims left was not carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    and_,
    func,
    insert,
    or_,
    select,
    true,
)

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Pod
from policy.store import rows
from policy.store.model.state import Cause
from policy.store.outcomes import (
    WHOLE,
    OutcomeKind,
    OutcomeReason,
    contradicted,
    step_contradicted,
)
from policy.store.record.groups import KIND as GROUP_CYCLE
from policy.store.state.loading import decode
from policy.store.state.versions import FINISHED, Head
from policy.store.tables import (
    DECISION_OUTCOMES,
    DECISIONS,
    LEDGER,
    PODS,
    REVISIONS,
    SESSION_OUTCOMES,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
    VERSIONS,
    VICTIMS,
)
from policy.store.totals import Owner, Totals

ALLOWANCE_MS: Final = 30_000
"""A watch shows changes late, and whoever evicts a pod needs a moment: the default grace period."""

HORIZON_MS: Final = 3_600_000
"""How long the evictions of a decision are compared with what a watch shows."""

_GROUP: Final = "SchedulingPodGroup"
_WAITING: Final = ("nominate", "clear-nomination", "pending")
"""Steps about members of a pod group that are not bound."""

_FROM_OUTSIDE: Final = (str(Cause.IMPORT), str(Cause.LIVE))


class _Contradiction(NamedTuple):
    """A victim that is still there."""

    number: int  #: of the decision or session
    position: int
    pod: str
    reason: OutcomeReason


def after_import(connection: Connection, head: Head, revision: int, *, at_ms: int) -> list[bytes]:
    """Compare with an imported state what was decided since the last state from outside.

    head: before the import. Gives the lines that the entry of the revision covers.
    """
    if head.number == 0:
        return []
    r, e = REVISIONS.c, LEDGER.c
    last = (
        select(func.max(r.number))
        .where(r.cluster_id == head.cluster_id, r.number <= head.number)
        .where(r.cause.in_(_FROM_OUTSIDE))
    )
    since = connection.execute(last).scalar() or 0
    if since == head.number:
        return []
    new = (e.cluster_id == head.cluster_id, e.revision > since)
    decided = select(e.decision_id).where(*new, e.decision_id.is_not(None))
    held = select(e.session_id).where(*new, e.session_id.is_not(None))
    decisions = _of_decisions(head).where(VICTIMS.c.decision_id.in_(decided))
    sessions = _of_sessions(head).where(SESSIONS.c.id.in_(held))
    return _compare(connection, head, decisions, sessions, revision=revision, at_ms=at_ms)


def after_watch(
    connection: Connection,
    head: Head,
    revision: int,
    *,
    before_ms: int | None,
    at_ms: int,
    known_ms: int,
) -> list[bytes]:
    """Compare with what a watch showed what was decided within the last hour.

    head: of the state; before_ms: time of the state before; known_ms: until when all that happened
    to pods is in the state. At most once a second. Gives the lines that the entry of the revision
    covers; `undone` says what they mean for the state.
    """
    if before_ms is not None and before_ms // 1000 == at_ms // 1000:
        return []
    silent = known_ms - ALLOWANCE_MS
    decisions, sessions = (
        query.where(now_ms > known_ms - HORIZON_MS, now_ms <= silent)
        for query, now_ms in (
            (_of_decisions(head), VICTIMS.c.now_ms),
            (_of_sessions(head), SESSIONS.c.now_ms),
        )
    )
    return _compare(
        connection, head, decisions, sessions, revision=revision, at_ms=at_ms, silent_ms=silent
    )


def undone(connection: Connection, head: Head, revision: int) -> list[Change]:
    """What leads back from decisions and sessions that the outcomes of a revision contradict.

    Objects of which nothing was shown since the decision, as they were before it: victims without
    their deletion, the preemptor without its nomination. Of the cycle of a pod group none of whose
    victims left, the members that wait, without theirs, and the group, without its condition.
    """
    decided = DECISION_OUTCOMES.join(DECISIONS, DECISIONS.c.id == DECISION_OUTCOMES.c.decision_id)
    cycled = SESSION_OUTCOMES.join(SESSIONS, SESSIONS.c.id == SESSION_OUTCOMES.c.session_id)
    waiting = cycled.join(SESSION_STEPS, _waits_in_vain())
    groups = and_(SESSIONS.c.kind == GROUP_CYCLE, ~_some_left())
    sources: tuple[
        tuple[str, FromClause, Table, Table, ColumnElement[str], ColumnElement[bool]], ...
    ] = (
        ("Pod", decided, DECISIONS, DECISION_OUTCOMES, DECISION_OUTCOMES.c.pod, true()),
        ("Pod", cycled, SESSIONS, SESSION_OUTCOMES, SESSION_OUTCOMES.c.pod, true()),
        ("Pod", waiting, SESSIONS, SESSION_OUTCOMES, SESSION_STEPS.c.task, true()),
        (_GROUP, cycled, SESSIONS, SESSION_OUTCOMES, SESSIONS.c.subject, groups),
    )
    found: dict[tuple[str, str], ClusterObject] = {}
    for kind, origin, owners, outcomes, key, wanted in sources:
        o, d = outcomes.c, owners.c
        now, before = VERSIONS[kind].alias("now").c, VERSIONS[kind].alias("before").c
        same = and_(
            now.cluster_id == o.cluster_id,
            now.key == key,
            now.valid_to.is_(None),
            now.valid_from == d.revision,
        )
        last = and_(
            before.cluster_id == o.cluster_id, before.key == key, before.valid_to == d.revision
        )
        query = (
            select(before.key, before.manifest)
            .select_from(origin)
            .join(now.key.table, same)
            .join(before.key.table, last)
            .where(o.cluster_id == head.cluster_id, o.revision == revision, wanted)
            .order_by(before.key)
        )
        for row in connection.execute(query):
            found[kind, row.key] = decode(kind, row.manifest)
    return [(kind, key, obj) for (kind, key), obj in found.items()]


def _some_left() -> ColumnElement[bool]:
    """Whether some victim of a session left."""
    e = SESSION_STEPS.alias("e").c
    left = select(1).where(
        e.session_id == SESSIONS.c.id,
        e.operation == "evict",
        e.reason == "",
        ~step_contradicted(e.session_id, e.position),
    )
    return left.exists()


def _waits_in_vain() -> ColumnElement[bool]:
    """Steps about members that wait, of a session none of whose victims left."""
    t = SESSION_STEPS.c
    return and_(t.session_id == SESSIONS.c.id, t.operation.in_(_WAITING), ~_some_left())


def _of_decisions(head: Head) -> Select[Any]:
    """Evictions of decisions, each with the pod as it is now, that nothing contradicts yet."""
    v, d = VICTIMS.c, DECISIONS.c
    return (
        _still_there(
            v.decision_id,
            v.position,
            d.revision,
            origin=VICTIMS.join(DECISIONS, d.id == v.decision_id),
            cluster=v.cluster_id,
            pod=v.pod,
            uid=v.uid,
            start_ms=v.start_ms,
        )
        .where(v.cluster_id == head.cluster_id, v.evicted)
        .where(~contradicted(v.decision_id, v.position))
    )


def _of_sessions(head: Head) -> Select[Any]:
    """The same of batch sessions and cycles of pod groups."""
    s, t, was = SESSIONS.c, SESSION_STEPS.c, PODS.alias("was").c
    then = and_(
        was.cluster_id == s.cluster_id,
        was.key == t.task,
        was.valid_from <= s.base_revision,
        or_(was.valid_to.is_(None), was.valid_to > s.base_revision),
    )
    return (
        _still_there(
            t.session_id,
            t.position,
            s.revision,
            origin=SESSIONS.join(SESSION_STEPS, t.session_id == s.id).join(was.key.table, then),
            cluster=s.cluster_id,
            pod=t.task,
            uid=was.uid,
            start_ms=was.start_ms,
        )
        .where(s.cluster_id == head.cluster_id, STEP_EVICTED)
        .where(~step_contradicted(t.session_id, t.position))
    )


def _still_there(
    number: ColumnElement[int],
    position: ColumnElement[int],
    revision: ColumnElement[int],
    *,
    origin: FromClause,
    cluster: ColumnElement[int],
    pod: ColumnElement[str],
    uid: ColumnElement[str],
    start_ms: ColumnElement[int],
) -> Select[Any]:
    """Evictions whose pod the cluster has, and has not finished.

    cluster, pod, uid, start_ms: of the pod as it was evicted. Without uids, a pod that started at
    another time is another pod.
    """
    p = PODS.c
    same = or_(
        and_(p.uid == uid, uid != ""),
        and_(uid == "", p.uid == "", func.coalesce(p.start_ms, -1) == func.coalesce(start_ms, -1)),
    )
    return (
        select(
            number.label("number"),
            position.label("position"),
            pod.label("pod"),
            p.terminating,
            p.valid_from,
            p.manifest,
            revision.label("revision"),
        )
        .select_from(origin)
        .join(PODS, and_(p.cluster_id == cluster, p.key == pod, p.valid_to.is_(None), same))
        .where(revision.is_not(None), p.phase.not_in(FINISHED))
        .order_by(number, position)
    )


def _contradictions(
    connection: Connection, evictions: Select[Any], silent_ms: int | None
) -> Iterator[_Contradiction]:
    """Victims that are still there.

    silent_ms: a pod whose grace period was over then, and of which nothing was shown since the
    decision, is there, too: a watch would have shown its deletion.
    """
    for row in connection.execute(evictions):
        reason = None
        if not row.terminating:
            reason = OutcomeReason.VICTIM_STILL_RUNS
        elif silent_ms is not None and row.valid_from == row.revision:
            pod = decode("Pod", row.manifest)
            assert isinstance(pod, Pod)
            gone = times.parse_optional(pod.metadata.deletion_timestamp)
            if gone != times.MISSING and gone <= silent_ms:
                reason = OutcomeReason.VICTIM_STILL_THERE
        if reason is not None:
            yield _Contradiction(row.number, row.position, row.pod, reason)


def _compare(
    connection: Connection,
    head: Head,
    decisions: Select[Any],
    sessions: Select[Any],
    *,
    revision: int,
    at_ms: int,
    silent_ms: int | None = None,
) -> list[bytes]:
    """Write what is contradicted of the evictions; the lines of it."""

    def write(table: Table, owner: str, found: Sequence[_Contradiction]) -> list[bytes]:
        written = [
            {
                "cluster_id": head.cluster_id,
                owner: one.number,
                "position": one.position,
                "pod": one.pod,
                "outcome": str(OutcomeKind.NOT_CARRIED_OUT),
                "reason": str(one.reason),
                "revision": revision,
                "at_ms": at_ms,
            }
            for one in found
        ]
        if written:
            connection.execute(insert(table), written)
        return [rows.line(table, row) for row in written]

    victims = list(_contradictions(connection, decisions, silent_ms))
    steps = list(_contradictions(connection, sessions, silent_ms))
    numbers = sorted({one.number for one in victims})
    counted = (
        (Owner.DECISION, numbers),
        (Owner.SESSION, sorted({one.number for one in steps})),
    )
    totals = Totals()
    for owner, ids in counted:
        totals.take(connection, owner, ids, sign=-1)
    lines = write(DECISION_OUTCOMES, "decision_id", victims)
    whole = list(_in_vain(connection, head, numbers))
    lines += write(DECISION_OUTCOMES, "decision_id", whole)
    lines += write(SESSION_OUTCOMES, "session_id", steps)
    for owner, ids in counted:
        totals.take(connection, owner, ids)
    totals.write(connection)
    return lines


def _in_vain(
    connection: Connection, head: Head, decisions: Sequence[int]
) -> Iterator[_Contradiction]:
    """Those of the decisions none of whose victims left, with what became of the preemptor."""
    v, d, p = VICTIMS.c, DECISIONS.c, PODS.c
    left = select(v.decision_id).where(
        v.decision_id == d.id, v.evicted, ~contradicted(v.decision_id, v.position)
    )
    live = and_(p.cluster_id == d.cluster_id, p.key == d.preemptor, p.valid_to.is_(None))
    for number in decisions:
        query = (
            select(d.id, d.preemptor, d.preemptor_uid, d.node, p.uid, p.phase, p.node.label("on"))
            .select_from(DECISIONS)
            .outerjoin(PODS, live)
            .where(d.cluster_id == head.cluster_id, d.id == number, ~left.exists())
        )
        for row in connection.execute(query):
            if row.uid is None or row.uid != row.preemptor_uid or row.phase in FINISHED:
                reason = OutcomeReason.PREEMPTOR_GONE
            elif row.on and row.on != row.node:
                reason = OutcomeReason.PREEMPTOR_ELSEWHERE
            else:
                reason = OutcomeReason.NO_VICTIM_LEFT
            yield _Contradiction(row.id, WHOLE, row.preemptor, reason)
