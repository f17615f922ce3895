"""Which clusters hold kept simulations: what is said of all clusters leaves them out."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, exists, select, text

from policy.store.state.loading import cluster_id
from policy.store.tables import CLUSTERS, REVISIONS
from policy.store.tables.totals import ALL_DAYS

CLUSTERS_IN_QUESTION: Final = f"""
    SELECT c.id, c.name
    FROM clusters c
    WHERE c.name = :cluster
          OR (:cluster = ''
              AND NOT EXISTS (SELECT 1 FROM decision_totals t
                              WHERE t.cluster_id = c.id AND t.day = {ALL_DAYS}
                                    AND t.origin = 'simulated')
              AND NOT EXISTS (SELECT 1 FROM revisions r
                              WHERE r.cluster_id = c.id AND r.number = 1
                                    AND r.source = 'simulate' AND r.cause = 'import'))
"""
"""The clusters in question: the one that is named, or all that hold no kept simulation.

A simulation is kept in a cluster of its own, whose decisions are of origin `simulated`; those of
pod groups say nothing of it, so the revision counts, too, with which it begins.
`simulations.kept_in` names the same clusters, but for interrupted ones, and is looked up by reading
every result.
"""


def clusters_in_question(connection: Connection, cluster: str | None) -> dict[int, str]:
    """Names of these clusters by number; None where no cluster is named. Raises NotFound."""
    if cluster is not None:
        return {cluster_id(connection, cluster): cluster}
    rows = connection.execute(text(CLUSTERS_IN_QUESTION), {"cluster": ""})
    return {row.id: row.name for row in rows}


def kept_simulations(connection: Connection) -> frozenset[str]:
    """Names of the clusters that hold kept simulations."""
    return frozenset(_kept(connection).values())


def _kept(connection: Connection) -> dict[int, str]:
    """Those names by number."""
    real = clusters_in_question(connection, None)
    rows = connection.execute(select(CLUSTERS.c.id, CLUSTERS.c.name))
    return {row.id: row.name for row in rows if row.id not in real}


def real_clusters(connection: Connection) -> list[str]:
    """Names of the clusters with a state that is none of a kept simulation, in their order."""
    has_state = exists().where(REVISIONS.c.cluster_id == CLUSTERS.c.id)
    stored = connection.execute(select(CLUSTERS.c.name).where(has_state)).scalars()
    simulated = kept_simulations(connection)
    return sorted(name for name in stored if name not in simulated)


def in_question(
    connection: Connection, cluster: str | None, column: ColumnElement[int]
) -> list[ColumnElement[bool]]:
    """The condition on numbers of clusters that leaves those in question. Raises NotFound."""
    if cluster is not None:
        return [column == cluster_id(connection, cluster)]
    # Mostly there are none, and what is found by an index of another column stays so.
    kept = _kept(connection)
    return [column.not_in(sorted(kept))] if kept else []
