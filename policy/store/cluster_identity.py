"""Which real cluster was followed or listed under a name."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from policy.store.errors import OtherCluster
from policy.store.observed import ClusterIdentity
from policy.store.state.versions import Head, find_head
from policy.store.tables import CLUSTER_IDENTITIES


def known(connection: Connection, cluster: str) -> ClusterIdentity | None:
    """The real cluster of that name; None where none was followed or listed."""
    head = find_head(connection, cluster)
    if head is None:
        return None
    i = CLUSTER_IDENTITIES.c
    found = connection.execute(select(i.uid, i.server).where(i.cluster_id == head.cluster_id))
    row = found.first()
    return None if row is None else ClusterIdentity(uid=row.uid, server=row.server)


def keep(connection: Connection, head: Head, found: ClusterIdentity, *, at_ms: int) -> None:
    """Keep which real cluster it is, from the first time on. Raises OtherCluster."""
    before = known(connection, head.name)
    if before is None:
        row = {"uid": found.uid, "server": found.server, "at_ms": at_ms}
        connection.execute(insert(CLUSTER_IDENTITIES), {"cluster_id": head.cluster_id, **row})
    elif before.uid != found.uid:
        raise OtherCluster(name=head.name, known=before, found=found)
