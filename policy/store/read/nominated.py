"""Pods that wait for a node: those that are nominated to one in the newest state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, func, select
from sqlalchemy import text as sql_text

from policy.store.model.state import Cause
from policy.store.state.versions import FINISHED, find_head
from policy.store.tables import CLUSTERS, NOMINATIONS, PODS, REVISIONS

NOMINATED_NOW: Final = sql_text("pods.valid_to IS NULL AND pods.nominated_node <> ''")
"""Literally as the index of these few pods has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """A pod that waits for the node."""

    cluster: str
    pod: str
    priority: int
    cpu_milli: int
    memory_bytes: int
    since_ms: int | None  #: None where no nomination of it is recorded
    decision: int | None  #: that nominated it; None also where none of ours did


def nominated_to(connection: Connection, node: str) -> list[NominatedPod]:
    """Pods that are nominated to the node now, the more important first."""
    p, n = PODS.c, NOMINATIONS.c
    found = []
    for number, cluster in connection.execute(
        select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.name)
    ).all():
        waiting = select(p.key, p.priority, p.cpu_milli, p.memory_bytes).where(
            p.cluster_id == number,
            NOMINATED_NOW,
            p.nominated_node == node,
            # Schedulers before 1.34 leave it in the status of a pod that is bound.
            func.length(p.node) == 0,  # the index of nodes is not the one to look in
            p.phase.not_in(FINISHED),
        )
        pods = sorted(connection.execute(waiting), key=lambda row: (-row.priority, row.key))
        for pod in pods:
            newest = (
                select(n.node, n.made_ms, n.made_decision)
                .where(n.cluster_id == number, n.pod == pod.key)
                .order_by(n.made_revision.desc())
                .limit(1)
            )
            made = connection.execute(newest).first()
            known = made is not None and made.node == node
            found.append(
                NominatedPod(
                    cluster=cluster,
                    pod=pod.key,
                    priority=pod.priority,
                    cpu_milli=pod.cpu_milli,
                    memory_bytes=pod.memory_bytes,
                    since_ms=made.made_ms if made is not None and known else None,
                    decision=made.made_decision if made is not None and known else None,
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenNomination:
    """Of a pod that a decision nominated, and of which nothing was shown since."""

    pod: str
    uid: str
    node: str


def unseen_nominations(
    connection: Connection, cluster: str, *, made_by_ms: int
) -> list[UnseenNomination]:
    """Those of a followed cluster that were made by then, by pod."""
    head = find_head(connection, cluster)
    if head is None:
        return []
    p, r = PODS.c, REVISIONS.c
    decided = and_(r.cluster_id == p.cluster_id, r.number == p.valid_from)
    query = (
        select(p.key, p.uid, p.nominated_node)
        .join(REVISIONS, decided)
        .where(p.cluster_id == head.cluster_id, NOMINATED_NOW, func.length(p.node) == 0)
        .where(p.phase.not_in(FINISHED), r.cause == str(Cause.DECISION), r.at_ms <= made_by_ms)
        .order_by(p.key)
    )
    return [
        UnseenNomination(pod=row.key, uid=row.uid, node=row.nominated_node)
        for row in connection.execute(query)
    ]
