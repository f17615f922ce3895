"""A cluster listed once, as `policy import --context` takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from policy.live.connection import Connection, Expired, Interrupted, LiveError, NotServed
from policy.live.resources import ApiResource, watched
from policy.live.watching import PAGE
from policy.manifests import Limits, ManifestSet, read_dicts

_API_VERSIONS = {
    "Event": "events.k8s.io/v1",
    "SchedulingPodGroup": "scheduling.k8s.io/v1alpha2",
}
_KINDS = {"SchedulingPodGroup": "PodGroup"}


def listed(
    connection: Connection,
    *,
    limits: Limits,
    progress: Callable[[int, int], None],
    whole: bool,
) -> tuple[ManifestSet, frozenset[str]]:
    """Everything that the engine uses of a cluster, and the kinds that its server has.

    whole: keep pods and nodes whole. Raises LiveError, ManifestError.
    """
    served: set[str] = set()
    items: list[dict[str, Any]] = []
    for resource in watched():
        try:
            found = list(_items(connection, resource))
        except NotServed:
            continue
        except (Interrupted, Expired) as exc:
            raise LiveError(f"{connection.source} cannot be listed: {exc}") from exc
        served.add(resource.kind)
        items += found
        progress(len(items), 0)
    read = read_dicts(items, limits=limits, whole=whole)
    return replace(read, sources=(connection.source,)), frozenset(served)


def _items(connection: Connection, resource: ApiResource) -> Iterator[dict[str, Any]]:
    token = ""
    while True:
        params = {"limit": str(PAGE)}
        if resource.field_selector:
            params["fieldSelector"] = resource.field_selector
        if token:
            params["continue"] = token
        try:
            page = msgspec.json.decode(connection.get(resource.path, params))
        except NotServed:
            if not resource.older:
                raise
            resource = replace(resource, path=resource.older, older="")
            continue
        except msgspec.MsgspecError as exc:
            raise Interrupted(f"{resource.path}: no list: {exc}") from exc
        kind = _KINDS.get(resource.kind, resource.kind)
        version = _API_VERSIONS.get(resource.kind, _group_of(resource.path))
        for item in page.get("items") or ():
            yield {**item, "kind": kind, "apiVersion": version}
        token = page.get("metadata", {}).get("continue") or ""
        if not token:
            return


def _group_of(path: str) -> str:
    """`policy/v1` of `/apis/policy/v1/poddisruptionbudgets`, `v1` of `/api/v1/pods`."""
    return "/".join(path.strip("/").split("/")[1:-1])
