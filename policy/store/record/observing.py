"""Observed preemptions in: each with its victims and its ledger entry, and none twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, or_, select

from policy.cluster import canonical
from policy.cluster.objects import Pod
from policy.observing.model import Confidence, Preemption, SeenVictim
from policy.store import identity, rows
from policy.store.ledger import entries
from policy.store.observed import NewObservation
from policy.store.state.columns import columns_of
from policy.store.state.versions import Head, lock_head
from policy.store.tables import OBSERVATIONS, OBSERVED_VICTIMS
from policy.store.totals import Owner, Totals


def record(
    connection: Connection,
    cluster: str,
    observations: Sequence[NewObservation],
    *,
    at_ms: int,
    source: str,
    actor: str,
) -> list[int]:
    """Keep observed preemptions; gives their numbers, those of new ones only.

    What rests on the same evidence as one that is kept is not kept again. One that is certain
    replaces one about the same victims that was not.
    """
    head = lock_head(connection, cluster)
    numbers = []
    for one in observations:
        known, guessed = _known(connection, head, one.preemption)
        if known or (guessed and one.preemption.confidence is not Confidence.CERTAIN):
            continue
        numbers.append(
            _write(
                connection,
                head,
                one,
                at_ms=at_ms,
                source=source,
                actor=actor,
                replaces=guessed[0] if guessed else None,
            )
        )
    return numbers


def _known(
    connection: Connection, head: Head, preemption: Preemption
) -> tuple[bool, Sequence[int]]:
    """Whether it is kept already; and the kept ones about its victims that are less sure."""
    v, o = OBSERVED_VICTIMS.c, OBSERVATIONS.c
    events = [one.event_uid for one in preemption.victims if one.event_uid]
    if events:
        query = select(v.observation_id).where(
            v.cluster_id == head.cluster_id, v.event_uid.in_(events)
        )
        if connection.execute(query.limit(1)).first() is not None:
            return True, ()
    uids = [one.uid for one in preemption.victims if one.uid]
    pods = [one.pod for one in preemption.victims if not one.uid]
    query = (
        select(o.id, o.confidence, o.preemptor_uid, o.preemptor)
        .join(OBSERVED_VICTIMS, v.observation_id == o.id)
        .where(
            v.cluster_id == head.cluster_id,
            or_(v.uid.in_(uids), v.victim.in_(pods) & (v.uid == "")),
        )
        .order_by(o.id)
    )
    found = connection.execute(query).all()
    guessed = [row.id for row in found if row.confidence != Confidence.CERTAIN]
    if preemption.confidence is Confidence.CERTAIN:
        return False, list(dict.fromkeys(guessed))
    return bool(found), ()


def _write(
    connection: Connection,
    head: Head,
    new: NewObservation,
    *,
    at_ms: int,
    source: str,
    actor: str,
    replaces: int | None,
) -> int:
    preemption, situation, verdict = new.preemption, new.situation, new.verdict
    preemptor = situation.preemptor
    namespace = preemption.preemptor.partition("/")[0] if preemption.preemptor else ""
    row: dict[str, Any] = {
        "cluster_id": head.cluster_id,
        "at_ms": at_ms,
        "actor": actor,
        "source": source,
        "now_ms": preemption.at_ms,
        "preemptor": preemption.preemptor,
        "preemptor_namespace": namespace,
        "preemptor_uid": preemption.preemptor_uid,
        "preemptor_kind": preemption.preemptor_kind,
        "preemptor_priority": None if preemptor is None else preemptor.spec.priority or 0,
        "node": preemption.node,
        "scheduler": preemption.scheduler,
        "confidence": str(preemption.confidence),
        "victim_count": len(preemption.victims),
        "base_revision": situation.base_revision,
        "revision": head.number,
        "verdict": str(verdict.verdict),
        "reason": verdict.reason,
        "rule_set": verdict.rule_set,
        "rule_set_digest": verdict.rule_set_digest,
        "engine_version": verdict.engine_version,
        "evidence": canonical.encode(preemption.document()).decode(),
        "detail": canonical.encode(dict(verdict.detail)).decode(),
        "digest": preemption.digest,
        "replaces": replaces,
        **identity.columns(connection),
    }
    totals = Totals()
    if replaces is not None:
        totals.take(connection, Owner.OBSERVATION, [replaces], sign=-1)
    number = connection.execute(insert(OBSERVATIONS).returning(OBSERVATIONS.c.id), row).scalar_one()
    row["id"] = number
    victims = [
        _victim_row(connection, head, new, position, victim, number, namespace)
        for position, victim in enumerate(preemption.victims)
    ]
    if victims:
        connection.execute(insert(OBSERVED_VICTIMS), victims)
    totals.take(connection, Owner.OBSERVATION, [number])
    totals.write(connection)
    entries.append(
        connection,
        head,
        entries.EntryKind.OBSERVATION,
        [
            rows.line(OBSERVATIONS, row),
            *(rows.line(OBSERVED_VICTIMS, victim) for victim in victims),
        ],
        subject_digest=preemption.digest,
        at_ms=at_ms,
        actor=actor,
        observation_id=number,
    )
    return int(number)


def _victim_row(
    connection: Connection,
    head: Head,
    new: NewObservation,
    position: int,
    victim: SeenVictim,
    observation_id: int,
    preemptor_namespace: str,
) -> dict[str, Any]:
    pod = new.situation.victims.get(victim.pod)
    now_ms = new.preemption.at_ms
    facts = _facts(victim, pod)
    start = facts["start_ms"]
    return {
        "observation_id": observation_id,
        "position": position,
        "cluster_id": head.cluster_id,
        "now_ms": now_ms,
        "counted": _counts(connection, head, new, victim),
        "preemptor_namespace": preemptor_namespace,
        "victim": victim.pod,
        "uid": victim.uid,
        "node": (pod.spec.node_name if pod is not None else "") or new.preemption.node,
        **facts,
        "run_seconds": 0 if start is None else max(0, now_ms - start) // 1000,
        "pdb_violating": new.verdict.pdb_violating.get(victim.pod),
        "evidence": ",".join(victim.evidence),
        "event_uid": victim.event_uid,
    }


def _facts(victim: SeenVictim, pod: Pod | None) -> dict[str, Any]:
    names = ("namespace", "priority", "priority_class", "owner", "start_ms")
    if pod is not None:
        columns = columns_of("Pod", victim.pod, pod)
        return {name: columns[name] for name in (*names, "cpu_milli", "memory_bytes")}
    return {
        "namespace": victim.pod.partition("/")[0],
        "priority": None,
        "priority_class": "",
        "owner": "",
        "start_ms": None,
        "cpu_milli": 0,
        "memory_bytes": 0,
    }


def _counts(connection: Connection, head: Head, new: NewObservation, victim: SeenVictim) -> bool:
    """Whether it is this preemption that evicted the pod: of two at once, the first one."""
    if new.preemption.confidence is Confidence.POSSIBLE or victim.uid in new.counted_before:
        return False
    if not victim.uid:
        return True
    v = OBSERVED_VICTIMS.c
    earlier = select(v.observation_id).where(
        v.cluster_id == head.cluster_id, v.uid == victim.uid, v.counted
    )
    replaced = select(OBSERVATIONS.c.replaces).where(OBSERVATIONS.c.replaces.is_not(None))
    query = earlier.where(v.observation_id.not_in(replaced)).limit(1)
    return connection.execute(query).first() is None
