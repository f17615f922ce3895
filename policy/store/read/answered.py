"""The decision that an observed preemption carries out: what the service answered a scheduler."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, RowMapping, or_, select

from policy.decision.model import Outcome
from policy.observing.model import Preemption
from policy.store.model.decisions import Origin
from policy.store.observed import AnsweredDecision
from policy.store.outcomes import WHOLE, contradicted
from policy.store.state.versions import find_head
from policy.store.tables import DECISIONS, RULE_SETS, VICTIMS

_BEFORE_MS: Final = 600_000
"""A scheduler evicts as soon as it is answered, by a clock that may be ahead."""

_AFTER_MS: Final = 60_000
"""Its clock may be behind."""

_NEWEST: Final = 10
"""Calls about one pod within that time that are looked at."""


def answered(
    connection: Connection, cluster: str, preemption: Preemption
) -> tuple[AnsweredDecision, ...]:
    """The decisions of enforce mode for the same pod on the same node, the newest first.

    Those within the minutes before, as far as nothing contradicts them.
    """
    head = find_head(connection, cluster)
    if head is None or not preemption.preemptor:
        return ()
    d, r = DECISIONS.c, RULE_SETS.c
    query = (
        select(d.id, d.engine_version, r.name, r.digest)
        .join(RULE_SETS, r.id == d.rule_set_id)
        .where(
            d.preemptor == preemption.preemptor,
            d.cluster_id == head.cluster_id,
            d.origin == Origin.EXTENDER,
            d.outcome == Outcome.PREEMPT,
            d.node == preemption.node,
            d.revision.is_not(None),
            d.now_ms >= preemption.at_ms - _BEFORE_MS,
            d.now_ms <= preemption.at_ms + _AFTER_MS,
            ~contradicted(d.id, WHOLE),
        )
        .order_by(d.id.desc())
        .limit(_NEWEST)
    )
    if preemption.preemptor_uid:
        query = query.where(or_(d.preemptor_uid == preemption.preemptor_uid, d.preemptor_uid == ""))
    return tuple(_decision(connection, row) for row in connection.execute(query).mappings().all())


def _decision(connection: Connection, row: RowMapping) -> AnsweredDecision:
    v = VICTIMS.c
    # Two schedulers, or one that does not see its own deletion yet, evict a pod twice: an event
    # names a pod, too, that was leaving when this was decided, for a decision before.
    leave = select(v.uid, v.pdb_violating).where(
        v.decision_id == row["id"],
        or_(v.evicted, v.already_terminating),
        v.uid != "",
        ~contradicted(v.decision_id, v.position),
    )
    return AnsweredDecision(
        id=row["id"],
        rule_set=row["name"],
        rule_set_digest=row["digest"],
        engine_version=row["engine_version"],
        victims={one.uid: bool(one.pdb_violating) for one in connection.execute(leave)},
    )
