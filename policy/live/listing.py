"""A cluster listed once, as `policy import --context` takes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from policy.live.backoff import Backoff
from policy.live.connection import Connection, Interrupted, LiveError, NotServed
from policy.live.paging import pages
from policy.live.reaching import SYSTEM, server_version
from policy.live.resources import ApiResource, watched
from policy.manifests import Limits, ManifestSet, read_dicts
from policy.store.observed import ClusterIdentity

_API_VERSIONS = {"Event": "events.k8s.io/v1"}
_KINDS = {"SchedulingPodGroup": "PodGroup"}

_TRIES: Final = 5
"""So often a request of a list may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCluster:
    """What a cluster holds."""

    read: ManifestSet
    kinds: frozenset[str]  #: those that its server has
    identity: ClusterIdentity | None  #: None where it has no namespace kube-system
    version: str  #: of the server, as `v1.35.6`; "" where it does not say it


def listed(
    connection: Connection,
    *,
    limits: Limits,
    progress: Callable[[int, int], None],
    whole: bool,
) -> ListedCluster:
    """Everything that the engine uses of a cluster.

    whole: keep pods and nodes whole. Raises LiveError, ManifestError.
    """
    served: set[str] = set()
    items: list[dict[str, Any]] = []
    for resource in watched():
        try:
            found = _items(connection, resource)
        except NotServed:
            continue
        served.add(resource.kind)
        items += found
        progress(len(items), 0)
    read = read_dicts(items, limits=limits, whole=whole)
    return ListedCluster(
        read=replace(read, sources=(connection.source,)),
        kinds=frozenset(served),
        identity=_identity(items, connection.source),
        version=_version(connection),
    )


def _identity(items: list[dict[str, Any]], server: str) -> ClusterIdentity | None:
    for item in items:
        meta = item["metadata"]
        if item["kind"] == "Namespace" and meta.get("name") == SYSTEM and meta.get("uid"):
            return ClusterIdentity(uid=meta["uid"], server=server)
    return None


def _items(connection: Connection, resource: ApiResource) -> list[dict[str, Any]]:
    try:
        found = _list(connection, resource)
    except NotServed:
        older = resource.where_older()
        if older is None:
            raise
        return _items(connection, older)
    kind = _KINDS.get(resource.kind, resource.kind)
    version = _API_VERSIONS.get(resource.kind, _group_of(resource.path))
    return [{**item, "kind": kind, "apiVersion": version} for item in found]


def _version(connection: Connection) -> str:
    again = _waiting(connection)
    while True:
        try:
            return server_version(connection)
        except Interrupted as exc:
            again(exc)


def _waiting(connection: Connection) -> Callable[[Interrupted], bool]:
    """What waits when a request of a list has failed, and raises LiveError at the last time."""
    backoff = Backoff()
    tries = 0

    def again(failed: Interrupted) -> bool:
        nonlocal tries
        tries += 1
        if tries == _TRIES:
            raise LiveError(f"{connection.source} cannot be listed: {failed}")
        time.sleep(backoff.next(failed))
        return True

    return again


def _list(connection: Connection, resource: ApiResource) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for page in pages(connection, resource, again=_waiting(connection)):
        if page.first:
            found = []
        found += [msgspec.json.decode(item) for item in page.items]
    return found


def _group_of(path: str) -> str:
    """`policy/v1` of `/apis/policy/v1/poddisruptionbudgets`, `v1` of `/api/v1/pods`."""
    return "/".join(path.strip("/").split("/")[1:-1])
