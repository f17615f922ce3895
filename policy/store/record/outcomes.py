"""Decisions that a new state of the cluster contradicts.

A decision of ours evicts pods in the record; whether somebody carried that out, only the cluster
itself shows. After each state that came from outside, the evictions before it are compared with it:
a victim that is still there was not evicted, and a decision none of whose victims left was not
carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.store import rows
from policy.store.model import Cause
from policy.store.outcomes import WHOLE, OutcomeKind, OutcomeReason, contradicted
from policy.store.state.loading import decode
from policy.store.state.versions import FINISHED, Head
from policy.store.tables import (
    DECISION_OUTCOMES,
    DECISIONS,
    LEDGER,
    PODS,
    REVISIONS,
    VICTIMS,
)

ALLOWANCE_MS: Final = 30_000
"""A watch shows changes late, and whoever evicts a pod needs a moment: the default grace period."""

HORIZON_MS: Final = 3_600_000
"""How long the evictions of a decision are compared with what a watch shows."""

_FROM_OUTSIDE: Final = (str(Cause.IMPORT), str(Cause.LIVE))


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
    decided = select(e.decision_id).where(
        e.cluster_id == head.cluster_id, e.revision > since, e.decision_id.is_not(None)
    )
    found = _contradictions(connection, head, VICTIMS.c.decision_id.in_(decided))
    return _write(connection, head, found, revision=revision, at_ms=at_ms)


def after_watch(
    connection: Connection, head: Head, revision: int, *, before_ms: int | None, at_ms: int
) -> list[bytes]:
    """Compare with what a watch showed what was decided within the last hour.

    head: of the state; before_ms: time of the state before. At most once a second. Gives the lines
    that the entry of the revision covers; `undone` says what they mean for the state.
    """
    if before_ms is not None and before_ms // 1000 == at_ms // 1000:
        return []
    v = VICTIMS.c
    recent = and_(v.now_ms > at_ms - HORIZON_MS, v.now_ms <= at_ms - ALLOWANCE_MS)
    found = _contradictions(connection, head, recent, silent_ms=at_ms - ALLOWANCE_MS)
    return _write(connection, head, found, revision=revision, at_ms=at_ms)


def undone(connection: Connection, head: Head, revision: int) -> list[Change]:
    """What leads back from decisions that the outcomes of a revision contradict.

    Pods of which nothing was shown since the decision, as they were before it: victims without
    their deletion, the preemptor without its nomination.
    """
    o, d = DECISION_OUTCOMES.c, DECISIONS.c
    now, before = PODS.alias("now").c, PODS.alias("before").c
    same = and_(
        now.cluster_id == o.cluster_id,
        now.key == o.pod,
        now.valid_to.is_(None),
        now.valid_from == d.revision,
    )
    last = and_(
        before.cluster_id == o.cluster_id, before.key == o.pod, before.valid_to == d.revision
    )
    query = (
        select(before.key, before.manifest)
        .select_from(DECISION_OUTCOMES)
        .join(DECISIONS, d.id == o.decision_id)
        .join(now.key.table, same)
        .join(before.key.table, last)
        .where(o.cluster_id == head.cluster_id, o.revision == revision)
        .order_by(before.key)
    )
    return [
        ("Pod", row.key, decode("Pod", row.manifest)) for row in connection.execute(query).unique()
    ]


def _contradictions(
    connection: Connection,
    head: Head,
    evictions: ColumnElement[bool],
    *,
    silent_ms: int | None = None,
) -> list[tuple[Any, OutcomeReason]]:
    """Victims that are still there.

    silent_ms: a pod whose grace period was over then, and of which nothing was shown since the
    decision, is there, too: a watch would have shown its deletion.
    """
    v, d, p = VICTIMS.c, DECISIONS.c, PODS.c
    same = or_(
        and_(p.uid == v.uid, v.uid != ""),
        # Without uids, a pod that started at another time is another pod.
        and_(
            v.uid == "", p.uid == "", func.coalesce(p.start_ms, -1) == func.coalesce(v.start_ms, -1)
        ),
    )
    query = (
        select(
            v.decision_id, v.position, v.pod, p.terminating, p.valid_from, p.manifest, d.revision
        )
        .select_from(VICTIMS)
        .join(DECISIONS, d.id == v.decision_id)
        .join(PODS, and_(p.cluster_id == v.cluster_id, p.key == v.pod, p.valid_to.is_(None), same))
        .where(v.cluster_id == head.cluster_id, v.evicted, evictions)
        .where(d.revision.is_not(None), p.phase.not_in(FINISHED))
        .where(~contradicted(v.decision_id, v.position))
        .order_by(v.decision_id, v.position)
    )
    found: list[tuple[Any, OutcomeReason]] = []
    for row in connection.execute(query):
        if not row.terminating:
            found.append((row, OutcomeReason.VICTIM_STILL_RUNS))
        elif silent_ms is not None and row.valid_from == row.revision:
            pod = decode("Pod", row.manifest)
            assert isinstance(pod, Pod)
            gone = times.parse_optional(pod.metadata.deletion_timestamp)
            if gone != times.MISSING and gone <= silent_ms:
                found.append((row, OutcomeReason.VICTIM_STILL_THERE))
    return found


def _write(
    connection: Connection,
    head: Head,
    found: Sequence[tuple[Any, OutcomeReason]],
    *,
    revision: int,
    at_ms: int,
) -> list[bytes]:
    def row(decision: int, position: int, pod: str, reason: OutcomeReason) -> dict[str, Any]:
        return {
            "cluster_id": head.cluster_id,
            "decision_id": decision,
            "position": position,
            "pod": pod,
            "outcome": str(OutcomeKind.NOT_CARRIED_OUT),
            "reason": str(reason),
            "revision": revision,
            "at_ms": at_ms,
        }

    if not found:
        return []
    victims = [row(one.decision_id, one.position, one.pod, reason) for one, reason in found]
    connection.execute(insert(DECISION_OUTCOMES), victims)
    whole = [
        row(number, WHOLE, preemptor, reason)
        for number, preemptor, reason in _in_vain(
            connection, head, sorted({one.decision_id for one, _ in found})
        )
    ]
    if whole:
        connection.execute(insert(DECISION_OUTCOMES), whole)
    return [rows.line(DECISION_OUTCOMES, one) for one in (*whole, *victims)]


def _in_vain(
    connection: Connection, head: Head, decisions: Sequence[int]
) -> Iterator[tuple[int, str, OutcomeReason]]:
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
            yield row.id, row.preemptor, reason
