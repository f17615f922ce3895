"""One node as it was at a revision, without the rest of its cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from policy.cluster.objects import Node, Pod
from policy.store.state.loading import decode, true_at
from policy.store.state.past import kept
from policy.store.tables import NOMINATION_ENDS, NOMINATIONS, PODS, VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAt:
    """A node, the pods on it, and those that were nominated to it, at a revision."""

    node: Node | None  #: None where the state had none of that name
    pods: tuple[Pod, ...]  #: by key
    nominated: tuple[Pod, ...]  #: by key
    named: tuple[Pod, ...]  #: of the pods that were sought by key, those that the state had
    intact: bool  #: has every one of them the digest of its version?


def node_at(
    connection: Connection,
    cluster: str,
    name: str,
    at: int,
    *,
    named: tuple[str, ...] = (),
    most: int | None = None,
) -> NodeAt | None:
    """A node at a revision. Raises NotFound for a revision that is not kept.

    named: keys of pods that are sought wherever they were. most: None is the answer where more
    versions of pods than so many ended since, all of which would be looked at: only those that
    are true now are found by their node.
    """
    cluster_id = kept(connection, cluster, at)
    p = PODS.c
    own = p.cluster_id == cluster_id
    ended = and_(own, p.valid_to > at)
    if most is not None and _more(connection, select(p.valid_to).where(ended), most):
        return None
    found = _Found(connection, at)
    node = VERSIONS["Node"]
    nodes = found.of("Node", true_at(node, cluster_id, at), node.c.key == name)
    # Each by an index of its own.
    pods = found.of("Pod", own, p.node == name, p.valid_to.is_(None))
    pods |= found.of("Pod", ended, p.node == name)
    then = true_at(PODS, cluster_id, at)
    promised = _nominated(connection, cluster_id, name, at)
    nominated = found.of("Pod", then, p.key.in_(promised)) if promised else {}
    sought = found.of("Pod", then, p.key.in_(named)) if named else {}
    return NodeAt(
        node=nodes.get(name),
        pods=tuple(pods[key] for key in sorted(pods)),
        nominated=tuple(nominated[key] for key in sorted(nominated)),
        named=tuple(sought[key] for key in sorted(sought)),
        intact=found.intact,
    )


class _Found:
    """Objects out of their versions, and whether these are what was written."""

    def __init__(self, connection: Connection, at: int) -> None:
        self._connection = connection
        self._at = at
        self.intact = True

    def of(self, kind: str, *conditions: ColumnElement[bool]) -> dict[str, Any]:
        """The objects by key."""
        c = VERSIONS[kind].c
        query = select(c.key, c.valid_from, c.manifest, c.digest).where(*conditions)
        objects = {}
        for row in self._connection.execute(query):
            # Compared here: SQLite would find the few of a node by this column, in which nearly
            # all versions are alike.
            if row.valid_from <= self._at:
                self.intact &= hashlib.sha256(row.manifest.encode()).hexdigest() == row.digest
                objects[row.key] = decode(kind, row.manifest)
        return objects


def _nominated(connection: Connection, cluster_id: int, node: str, at: int) -> list[str]:
    """Keys of the pods whose nomination to the node stood at a revision."""
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    same = (e.cluster_id == n.cluster_id) & (e.made_revision == n.made_revision) & (e.pod == n.pod)
    query = (
        select(n.pod)
        .outerjoin(NOMINATION_ENDS, same)
        .where(
            n.cluster_id == cluster_id,
            n.node == node,
            n.made_revision <= at,
            or_(e.ended_revision.is_(None), e.ended_revision > at),
        )
    )
    return list(connection.execute(query).scalars())


def _more(connection: Connection, query: Select[Any], most: int) -> bool:
    """Does a query find more rows than so many? It ends there."""
    counted = select(func.count()).select_from(query.limit(most + 1).subquery())
    return bool(connection.execute(counted).scalar_one() > most)
