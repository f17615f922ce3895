"""Pods that wait for a node: those that are nominated to it in the newest state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select
from sqlalchemy import text as sql_text

from policy.store.state.versions import FINISHED
from policy.store.tables import CLUSTERS, NOMINATIONS, PODS

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
