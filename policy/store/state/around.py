"""A few pods of the newest state, with what rules look at beside them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias, cast

from sqlalchemy import Connection, and_, select

from policy.cluster.objects import ClusterObject, Pod
from policy.store import bulk
from policy.store.state.loading import cluster_id, decode
from policy.store.tables import REVISIONS, VERSIONS

PodId: TypeAlias = tuple[str, str]
"""Key (namespace/name) and uid of a pod."""


def pods_around(connection: Connection, cluster: str, pods: Collection[str]) -> list[ClusterObject]:
    """The pods that are there now, their nodes, namespaces and budgets, and the priority classes.

    pods: namespace/name. Raises NotFound for an unknown cluster.
    """
    number = cluster_id(connection, cluster)
    found = _now(connection, number, "Pod", pods)
    its = [obj for obj in found if isinstance(obj, Pod)]
    namespaces = {pod.metadata.namespace or "default" for pod in its}
    found += _now(connection, number, "Node", {pod.spec.node_name for pod in its} - {""})
    found += _now(connection, number, "Namespace", namespaces)
    found += _now(connection, number, "PriorityClass", None)
    c = VERSIONS["PodDisruptionBudget"].c
    for namespace in sorted(namespaces):
        # Keys of a namespace lie side by side: "0" is what follows the slash.
        query = select(c.manifest).where(
            c.cluster_id == number,
            c.key >= f"{namespace}/",
            c.key < f"{namespace}0",
            c.valid_to.is_(None),
        )
        budgets = connection.execute(query).scalars()
        found += [decode("PodDisruptionBudget", manifest) for manifest in budgets]
    return found


def newest_pod(connection: Connection, cluster: str, key: str) -> Pod | None:
    """The pod as it was last, also where it is gone by now. Raises NotFound."""
    c = VERSIONS["Pod"].c
    query = (
        select(c.manifest)
        .where(c.cluster_id == cluster_id(connection, cluster), c.key == key)
        .order_by(c.valid_from.desc())
        .limit(1)
    )
    manifest = connection.execute(query).scalar()
    return None if manifest is None else cast("Pod", decode("Pod", manifest))


def pods_since(connection: Connection, cluster: str, *, at_ms: int) -> list[str]:
    """The pods that are there now as they have been since that time, by key (namespace/name).

    Raises NotFound.
    """
    p, r = VERSIONS["Pod"].c, REVISIONS.c
    made = and_(r.cluster_id == p.cluster_id, r.number == p.valid_from)
    query = (
        select(p.key)
        .join(REVISIONS, made)
        .where(p.cluster_id == cluster_id(connection, cluster), p.valid_to.is_(None))
        .where(r.at_ms <= at_ms)
    )
    return sorted(connection.execute(query).scalars())


def _now(
    connection: Connection, cluster: int, kind: str, keys: Collection[str] | None
) -> list[ClusterObject]:
    """Objects of a kind by key; all of them without keys."""
    c = VERSIONS[kind].c
    query = select(c.key, c.manifest).where(c.cluster_id == cluster, c.valid_to.is_(None))
    if keys is not None:
        query = query.where(c.key.in_(sorted(keys)))
    return [decode(kind, manifest) for _, manifest in sorted(map(tuple, connection.execute(query)))]


def gone_pods(connection: Connection, cluster: str, pods: Collection[PodId]) -> set[PodId]:
    """Those of the pods that were in the cluster and are there no more."""
    return AskedGone(connection, cluster, pods).pods()


class AskedGone:
    """Pods that were in the cluster and are there no more, which were asked for."""

    def __init__(self, connection: Connection, cluster: str, pods: Collection[PodId]) -> None:
        self._pods = frozenset(pods)
        of_pods, keys = bulk.among(connection, {key for key, _ in pods})
        self._asked = bulk.Asked(connection, _EVER.format(of_pods=of_pods), (cluster, keys))

    def pods(self) -> set[PodId]:
        """Those of the pods."""
        there: dict[PodId, bool] = {}
        for key, uid, until in self._asked.rows():
            there[key, uid] = there.get((key, uid), False) or until is None
        return {pod for pod, still in there.items() if not still and pod in self._pods}


_EVER: Final = (
    "SELECT p.key, p.uid, p.valid_to FROM pods p JOIN clusters c ON c.id = p.cluster_id"
    " WHERE c.name = ? AND p.key {of_pods}"
)
